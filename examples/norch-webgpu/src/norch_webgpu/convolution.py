"""conv2d and its two gradients, as products of matrices that are nowhere in memory: their elements are looked up.

A tap is a channel of the group and a row and column of the window, a pixel one of all images'. The result is the sum
over taps of weight[o, tap] * input[tap, pixel], the gradient of the input over taps (of o) of weight * grad, that of
the weight over pixels of grad[o, pixel] * input[tap, pixel]. The batch is the groups. The windows are baked into the
code, so that layers share programs.
"""

from math import prod
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import Attrs, Operands, kind
from .products import Product, multiply, places
from .source import Tensor


def convolution(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """conv2d: out, input, weight, bias. conv2d_input_grad: out, grad, weight; conv2d_weight_grad: out, grad, input."""
    if not all(prod(o.shape) for o in operands):
        return None
    out, a, b = operands[:3]
    to_input, to_weight, groups = op == "conv2d_input_grad", op == "conv2d_weight_grad", attrs["groups"]
    images, weight, result = (out, b, a) if to_input else (b, out, a) if to_weight else (a, b, out)
    (_, c, kh, kw), o = weight.shape, weight.shape[0] // groups
    (sy, sx), (dy, dx), (top, _, left, _) = attrs["stride"], attrs["dilation"], attrs["pads"]
    seen, plain, few, lines = (result, images, o, c) if to_input else (images, result, c, o)
    (h, w), (seen_h, seen_w) = plain.shape[2:], seen.shape[2:]
    numbers = dict(h=h, w=w, few=few, lines=lines, seen_h=seen_h, seen_w=seen_w, top=top, left=left)
    for name, operand in (("seen", seen), ("plain", plain), ("weight", weight)):
        numbers |= {f"{name}_{d}": step for d, step in enumerate(operand.strides)}
    rows, columns = (f"{h}u", f"{w}u") if to_weight else ("P.h", "P.w")  # divided by again and again
    ends = ("at * P.few + t.x", "i") if to_input else ("at * P.lines + i", "t.x")
    find = f"let y = p.y * {sy}u + t.y * {dy}u - P.top; let x = p.z * {sx}u + t.z * {dx}u - P.left; let rest = 0u;"
    if to_input:  # what is seen is the gradient, where a window begins that has this pixel at the tap
        find = f"""let v = p.y + P.top - t.y * {dy}u; let u = p.z + P.left - t.z * {dx}u;
    let y = v / {sy}u; let x = u / {sx}u; let rest = v % {sy}u + u % {sx}u;"""
    text = f"""fn tap_of(t: u32) -> vec3<u32> {{ return vec3(t / {kh * kw}u, t / {kw}u % {kh}u, t % {kw}u); }}
fn pixel_of(p: u32) -> vec3<u32> {{
    let line = p / {columns}; let n = line / {rows}; return vec3(n, line - n * {rows}, p - line * {columns}); }}
fn weight(at: u32, i: u32, t: vec3<u32>) -> u32 {{ return {_place("weight", *ends, "t.y", "t.z")}; }}
fn plain(at: u32, i: u32, p: vec3<u32>) -> u32 {{ return {_place("plain", "p.x", "at * P.lines + i", "p.y", "p.z")}; }}
fn seen(at: u32, t: vec3<u32>, p: vec3<u32>) -> u32 {{
    {find}
    if (rest > 0u || y >= P.seen_h || x >= P.seen_w) {{ return NOWHERE; }}
    return {_place("seen", "p.x", "at * P.few + t.x", "y", "x")}; }}
"""
    taps, pixels = few * kh * kw, plain.shape[0] * h * w
    quads, is_point = _has_quads(plain), kh * kw * sy * sx == 1 and not any(attrs["pads"])
    if to_weight:
        calls = ("weight(at, i, tap_of(k))", "plain(at, i, pixel_of(k))", "seen(at, tap_of(i), pixel_of(k))")
        n, k, flags = taps, pixels, (False, quads, is_point and _has_quads(seen))
    else:
        calls = ("plain(at, i, pixel_of(k))", "weight(at, i, tap_of(k))", "seen(at, tap_of(k), pixel_of(i))")
        flat = not to_input and weight.strides[1:] == (kh * kw, kw, 1) and not (weight.strides[0] | taps) % 4
        n, k, flags = pixels, taps, (quads, flat, is_point and _has_quads(seen))
    text += "".join(places(x, "return i;", call) for x, call in zip("oab", calls))
    result, more = "v", tuple(Tensor("c", kind(bias)) for bias in operands[3:])
    if more:
        result, numbers["c_0"] = "v + get_c((at * P.lines + i) * P.c_0)", operands[3].strides[0]
    sizes, along = (lines, n, k), (True, to_weight)
    kernel: Any = multiply(run, Product((kind(out),) * 3, groups, *sizes, along, flags, text, numbers, result, more))
    if to_weight or kernel is None:
        return kernel
    return lambda o, o_, b, b_, a, a_, *bias: kernel(o, o_, a, a_, b, b_, *bias)


def _place(name: str, *dims: str) -> str:
    return " + ".join(f"({dim}) * P.{name}_{d}" for d, dim in enumerate(dims))


def _has_quads(o: Operand) -> bool:
    """Whether four pixels, from a multiple of four on, lie side by side."""
    h, w = o.shape[2:]
    return o.strides[2:] == (w, 1) and not (h * w | o.strides[0] | o.strides[1]) % 4
