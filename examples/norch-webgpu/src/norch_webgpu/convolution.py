"""conv2d and its two gradients, as products of matrices that are nowhere in memory: their elements are looked up.

A tap is a channel of the group and a row and column of the window, a pixel one of all images'. The result is the sum
over taps of weight[o, tap] * input[tap, pixel], the gradient of the input over taps (of o) of weight * grad, that of
the weight over pixels of grad[o, pixel] * input[tap, pixel]. The batch is the groups. Sizes and strides, but not the
number of images, are baked into the code.
"""

from math import prod

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import Attrs, Operands, kind
from .products import NOWHERE, Product, multiply


def convolution(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """conv2d (out, input, weight, bias), conv2d_input_grad (out, grad, weight), conv2d_weight_grad (out, grad, input)."""
    if not all(prod(o.shape) for o in operands):
        return None
    out, a, b = operands[:3]
    to_input, to_weight = op == "conv2d_input_grad", op == "conv2d_weight_grad"
    images, weight, result = (out, b, a) if to_input else (b, out, a) if to_weight else (a, b, out)
    (_, c, kh, kw), o, h, w = weight.shape, weight.shape[0] // attrs["groups"], *(images if to_input else result).shape[2:]
    (sy, sx), (dy, dx), (top, _, left, _) = attrs["stride"], attrs["dilation"], attrs["pads"]
    text = f"""fn tap_of(t: u32) -> vec3<u32> {{ return vec3(t / {kh * kw}u, t / {kw}u % {kh}u, t % {kw}u); }}
fn pixel_of(p: u32) -> vec3<u32> {{ return vec3(p / {h * w}u, p / {w}u % {h}u, p % {w}u); }}
"""
    if to_input:  # what is seen is the gradient, where a window begins that has this pixel at the tap
        seen, plain, few = result, images, (o, c)
        text += f"""fn seen(at: u32, t: vec3<u32>, p: vec3<u32>) -> u32 {{
    let y = p.y + {top}u - t.y * {dy}u; let x = p.z + {left}u - t.z * {dx}u;
    if (y % {sy}u + x % {sx}u > 0u || y / {sy}u >= {seen.shape[2]}u || x / {sx}u >= {seen.shape[3]}u) {{ return {NOWHERE}; }}
    return {_place(seen, 'p.x', f'at * {o}u + t.x', f'y / {sy}u', f'x / {sx}u')}; }}
"""
    else:
        seen, plain, few = images, result, (c, o)
        text += f"""fn seen(at: u32, t: vec3<u32>, p: vec3<u32>) -> u32 {{
    let y = p.y * {sy}u + t.y * {dy}u - {top}u; let x = p.z * {sx}u + t.z * {dx}u - {left}u;
    if (y >= {seen.shape[2]}u || x >= {seen.shape[3]}u) {{ return {NOWHERE}; }}
    return {_place(seen, 'p.x', f'at * {c}u + t.x', 'y', 'x')}; }}
"""
    row, channel = (f"at * {o}u + t.x", "i") if to_input else (f"at * {o}u + i", "t.x")
    text += f"fn weight(at: u32, i: u32, t: vec3<u32>) -> u32 {{ return {_place(weight, row, channel, 't.y', 't.z')}; }}\n"
    place = _place(plain, "p.x", f"at * {few[1]}u + i", "p.y", "p.z")
    text += f"fn plain(at: u32, i: u32, p: vec3<u32>) -> u32 {{ return {place}; }}\n"
    m, taps, pixels = few[1], few[0] * kh * kw, plain.shape[0] * h * w
    quads, is_point = _has_quads(plain), kh * kw * sy * sx == 1 and not any(attrs["pads"])
    if to_weight:
        calls = ("weight(at, i, tap_of(k))", "plain(at, i, pixel_of(k))", "seen(at, tap_of(i), pixel_of(k))")
        n, k, flags = taps, pixels, (False, quads, is_point and _has_quads(seen))
    else:
        calls = ("plain(at, i, pixel_of(k))", "weight(at, i, tap_of(k))", "seen(at, tap_of(k), pixel_of(i))")
        flat = not to_input and weight.strides[1:] == (kh * kw, kw, 1) and not (weight.strides[0] | taps) % 4
        n, k, flags = pixels, taps, (quads, flat, is_point and _has_quads(seen))
    places = [
        f"fn base_{x}(i: u32) -> u32 {{ return i; }}\nfn place_{x}(at: u32, i: u32, k: u32) -> u32 {{ return {call}; }}\n"
        for x, call in zip("oab", calls)
    ]
    bias = f"get_c((at * {o}u + i) * {operands[3].strides[0]}u)" if len(operands) > 3 else None
    along = (True, to_weight)
    reads = places[1] + places[2]
    p = Product((kind(out),) * 3, attrs["groups"], m, n, k, along, flags, reads, places[0], {}, True, bias, text)
    kernel = multiply(run, p)
    if to_weight or kernel is None:
        return kernel
    return lambda o, o_, b, b_, a, a_, *bias: kernel(o, o_, a, a_, b, b_, *bias)


def _place(o: Operand, *dims: str) -> str:
    return " + ".join(f"({dim}) * {step}u" for dim, step in zip(dims, o.strides))


def _has_quads(o: Operand) -> bool:
    """Whether four pixels, from a multiple of four on, lie side by side."""
    h, w = o.shape[2:]
    return o.strides[2:] == (w, 1) and not (h * w | o.strides[0] | o.strides[1]) % 4
