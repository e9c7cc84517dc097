"""Pooling: the largest element of windows, where it is, and its gradient, for which an invocation asks each window that
sees its element."""

from math import prod

from norch.backend import Kernel

from .devices import Runtime
from .dtypes import Attrs, Operands, kind, raw
from .reduction import LEAST
from .source import WIDTH, Tensor, main

WINDOW = """struct Found {{ v: T, at: u32 }}
fn largest(base: u32, y: u32, x: u32) -> Found {{ // and where in its plane; of padding alone the nearest
    let top = y * P.step_y; let left = x * P.step_x;
    var found = Found({least}, 0xffffffffu);
    for (var i = 0u; i < P.kh; i++) {{
        let row = top + i * P.gap_y - P.top;
        for (var j = 0u; j < P.kw; j++) {{
            let column = left + j * P.gap_x - P.left;
            if (row < P.h && column < P.w) {{
                let v = get_x(base + row * P.x_2 + column * P.x_3);
                if (found.at == 0xffffffffu || v > found.v || (is_nan(v) && !is_nan(found.v))) {{
                    found = Found(v, row * P.w + column);
                }}
            }}
        }}
    }}
    if (found.at == 0xffffffffu) {{
        found.at = min(max(top, P.top) - P.top, P.h - 1u) * P.w + min(max(left, P.left) - P.left, P.w - 1u);
    }}
    return found;
}}
"""
GRAD = """var sum = T(0);
    for (var i = 0u; i < P.kh; i++) {
        let row = y + P.top - i * P.gap_y;
        for (var j = 0u; j < P.kw; j++) {
            let column = x + P.left - j * P.gap_x;
            let wy = row / P.step_y; let wx = column / P.step_x;
            if (row % P.step_y + column % P.step_x == 0u && wy < P.rows && wx < P.columns
                && largest(n * P.x_0 + c * P.x_1, wy, wx).at == y * P.w + x) {
                sum += get_g(n * P.g_0 + c * P.g_1 + wy * P.g_2 + wx * P.g_3);
            }
        }
    }
    put_o(at, sum);"""
BODIES = {
    "max_pool2d": "put_o(at, largest(n * P.x_0 + c * P.x_1, y, x).v);",
    "max_pool2d_indices": "put_o(at, vec2<u32>(largest(n * P.x_0 + c * P.x_1, y, x).at, 0u));",
    "max_pool2d_grad": GRAD,
}


def pool(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """max_pool2d and max_pool2d_indices: out, input. max_pool2d_grad: out, grad, input."""
    out, is_grad = operands[0], op.endswith("grad")
    images, windows = (out, operands[1]) if is_grad else (operands[1], out)
    (kh, kw), (step_y, step_x), (gap_y, gap_x) = attrs["windows"]
    count, kinds = prod(out.shape), [raw(out) if op == "max_pool2d_indices" else kind(out), *map(kind, operands[1:])]
    numbers = {
        "count": count, "c": out.shape[1], "h": images.shape[2], "w": images.shape[3], "rows": windows.shape[2],
        "columns": windows.shape[3], "kh": kh, "kw": kw, "step_y": step_y, "step_x": step_x, "gap_y": gap_y,
        "gap_x": gap_x, "top": attrs["pads"][0], "left": attrs["pads"][2], "o_h": out.shape[2], "o_w": out.shape[3],
    }  # fmt: skip
    names = ("o", "g", "x") if is_grad else ("o", "x")
    for name, operand in zip(names, operands):
        numbers |= {f"{name}_{d}": step for d, step in enumerate(operand.strides)}
    body = f"""if (g >= P.count) {{ return; }}
    let x = g % P.o_w; let y = g / P.o_w % P.o_h; let plane = g / P.o_w / P.o_h;
    let c = plane % P.c; let n = plane / P.c; let at = n * P.o_0 + c * P.o_1 + y * P.o_2 + x * P.o_3;
    {BODIES[op]}"""
    computed = kinds[-1].computed
    source = f"alias T = {computed};\n"
    source += "" if computed == "f32" else "fn is_nan(v: T) -> bool { return false; }\n"
    source += WINDOW.format(least=LEAST[computed]) + main(body)
    arguments = [Tensor(name, of, name == "o") for name, of in zip(names, kinds)]
    return run.kernel(arguments, source, -(-count // WIDTH), numbers)
