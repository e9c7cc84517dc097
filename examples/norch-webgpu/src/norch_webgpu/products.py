"""Kernels that sum products, of matrices (matmul) and convolutions: in tiles, or small ones element by element.

What differs between them is where the elements of their operands are. That is said by WGSL functions: of a product of
the batch at_a = base_a(index), place_a(at_a, i, k), and the same of b, (j, k), and o, (i, j).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Operands, kind
from .source import Tensor, Walk
from .tiles import Tile, choose, tiled

FEW = 1 << 17
"""Up to so many terms, or a 32nd of that in each of many products, are added by an invocation for each element; whole
numbers always."""
# NOWHERE is the place of a zero that is not in memory: padding.
READ = """fn read_{0}(at: u32, i: u32, k: u32) -> T {{
    let p = place_{0}(at, i, k); if (p == NOWHERE) {{ return T(); }} return get_{0}(p); }}
"""


class Product(NamedTuple):
    """out[i, j] = sum of a[i, k] * b[j, k], `batch` times.

    kinds: of out, a and b, which are computed with as one type. along: whether a and b are best read along k, otherwise
    along i or j. quads: whether four elements of out (along j), a and b (as they are read) are neighbours in memory, if
    the offset is a multiple of 4. text: the functions. result: what becomes of a sum v, in WGSL that knows at, i, j and
    its place `to`. more: the tensors that are read for it.
    """

    kinds: tuple[Kind, Kind, Kind]
    batch: int
    m: int
    n: int
    k: int
    along: tuple[bool, bool]
    quads: tuple[bool, bool, bool]
    text: str
    numbers: Mapping[str, int]
    result: str = "v"
    more: tuple[Tensor, ...] = ()


def places(name: str, base: str, place: str) -> str:
    """The functions of an operand, from a body and an expression."""
    text = f"fn base_{name}(i: u32) -> u32 {{ {base} }}\n"
    return f"{text}fn place_{name}(at: u32, i: u32, k: u32) -> u32 {{ return {place}; }}\n"


def multiply(run: Runtime, p: Product) -> Kernel | None:
    """The kernel of a product, whose arguments are out, a, b and what is read besides."""
    terms, given = p.m * p.n * p.k, [Tensor(name, k) for name, k in zip("ab", p.kinds[1:])]
    is_small = terms * p.batch <= FEW or terms <= FEW // 32 or (p.m <= 2 and p.k <= 64)
    if is_small or not p.kinds[0].is_floating:
        term = "read_a(base_a(i), row, k) * read_b(base_b(i), column, k)"
        return _elements(run, p, [*given, *p.more], READ.format("a") + READ.format("b"), term, p.k)
    tile, splits = choose(p.m, p.n, p.k, p.batch)
    sums, parts = KINDS["float32"], 4 * p.batch * p.m * p.n
    splits = min(splits, run.devices[0].pool.most // parts) or 1
    whole, finish = p, None
    if splits > 1:
        whole = p._replace(kinds=(sums, *p.kinds[1:]), quads=(p.n % 4 == 0, *p.quads[1:]), result="v", more=())
        finish = _elements(run, p, [Tensor("s", sums), *p.more], "", "get_s(k * P.e_count + e)", splits)
    can = [q and k.size in (2, 4) for q, k in zip(whole.quads, whole.kinds)]
    can[0] &= "get_o" not in whole.result
    programs: dict[tuple[bool, ...], Any] = {}

    def call(*args: Any) -> None:
        if finish:
            scratch = args[0].device.pool.take(splits * parts)
            rest, args = (*args[:2], scratch, 0, *args[6:]), (scratch, 0, *args[2:6])
        key = tuple([q and at % 4 == 0 for q, at in zip(can, args[1::2])])
        if key not in programs:
            programs[key] = _tiles(run, whole._replace(quads=key), tile, splits)
        programs[key](*args)
        if finish:
            finish(*rest)

    return call


def matmul(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    return multiply(run, product(*operands[:2], turned(operands[2])))


def turned(o: Operand) -> Operand:
    """The transposed matrices."""
    shape, strides = ((*each[:-2], each[-1], each[-2]) for each in (o.shape, o.strides))
    return o._replace(shape=shape, strides=strides)


def product(out: Operand, a: Operand, b: Operand) -> Product:
    """out = a @ b.mT, where the batch dims of all are those of `out`."""
    text, numbers = "", dict[str, int]()
    for name, x in (("o", out), ("a", a), ("b", b)):
        walk = Walk(name, out.shape[:-2], [x.strides[:-2]], bake=False, index=f"{name}i")
        numbers |= {f"{name}_line": x.strides[-2], f"{name}_other": x.strides[-1], **walk.numbers}
        base = f"let {name}i = i; {walk.code()} return at_{name};"
        text += places(name, base, f"at + i * P.{name}_line + k * P.{name}_other")
    along = [x.strides[-1] == 1 or x.strides[-2] != 1 for x in (a, b)]
    quads = [_has_quads(x if is_along else turned(x)) for x, is_along in ((out, True), (a, along[0]), (b, along[1]))]
    sizes = prod(out.shape[:-2]), *out.shape[-2:], a.shape[-1]
    return Product((kind(out), kind(a), kind(b)), *sizes, along, quads, text, numbers)


def _has_quads(o: Operand) -> bool:
    """Whether the elements of its rows lie by fours."""
    return o.strides[-1] == 1 and not any(step % 4 for step in (o.shape[-1], *o.strides[:-1]))


def _tiles(run: Runtime, p: Product, tile: Tile, splits: int) -> Kernel | None:
    """The kernel that multiplies; if sums are split it writes the parts, one after the other."""
    chunk, tiles = max(-(-p.k // splits // tile.k) * tile.k, tile.k), tile.number(p.m, p.n)
    numbers = {"m": p.m, "n": p.n, "k": p.k, "across": -(-p.n // tile.n), "tiles": tiles, "chunk": chunk}
    numbers |= {"batch": p.batch, "groups": tiles * p.batch * splits, **p.numbers}
    fours = ["" if not q else "vec4<T>" if k.size == 4 else "vec2<u32>" for q, k in zip(p.quads, p.kinds)]
    arguments = [Tensor(name, k, name == "o", f) for name, k, f in zip("oab", p.kinds, fours)]
    place, base = ("(at * P.m + i) * P.n + j", "whole") if splits > 1 else ("place_o(at, i, j)", "base_o(i)")
    source = _put(p, place)
    for name, *how in zip("ab", "mn", p.along, p.quads[1:], p.kinds[1:]):
        source += _load(name, *how)
    setup = f"""if (group >= P.groups) {{ return; }}
    let row = group % P.tiles / P.across * {tile.m}u; let column = group % P.tiles % P.across * {tile.n}u;
    let whole = group / P.tiles; let part = whole / P.batch; let i = whole % P.batch;
    let first = part * P.chunk; let last = min(P.k, first + P.chunk);
    let at_a = base_a(i); let at_b = base_b(i); let at_o = {base};"""
    source += tiled(tile, p.along, setup)
    return run.kernel([*arguments, *p.more], source, numbers["groups"], numbers)


def _elements(run: Runtime, p: Product, given: Sequence[Tensor], text: str, term: str, terms: int) -> Kernel | None:
    """Each element of the output by one invocation, which adds its terms."""
    body = f"""let i = e / P.n / P.m; let row = e / P.n % P.m; let column = e % P.n; var sum = T();
    for (var k = 0u; k < P.terms; k++) {{ sum += {term}; }}
    put(base_o(i), row, column, sum);"""
    numbers = {"m": p.m, "n": p.n, "terms": terms, **p.numbers}
    text, walk = (
        _put(p._replace(quads=(False,) * 3), "place_o(at, i, j)") + text,
        Walk("", (p.batch * p.m * p.n,), [], "e"),
    )
    return run.each([Tensor("o", p.kinds[0], True), *given], walk, body, numbers, text)


def _load(name: str, lines: str, along: bool, is_quads: bool, of: Kind) -> str:
    """load_a or load_b: four elements."""
    text, start = "", f"fn load_{name}(at: u32, i: u32, k: u32, last: u32) -> Four {{ var v = Four();\n"
    if is_quads:
        halves = [f"decode_{of.name}({half})" for c in "xy" for half in (f"w.{c} & 0xffffu", f"w.{c} >> 16u")]
        found = "w" if of.size == 4 else f"Four({', '.join(halves)})"
        found = f"let w = {name}[(P.{name}_ + place_{name}(at, i, k)) / 4u]; v = {found};"
        return f"{start} if (i < P.{lines} && k < last) {{ {found} }} return v; }}\n"
    for e in range(4):
        i, k = ("i", f"k + {e}u") if along else (f"i + {e}u", "k")
        text += f"if ({i} < P.{lines} && {k} < last) {{ v[{e}] = read_{name}(at, {i}, {k}); }}\n"
    return f"{READ.format(name)}{start}{text}return v; }}\n"


def _put(p: Product, place: str) -> str:
    """The functions of the product, and of what is written: put(at, i, j, v), or store of a vector along j."""
    text = f"alias T = {p.kinds[0].computed}; alias Four = vec4<T>; const NOWHERE = 0xffffffffu;\n{p.text}"
    text += f"fn result(at: u32, i: u32, j: u32, to: u32, v: T) -> T {{ return {p.result}; }}\n"
    if not p.quads[0]:
        puts = " ".join(f"put(at, i, j + {e}u, v[{e}]);" for e in range(4))
        return f"""{text}fn put(at: u32, i: u32, j: u32, v: T) {{
    if (i < P.m && j < P.n) {{ let to = {place}; put_o(to, result(at, i, j, to, v)); }} }}
fn store(at: u32, i: u32, j: u32, v: Four) {{ {puts} }}
"""
    each = [f"result(at, i, j + {e}u, to + {e}u, v[{e}])" for e in range(4)]
    if p.kinds[0].size == 2:
        encode = f"encode_{p.kinds[0].name}"
        each = [f"{encode}({low}) | {encode}({high}) << 16u" for low, high in (each[:2], each[2:])]
    return f"""{text}fn store(at: u32, i: u32, j: u32, v: Four) {{
    if (i < P.m && j < P.n) {{ let to = {place}; o[(P.o_ + to) / 4u] = vec{len(each)}({", ".join(each)}); }} }}
"""
