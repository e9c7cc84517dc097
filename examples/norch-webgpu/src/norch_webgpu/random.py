"""random. The generator, and how its words become numbers, are defined by norch.numpy_backend.philox."""

from norch.backend import Kernel

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, kind
from .source import WIDTH, Scalar, Tensor, Walk, main

# An invocation makes the elements of a block of four words. The first elements' numbers fit a word: `block` does.
BODY = """
    var w = vec4<u32>(g, 0u, P.offset_0, P.offset_1); var key = vec2<u32>(P.seed_0, P.seed_1);
    for (var round = 0; round < 10; round++) {{
        let p = 0xD2511F53u * w.x; let q = 0xCD9E8D57u * w.z;
        w = vec4<u32>(high(0xCD9E8D57u, w.z) ^ w.y ^ key.x, q, high(0xD2511F53u, w.x) ^ w.w ^ key.y, p);
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }}
    for (var e = 0u; e < {each}u; e++) {{
        let i = g * {each}u + e;
        if (i >= P.i_count) {{ return; }}
        {code}
        put_o(at_o, {value});
    }}"""
# Box and Muller's transform; u and v have 24 bits, so that 1 - u and quarters of turns are exact.
PAIR = """let u = f32(w[e & 2u] >> 8u) * 0x1p-24f; let v = w[(e & 2u) + 1u] >> 8u;
        let turn = v + 0x200000u; let r = f32(i32(turn & 0x3fffffu) - 0x200000) * (0x1p-22f * 1.57079633f);
        let wide = sqrt(-2 * log_f32(1 - u)) * wave(r, (turn >> 22u) + 1u - (e & 1u));"""
DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}
VALUES = {
    "bits": "i64(u64(w[e]))",  # i64 of a u32 would extend its sign
    "bits64": "i64(u64(w[2u * e] >> 1u) << 32u | u64(w[2u * e] << 31u | w[2u * e + 1u] >> 1u))",
    "uniform": "f32(w[e] >> {rest}u) * 0x1p-{digits}f",
    "normal": "wide",
}


def random(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    out, to, sort = operands[0], kind(operands[0]), attrs["kind"]
    walk, each, digits = Walk("o", out.shape, [out.strides]), 2 if sort == "bits64" else 4, DIGITS.get(to.name, 0)
    value = VALUES[sort].format(rest=32 - digits, digits=digits)
    body = BODY.format(each=each, code=walk.code() + PAIR * (sort == "normal"), value=value)
    arguments = [Tensor("o", to, True), *(Scalar(n, KINDS["bytes8"], int) for n in ("seed", "offset"))]
    blocks = -(-walk.count // each)
    return run.kernel(arguments, main(body), -(-blocks // WIDTH), walk.numbers)
