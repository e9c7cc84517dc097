"""Elementary functions in WGSL, whose own are right to 11 bits or so and may not know NaN and infinity. The polynomials
are norch-cpu's. Nothing relies on fused products, nor on (a + b) - a, which compilers shorten."""

import re
from functools import reduce

# A function a line, "= value" or ": statements" and then what is indented; a type that is not said is f32, and @ is i32
# and i64. poly(x, c0, c1, ...) is c0 + c1 x + ..., by Horner's rule.
TEXT = """
is_nan(a) -> bool = (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u
nan() = bitcast<f32>(0x7fc00000u)
inf() = bitcast<f32>(0x7f800000u)
negative(a) -> bool = (bitcast<u32>(a) >> 31u) == 1u
with_sign(a, s) = bitcast<f32>(bitcast<u32>(a) | (bitcast<u32>(s) & 0x80000000u))
short(a) = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u) // 12 bits: products are exact
power2(n: i32) = bitcast<f32>(u32(n) << 23u) // 2^(n - 127)
less_1(r) = // exp(r) - 1 for |r| <= ln 2 / 2
    r + r * (r * poly(r, 0.49999994, 0.166665196, 0.0416684933, 0.00836885627, 0.00138071331))
raised(r, n): // exp(r) 2^n, in two steps for what is subnormal
    let i = i32(n) + 254; let half = i >> 1u; return (1f + less_1(r)) * power2(half) * power2(i - half);
beyond_2(a, n) = (a - n * 0.693359375f) + n * 2.12194440e-4f // a - n ln 2
exp_f32(x):
    let a = min(max(x, -176f), 89f); let n = round(a * 1.44269504f);
    return select(raised(beyond_2(a, n), n), x, is_nan(x));
expm1_f32(x):
    let a = min(max(x, -18f), 89f); let n = round(a * 1.44269504f); let y = less_1(beyond_2(a, n));
    if (is_nan(x) || abs(x) < 1e-8f) { return x; }
    if (n > 126f) { return (1f + y) * power2(253) * power2(i32(n) + 1); }
    return power2(i32(n) + 127) * y + (power2(i32(n) + 127) - 1f);
sigmoid_f32(a): let z = exp_f32(-abs(a)); return select(1f, z, a < 0) / (1 + z);
sinh_f32(x):
    let t = min(expm1_f32(0.5f * abs(x)), 1e25f); let e = t + 1;
    return select(with_sign(0.5f * (t + t / e) * (e + 1 / e), x), x, is_nan(x));
cosh_f32(x): let h = exp_f32(0.5f * abs(x)); return (0.5f * h) * h + (0.5f / h) / h;
tanh_f32(x): let t = expm1_f32(2 * clamp(x, -10f, 10f)); return select(t / (t + 2), x, is_nan(x));
log_tail(f): // log(1 + f) - f for 2/3 <= 1 + f < 3/2
    let z = f * f;
    return z * f * poly(f, 0.333332151, -0.24999781, 0.200104937, -0.166813701, 0.140041158, -0.121704437, 0.139943615,
        -0.129584506) - 0.5f * z;
log_parts(x) -> vec2<f32>: // n and f, where x = 2^n (1 + f) and 2/3 <= 1 + f < 4/3; x > 0
    let small = x < 1.17549435e-38f; let bits = bitcast<u32>(select(x, x * 8388608f, small)) - 0x3f2aaaabu;
    let n = (bitcast<i32>(bits) >> 23u) - select(0, 23, small);
    return vec2<f32>(f32(n), bitcast<f32>((bits & 0x7fffffu) + 0x3f2aaaabu) - 1f);
log_edge(x, y) = // y, but what a logarithm is where x is not positive and finite
    select(select(select(y, -inf(), x == 0), x, x == inf()), nan(), !(x >= 0) || is_nan(x))
log_f32(x): let p = log_parts(x); return log_edge(x, -beyond_2(-(p.y + log_tail(p.y)), p.x));
log2_f32(x): let p = log_parts(x); return log_edge(x, p.x + (p.y + log_tail(p.y)) * 1.44269504f);
log10_f32(x) = log_f32(x) * 0.434294482f
log1p_f32(x) = select(select(x + log_tail(x), x, x == 0), log_f32(1 + x), !(abs(x) < 0.3f))
far(a, y) = select(log1p_f32(y), log_f32(a) + 0.693147181f, a > 1e9f) // log(a + sqrt(a^2 +- 1)), where y is that less 1
asinh_f32(x): let a = abs(x); return with_sign(far(a, a + a * a / (1 + sqrt(a * a + 1))), x);
acosh_f32(x): let t = x - 1; return select(far(x, t + sqrt(max(2 * t + t * t, 0f))), nan(), !(x >= 1));
atanh_f32(x):
    let a = abs(x); let y = select(0.5f * log1p_f32(2 * a / (1 - a)), inf(), a == 1);
    return select(with_sign(y, x), nan(), !(a <= 1));
erf_f32(x):
    let a = abs(x); let z = a * a; let t = min(a, 3.9f) - 2.5f; let u = t * t;
    let p = poly(z, 0.128379166, -0.376125991, 0.112832919, -0.026841443, 0.00516486401, -0.000780579692,
        7.18800948e-05);
    let even = poly(u, 0.000406939973, 0.00544631155, 0.0086175194, 0.00281307381, -0.000281234155, -6.43738022e-05,
        9.56076201e-06);
    let odd = poly(u, -0.00217821123, -0.00835132506, -0.00611114968, -0.000556452025, 0.000267048919, -1.6217984e-05,
        -7.52067308e-07);
    return select(with_sign(select(a + a * p, 1f - (even + t * odd), a >= 1.1f), x), x, is_nan(x));
high(a: u32, b: u32) -> u32: // the upper half of a product
    let p = (a & 0xffffu) * (b & 0xffffu); let q = (a >> 16u) * (b & 0xffffu) + (p >> 16u);
    return (a >> 16u) * (b >> 16u) + (q >> 16u) + (((a & 0xffffu) * (b >> 16u) + (q & 0xffffu)) >> 16u);
turned(x) -> vec2<f32>: // r and q: x = r + q pi/2 + some whole turns, |r| <= pi/4, by Payne and Hanek
    if (abs(x) < 0.785398f) { return vec2<f32>(x, 0f); }
    var bits = array(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    let m = (bitcast<u32>(x) & 0x7fffffu) | 0x800000u; let skip = ((bitcast<u32>(x) >> 23u) & 0xffu) - 120u;
    let s = skip % 32u; var w = array<u32, 3>();
    for (var i = 0u; i < 3u; i++) { // 96 bits of 2 / pi, from those that make no whole turns
        w[i] = bits[skip / 32u + i] << s | select(bits[skip / 32u + i + 1u] >> ((32u - s) & 31u), 0u, s == 0u);
    }
    let low = m * w[1] + high(m, w[2]); let p = m * w[0] + high(m, w[1]) + u32(low < high(m, w[2]));
    var h = p << 2u | low >> 30u; var l = low << 2u | (m * w[2]) >> 30u; let over = h >> 31u; let q = (p >> 30u) + over;
    if (over == 1u) { h = ~h; l = ~l; }
    let r = (f32(h) * 0x1p-32f + f32(l) * 0x1p-64f) * 1.57079633f; let down = negative(x);
    return vec2<f32>(select(r, -r, (over == 1u) != down), f32(select(q, 4u - q, down)));
wave(r, q: u32): // sin(r + q pi/2)
    let z = r * r; let s = r + r * (z * poly(z, -0.16666654611, 0.0083321608736, -0.00019515295891));
    let c = 1 - (0.5f * z - z * z * poly(z, 0.0416666456, -0.00138873163, 2.44331571e-05));
    let y = select(s, c, (q & 1u) == 1u); return select(y, -y, (q & 2u) == 2u);
sin_f32(x): let t = turned(x); return select(wave(t.x, u32(t.y)), nan(), !(abs(x) < inf()));
cos_f32(x): let t = turned(x); return select(wave(t.x, u32(t.y) + 1u), nan(), !(abs(x) < inf()));
tan_f32(x) = sin_f32(x) / cos_f32(x)
other(x) = select(sqrt(max((1 - x) * (1 + x), 0f)), nan(), !(abs(x) <= 1))
asin_f32(x) = atan2_f32(x, other(x))
acos_f32(x) = atan2_f32(other(x), x)
atan_f32(x) = atan2_f32(x, 1f)
atan2_f32(y, x):
    let a = abs(y); let b = abs(x); let t = select(min(a, b) / max(a, b), 1f, a == b); let z = t * t;
    let p = t + t * (z * poly(z, -0.333333135, 0.199988425, -0.142663464, 0.109585822, -0.0841065422, 0.0579135418,
        -0.0309912898, 0.0107485, -0.00174370117));
    let least = select(p, 0f, a == 0); let acute = select(least, (1.57079637f - least) - 4.37113883e-8f, a > b);
    let whole = select(acute, (3.14159274f - acute) - 8.74227766e-8f, negative(x));
    return select(with_sign(whole, y), nan(), is_nan(a) || is_nan(b));
pow_f32(a, b):
    if (b == 0 || a == 1) { return 1f; }
    if (is_nan(a) || is_nan(b)) { return nan(); }
    let x = abs(a); let whole = floor(b) == b; let odd = whole && abs(b) < 16777216 && (i32(b) & 1) == 1;
    var y = select(0f, inf(), (b < 0) == (x < 1));
    if (x == 1) { y = 1f; } else if (x > 0 && x < inf() && abs(b) < inf()) {
        let p = log_parts(x); let f = short(p.y); // log2(x) as a sum of two, then its product with b
        let fine = f * 3.12228394e-4f + (p.y - f) * 1.44269504f + log_tail(p.y) * 1.44269504f;
        let top = short(p.x + f * 1.4423828125f + fine); let rest = (p.x - top) + f * 1.4423828125f + fine;
        let c = short(b); let e = c * top; let low = (b - c) * (top + rest) + c * rest; let n = round(e + low);
        if (abs(e) < 200) { y = raised(((e - n) + low) * 0.693147181f, max(n, -254f)); }
    }
    return select(y, select(select(y, -y, odd), nan(), !whole && x > 0 && x < inf()), negative(a));
div_f32(a, b): // GPUs multiply by 1 / b, which is off by some units and may be 0 or infinite
    let s = select(select(1f, 0x1p-28f, abs(b) > 0x1p100f), 0x1p28f, abs(b) < 0x1p-100f);
    let x = a * s; let y = b * s; let q = x / y; let h = short(q); let m = short(y); let l = q - h;
    let fixed = q + ((((x - h * m) - h * (y - m)) - l * m) - l * (y - m)) / y;
    return select(q, fixed, abs(q) > 0x1p-100f && abs(x) > 0x1p-100f && abs(q) < 0x1p126f);
fmod(a, b): // exact, by long division of the mantissas
    let x = bitcast<u32>(a) & 0x7fffffffu; let y = bitcast<u32>(b) & 0x7fffffffu;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) { return nan(); }
    if (x < y) { return a; }
    let last = max(y >> 23u, 1u); let n = (y & 0x7fffffu) | select(0u, 0x800000u, y >= 0x800000u);
    var m = (x & 0x7fffffu) | select(0u, 0x800000u, x >= 0x800000u);
    for (var e = max(x >> 23u, 1u); e > last; e--) { m = select(m, m - n, m >= n) << 1u; }
    return with_sign(f32(select(m, m - n, m >= n)) * 0x1p-23f * bitcast<f32>(last << 23u), a);
floored(r, b) = select(0f, 1f, r != 0 && (r < 0) != (b < 0)) // what floor takes away
remainder_f32(a, b): let r = fmod(a, b); return select(select(r, r + b, floored(r, b) == 1), with_sign(0f, b), r == 0);
floor_divide_f32(a, b): let r = fmod(a, b); return select(round(div_f32(a - r, b)) - floored(r, b), a / b, b == 0);
floor_divide_@(a: @, b: @) -> @: // a divisor of 0 or -1 may trap
    let d = select(b, @(1), b == 0 || b == -1); let q = a / d; // % of what is negative is undefined in Vulkan
    let r = q - select(@(0), @(1), q * d != a && (a < 0) != (d < 0));
    return select(select(r, @(0), b == 0), -a, b == -1);
pow_@(a: @, b: @) -> @:
    if (b < 0) { return select(select(@(0), select(@(1), @(-1), (b & 1) != 0), a == -1), @(1), a == 1); }
    var y = @(1); var base = a;
    for (var left = b; left != 0; left >>= 1u) { if ((left & 1) != 0) { y *= base; } base *= base; }
    return y;
decode_float16(w: u32) = unpack2x16float(w).x
encode_float16(v) -> u32 = pack2x16float(vec2<f32>(v, 0f))
decode_bfloat16(w: u32) = bitcast<f32>(w << 16u)
encode_bfloat16(v) -> u32:
    let b = bitcast<u32>(v); return select((b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u, 0x7fc0u, is_nan(v));
"""
# Of words that hold several: from bits to a value, and back.
for _name, _type, _load, _store in (
    ("int16", "i32", "extractBits(i32(v), 0u, 16u)", "u32(v) & 0xffffu"), ("uint8", "i32", "i32(v)", "u32(v) & 0xffu"),
    ("int8", "i32", "extractBits(i32(v), 0u, 8u)", "u32(v) & 0xffu"), ("bool", "i32", "i32(v)", "u32(v != 0)"),
    ("bytes1", "u32", "v", "v"), ("bytes2", "u32", "v", "v"),
):  # fmt: skip
    TEXT += f"decode_{_name}(v: u32) -> {_type} = {_load}\nencode_{_name}(v: {_type}) -> u32 = {_store}\n"


def _horner(found: re.Match[str]) -> str:
    x, *coefficients = re.split(r",\s*", found[1])
    return reduce(lambda text, c: f"({c}f + {x} * {text})", coefficients[-2::-1], f"({coefficients[-1]}f)")


def _functions(text: str) -> dict[str, str]:
    """WGSL by name."""
    found, text = {}, re.sub(r"poly\((.*?)\)", _horner, re.sub(r" *//.*", "", text), flags=re.S)
    one = r"^(\w+@?)\((.*?)\)(?: -> ([^\s:]+))?(?:( =)|:)(.*(?:\n .*)*)"
    for name, given, to, is_value, body in re.findall(one, text, re.M):
        given = ", ".join(p if ":" in p else f"{p}: f32" for p in given.split(", ") if p)
        whole = f"fn {name}({given}) -> {to or 'f32'} {{ {f'return{body};' if is_value else body} }}\n"
        found |= {name.replace("@", t): whole.replace("@", t) for t in ("i32", "i64")}
    return found


FUNCTIONS = _functions(TEXT)


def called(source: str) -> str:
    """The functions above that `source` calls and does not have, and those that they call."""
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        for name in re.findall(r"\b\w+(?=\()", waiting.pop()):
            if name in FUNCTIONS and name not in found and f"fn {name}(" not in source:
                found[name] = FUNCTIONS[name]
                waiting.append(found[name])
    return "".join(found.values())
