"""Kernels that sum products, of matrices (matmul) and convolutions: in tiles, or small ones element by element.

What differs between them is where the elements of their operands are. That is said by WGSL functions: of a product of
the batch at_a = base_a(index), place_a(at_a, i, k), and the same of b, (j, k), and o, (i, j).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from norch.backend import Kernel, Operand

from .devices import Runtime, sequence
from .dtypes import KINDS, Attrs, Kind, Operands, kind
from .source import Tensor, Walk, main

FEW = 1 << 17
"""Up to so many terms, or a 32nd of that in each of many products, are added by an invocation for each element; whole
numbers always."""
# NOWHERE is the place of a zero that is not in memory: padding.
READ = """fn read_{0}(at: u32, i: u32, k: u32) -> T {{
    let p = place_{0}(at, i, k); if (p == NOWHERE) {{ return T(); }} return get_{0}(p); }}
"""
BUSY = 1024
"""So many workgroups keep a GPU busy: where there are fewer tiles, smaller ones are taken or sums split."""


class Tile(NamedTuple):
    """`m` rows and `n` columns of the output, `k` terms at a time; `rows` and `columns` of each invocation, which
    fetches a block of 4 by 4 of one operand: so there are as many invocations as blocks."""

    m: int
    n: int
    k: int
    rows: int
    columns: int

    @property
    def width(self) -> int:
        return self.m // self.rows * (self.n // self.columns)

    def number(self, m: int, n: int) -> int:
        return -(-m // self.m) * -(-n // self.n)


LARGE, SMALL = Tile(64, 64, 16, 8, 4), Tile(32, 32, 16, 4, 4)


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


def multiply(run: Runtime, p: Product) -> Any:
    """The kernel of a product, whose arguments are out, a, b and what is read besides."""
    terms, given = p.m * p.n * p.k, [Tensor(name, k) for name, k in zip("ab", p.kinds[1:])]
    is_small = terms * p.batch <= FEW or terms <= FEW // 32 or (p.m <= 2 and p.k <= 64)
    if is_small or not p.kinds[0].is_floating:
        term = "read_a(base_a(i), row, k) * read_b(base_b(i), column, k)"
        return _elements(run, p, [*given, *p.more], READ.format("a") + READ.format("b"), term, p.k)
    tile, splits = choose(p.m, p.n, p.k, p.batch)
    sums, parts = KINDS["float32"], 4 * p.batch * p.m * p.n
    splits = min(splits, run.devices[0].pool.most // parts) or 1
    whole = p
    if splits > 1:
        whole = p._replace(kinds=(sums, *p.kinds[1:]), quads=(p.n % 4 == 0, *p.quads[1:]), result="v", more=())
    can = [q and k.size in (2, 4) for q, k in zip(whole.quads, whole.kinds)]
    can[0] &= "get_o" not in whole.result
    programs: dict[tuple[bool, ...], Any] = {}

    def call(*args: Any) -> None:
        key = tuple([q and at % 4 == 0 for q, at in zip(can, args[1::2])])
        if key not in programs:
            programs[key] = _tiles(run, whole._replace(quads=key), tile, splits)
        programs[key](*args)

    if splits == 1:
        return call
    finish = _elements(run, p, [Tensor("s", sums), *p.more], "", "get_s(k * P.e_count + e)", splits)
    more = [tensor.name for tensor in p.more]
    return sequence([*"oab", *more], [(call, "sab"), (finish, [*"os", *more])], {"s": splits * parts})


def choose(m: int, n: int, k: int, batch: int) -> tuple[Tile, int]:
    """A tile for products of m * k by k * n, and among how many workgroups each sum is split."""
    most = max(1, k // 256)
    tile = LARGE if min(m, n) > SMALL.m and LARGE.number(m, n) * batch * most >= BUSY else SMALL
    return tile, max(1, min(most, BUSY // (tile.number(m, n) * batch)))


def matmul(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    return multiply(run, product(*operands[:2], turned(operands[2])))


def turned(o: Operand) -> Operand:
    """The transposed matrices."""
    shape, strides = ((*each[:-2], each[-1], each[-2]) for each in (o.shape, o.strides))
    return o._replace(shape=shape, strides=strides)


def product(out: Operand, a: Operand, b: Operand, *mask: Operand) -> Product:
    """out = a @ b.mT, where the batch dims of all are those of `out`; a mask has elements m for a result to read."""
    text, numbers = "", dict[str, int]()
    for name, x in zip("oabm", (out, a, b, *mask)):
        walk = Walk(name, out.shape[:-2], [x.strides[:-2]], bake=False, index=f"{name}i")
        numbers |= {f"{name}_line": x.strides[-2], f"{name}_other": x.strides[-1], **walk.numbers}
        base = f"let {name}i = i; {walk.code()} return at_{name};"
        text += places(name, base, f"at + i * P.{name}_line + k * P.{name}_other")
    along = [x.strides[-1] == 1 or x.strides[-2] != 1 for x in (a, b)]
    quads = [_has_quads(x if is_along else turned(x)) for x, is_along in ((out, True), (a, along[0]), (b, along[1]))]
    sizes = prod(out.shape[:-2]), *out.shape[-2:], a.shape[-1]
    more = tuple([Tensor("m", kind(m)) for m in mask])
    return Product((kind(out), kind(a), kind(b)), *sizes, along, quads, text, numbers, "v", more)


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
    shared, body = _tile(tile, p.along)
    source += shared + main(f"{setup}\n{body}", tile.width)
    return run.kernel([*arguments, *p.more], source, numbers["groups"], numbers)


def _tile(tile: Tile, along_k: tuple[bool, bool]) -> tuple[str, str]:
    """Shared memory, and what computes the tile from row and column on, of terms first to last. A workgroup computes it
    from tiles of both operands in shared memory, an invocation a few rows and columns of it in registers."""
    across, down, quads = tile.n // tile.columns, tile.m // tile.rows, tile.k // 4
    shared, places, fetch, keep = "", [], [], []
    for side, name, size, along in zip("ab", ("left", "right"), tile[:2], along_k):
        pitch = size // 4 + 1  # one more than there are, so that few banks are asked twice
        shared += f"var<workgroup> {name}: array<vec4<f32>, {tile.k * pitch}>;\n"
        places.append(f"vec2(u / {quads}u, u % {quads}u)" if along else f"vec2(u % {size // 4}u, u / {size // 4}u)")
        each = [(f"line + {e}u", "start + k") if along else ("line", f"start + k + {e}u") for e in range(4)]
        fetch.append(" ".join(f"v{e} = load_{side}(at_{side}, {i}, {k}, last);" for e, (i, k) in enumerate(each)))
        quad = [f"vec4<f32>(v0.{e}, v1.{e}, v2.{e}, v3.{e})" for e in "xyzw"] if along else ["v0", "v1", "v2", "v3"]
        keep.append(" ".join(f"{name}[(k + {e}u) * {pitch}u + block.x] = {quad[e]};" for e in range(4)))
    sums = [(r, g) for r in range(tile.rows) for g in range(tile.columns // 4)]
    terms = [f"let a{g} = left[q * {tile.m // 4 + 1}u + y + {g * down}u];" for g in range(tile.rows // 4)]
    terms += [f"let b{g} = right[q * {tile.n // 4 + 1}u + x + {g * across}u];" for g in range(tile.columns // 4)]
    for r, g in sums:
        terms.append(f"c{r}_{g} = fma(vec4(a{r // 4}.{'xyzw'[r % 4]}), b{g}, c{r}_{g});")
    first = tile.m * quads // 4  # those before it fetch blocks of a
    body = f"""let is_left = l < {first}u; let u = l - select({first}u, 0u, is_left);
    let x = l % {across}u; let y = l / {across}u; let block = select({places[1]}, {places[0]}, is_left);
    let line = select(column, row, is_left) + block.x * 4u; let k = block.y * 4u;
    var v0: vec4<f32>; var v1: vec4<f32>; var v2: vec4<f32>; var v3: vec4<f32>;
    {" ".join(f"var c{r}_{g}: vec4<f32>;" for r, g in sums)}
    var start = first;
    loop {{ // the next terms are on their way while those in shared memory are added
        if (is_left) {{ {fetch[0]} }} else {{ {fetch[1]} }}
        if (start > first) {{ for (var q = 0u; q < {tile.k}u; q++) {{ {" ".join(terms)} }} }}
        if (start >= last) {{ break; }}
        workgroupBarrier();
        if (is_left) {{ {keep[0]} }} else {{ {keep[1]} }}
        workgroupBarrier();
        start += {tile.k}u;
    }}
    """
    for r, g in sums:
        i = f"row + 4u * (y + {r // 4 * down}u) + {r % 4}u"
        body += f"store(at_o, {i}, column + 4u * (x + {g * across}u), c{r}_{g});\n"
    return shared, body


def _elements(run: Runtime, p: Product, given: Sequence[Tensor], text: str, term: str, terms: int) -> Kernel | None:
    """Each element of the output by one invocation, which adds its terms."""
    body = f"""let i = e / P.n / P.m; let row = e / P.n % P.m; let column = e % P.n; var sum = T();
    for (var k = 0u; k < P.terms; k++) {{ sum += {term}; }}
    put(base_o(i), row, column, sum);"""
    numbers = {"m": p.m, "n": p.n, "terms": terms, **p.numbers}
    text += _put(p._replace(quads=(False,) * 3), "place_o(at, i, j)")
    walk = Walk("", (p.batch * p.m * p.n,), [], "e")
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
