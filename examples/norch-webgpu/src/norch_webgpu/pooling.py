"""Pooling: the largest element of windows, where it is, and its gradient, for which an invocation asks each window that
sees its element."""

from norch.backend import Kernel

from .devices import Runtime
from .dtypes import Attrs, Operands, kind, raw
from .reduction import LEAST, types
from .source import Tensor, Walk

WINDOW = """struct Found {{ v: T, at: u32 }}
fn largest(base: u32, y: u32, x: u32) -> Found {{ // and where in its plane; of padding alone the nearest
    let top = y * P.step_y; let left = x * P.step_x;
    let nearest = min(max(top, P.top) - P.top, P.x_h - 1u) * P.x_w + min(max(left, P.left) - P.left, P.x_w - 1u);
    var found = Found({least}, nearest);
    for (var i = 0u; i < P.kh; i++) {{
        let row = top + i * P.gap_y - P.top;
        for (var j = 0u; j < P.kw; j++) {{
            let column = left + j * P.gap_x - P.left;
            if (row < P.x_h && column < P.x_w) {{
                let v = get_x(base + row * P.x_y + column * P.x_x);
                if (v > found.v || (is_nan(v) && !is_nan(found.v))) {{ found = Found(v, row * P.x_w + column); }}
            }}
        }}
    }}
    return found;
}}
"""
BODIES = {
    "max_pool2d": "put_o(at_o, largest(at_x, at_y, at_c).v);",
    "max_pool2d_indices": "put_o(at_o, vec2<u32>(largest(at_x, at_y, at_c).at, 0u));",
    "max_pool2d_grad": """var sum = T(0);
    for (var i = 0u; i < P.kh; i++) {
        let row = at_y + P.top - i * P.gap_y;
        for (var j = 0u; j < P.kw; j++) {
            let column = at_c + P.left - j * P.gap_x;
            let wy = row / P.step_y; let wx = column / P.step_x;
            if (row % P.step_y + column % P.step_x == 0u && wy < P.g_h && wx < P.g_w
                && largest(at_x, wy, wx).at == at_y * P.x_w + at_c) {
                sum += get_g(at_g + wy * P.g_y + wx * P.g_x);
            }
        }
    }
    put_o(at_o, sum);""",
}


def pool(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """max_pool2d and max_pool2d_indices: out, input. max_pool2d_grad: out, grad, input."""
    names, out = "ogx" if op.endswith("grad") else "ox", operands[0]
    planes = [(*o.strides[:2], 0, 0) for o in operands[1:]]  # at_x is where a plane begins, at_y and at_c count in it
    walk = Walk([*names, "y", "c"], out.shape, [out.strides, *planes, (0, 0, 1, 0), (0, 0, 0, 1)])
    sizes = zip(("kh", "kw", "step_y", "step_x", "gap_y", "gap_x"), (n for pair in attrs["windows"] for n in pair))
    numbers = dict(sizes, top=attrs["pads"][0], left=attrs["pads"][2])
    for name, o in zip(names, operands):
        numbers |= zip((f"{name}_{what}" for what in "hwyx"), (*o.shape[2:], *o.strides[2:]))
    kinds = [raw(out) if op == "max_pool2d_indices" else kind(out), *map(kind, operands[1:])]
    arguments = [Tensor(name, of, name == "o") for name, of in zip(names, kinds)]
    text = types(kinds[-1].computed) + WINDOW.format(least=LEAST[kinds[-1].computed])
    return run.each(arguments, walk, BODIES[op], numbers, text)
