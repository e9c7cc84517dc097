"""Kernels that sum products, of matrices and convolutions: in tiles, or small ones element by element.

What differs between them is where the elements of their operands are. That is said by WGSL functions: of a product of
the batch at_a = base_a(index), place_a(at_a, i, k), and the same of b, (j, k), and o, (i, j).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from norch.backend import Kernel

from .devices import Runtime
from .dtypes import KINDS, Kind
from .source import WIDTH, Tensor, main
from .tiles import Tile, choose, tiled

FEW = 1 << 17
"""Up to so many terms, or a 32nd of that in each of many products, are added by an invocation for each element."""
NOWHERE = "0xffffffffu"
"""The place of a zero that is not in memory: padding."""


class Product(NamedTuple):
    """out[i, j] = sum of a[i, k] * b[j, k], `batch` times.

    kinds: of out, a and b, which are computed with as one type. along: whether a and b are best read along k, otherwise
    along i or j. quads: whether four elements of out (along j), a and b (as they are read) are neighbours in memory, if
    the offset is a multiple of 4. reads, writes: the functions of a and b, of o; help: what they call. adds: to out.
    """

    kinds: tuple[Kind, Kind, Kind]
    batch: int
    m: int
    n: int
    k: int
    along: tuple[bool, bool]
    quads: tuple[bool, bool, bool]
    reads: str
    writes: str
    numbers: Mapping[str, int]
    help: str = ""
    adds: bool = False

    @property
    def type(self) -> str:
        return self.kinds[0].computed

    @property
    def sums(self) -> Kind:
        return KINDS[{"f32": "float32", "i32": "int32", "i64": "int64"}[self.type]]


def tensor(name: str, kind: Kind, by_four: bool, written: bool = False) -> tuple[Tensor, str]:
    """An argument, and if it is accessed `by_four` the functions for that, where i and the offset are multiples of 4:
    quad_NAME(i) and put_quad_NAME(i, v)."""
    if not by_four:
        return Tensor(name, kind, written), ""
    four, word, found, given = f"vec4<{kind.computed}>", "vec2<u32>", "w", "v"
    if kind.per_word == 1:
        word = four
    else:
        halves = [f"decode_{kind.name}({w})" for w in ("w.x & 0xffffu", "w.x >> 16u", "w.y & 0xffffu", "w.y >> 16u")]
        pairs = [f"encode_{kind.name}(v.{low}) | encode_{kind.name}(v.{high}) << 16u" for low, high in ("xy", "zw")]
        found, given = f"{four}({', '.join(halves)})", f"vec2<u32>({', '.join(pairs)})"
    return (
        Tensor(name, kind, written, word),
        f"""
fn quad_{name}(i: u32) -> {four} {{ let w = {name}[(P.{name}_ + i) / 4u]; return {found}; }}
fn put_quad_{name}(i: u32, v: {four}) {{ {name}[(P.{name}_ + i) / 4u] = {given}; }}
""",
    )


def places(name: str, base: str, place: str) -> str:
    """The functions of an operand, from a body and an expression."""
    text = f"fn base_{name}(i: u32) -> u32 {{ {base} }}\n"
    return f"{text}fn place_{name}(at: u32, i: u32, k: u32) -> u32 {{ return {place}; }}\n"


def multiply(run: Runtime, p: Product) -> Kernel | None:
    """The kernel of a product, whose arguments are out, a and b."""
    if not p.batch * p.m * p.n:
        return lambda *args: None
    if p.m * p.n <= 64 and p.k >= 1024:
        return _whole(run, p, WIDTH)
    terms = p.m * p.n * p.k
    if terms * p.batch <= FEW or terms <= FEW // 32 or (p.m <= 2 and p.k <= 64):
        return _whole(run, p, 1)
    shared = min(d.limits["max-compute-workgroup-storage-size"] for d in run.devices)
    tile, splits = choose(p.m, p.n, p.k, p.batch, shared, p.type)
    can = [q and k.name in ("float32", "int32", "float16", "bfloat16") for q, k in zip(p.quads, p.kinds)]
    programs: dict[tuple[bool, ...], Any] = {}

    def call(*args: Any) -> None:
        key = tuple([q and at % 4 == 0 for q, at in zip(can, args[1:6:2])])
        if key not in programs:
            programs[key] = _tiles(run, p._replace(quads=key), tile, splits)  # type: ignore[arg-type]
        first, finish, nbytes = programs[key]
        if finish is None:
            first(*args)
            return
        scratch = args[0].device.pool.take(nbytes)
        first(scratch, 0, *args[2:])
        finish(*args[:2], scratch, 0)

    return call


def _tiles(run: Runtime, p: Product, tile: Tile, splits: int) -> tuple[Kernel | None, Kernel | None, int]:
    """The kernel that multiplies; the one that sums its parts and stores them, if it does not write the output itself;
    and the bytes of the parts."""
    parts = p.batch * p.m * p.n * p.sums.size
    splits = min(splits, run.devices[0].pool.most // parts) or 1
    direct = splits == 1 and (
        p.kinds[0].per_word == 1 or (p.quads[0] and not p.along[1]) or parts > run.devices[0].pool.most
    )
    chunk = max(-(-p.k // splits // tile.k) * tile.k, tile.k)
    tiles = tile.number(p.m, p.n)
    numbers = {"m": p.m, "n": p.n, "k": p.k, "across": -(-p.n // tile.n), "tiles": tiles, "chunk": chunk}
    numbers |= {"batch": p.batch, "groups": tiles * p.batch * splits, **p.numbers}
    by_four = not p.along[1] and (p.quads[0] if direct else p.n % 4 == 0)
    kinds = (p.kinds[0] if direct else p.sums, *p.kinds[1:])
    found = [tensor(*of, of[0] == "o") for of in zip("oab", kinds, (by_four, *p.quads[1:]))]
    writes, index = p.writes, "i"
    if not direct:
        writes, index = places("o", "return i;", "(at * P.m + i) * P.n + k"), "whole"
    setup = f"""if (group >= P.groups) {{ return; }}
    let row = group % P.tiles / P.across * {tile.m}u; let column = group % P.tiles % P.across * {tile.n}u;
    let whole = group / P.tiles; let part = whole / P.batch; let i = whole % P.batch;
    let first = part * P.chunk; let last = min(P.k, first + P.chunk);
    let at_a = base_a(i); let at_b = base_b(i); let at_o = base_o({index});"""
    source = f"alias T = {p.type}; alias Four = vec4<T>;\n" + "".join(text for _, text in found) + p.help + p.reads
    source += writes + _load("a", "m", p.along[0], p.quads[1]) + _load("b", "n", p.along[1], p.quads[2])
    source += _store(p, p.along[1], by_four, direct) + tiled(tile, p.type, p.along, setup)
    kernel = run.kernel([argument for argument, _ in found], source, numbers["groups"], numbers, trusted=True)
    return kernel, None if direct else _finish(run, p, splits), parts * splits


def _read(name: str) -> str:
    return f"""fn read_{name}(at: u32, i: u32, k: u32) -> T {{
    let p = place_{name}(at, i, k); if (p == {NOWHERE}) {{ return T(); }} return get_{name}(p); }}
"""


def _load(name: str, lines: str, along: bool, quads: bool) -> str:
    text = f"fn load_{name}(at: u32, i: u32, k: u32, last: u32) -> Four {{ var v = Four();\n"
    if quads:
        return f"{text}if (i < P.{lines} && k < last) {{ v = quad_{name}(place_{name}(at, i, k)); }} return v; }}\n"
    for e in range(4):
        i, k = ("i", f"k + {e}u") if along else (f"i + {e}u", "k")
        text += f"if ({i} < P.{lines} && {k} < last) {{ v[{e}] = read_{name}(at, {i}, {k}); }}\n"
    return f"{_read(name)}{text}return v; }}\n"


def _store(p: Product, single: bool, by_four: bool, adds: bool = True) -> str:
    """store(at, i, j, v): a number if `single`, else four along j."""
    text = f"fn store(at: u32, i: u32, j: u32, v: {'T' if single else 'Four'}) {{ if (i >= P.m) {{ return; }}\n"
    for e in range(1 if single or by_four else 4):
        plus = (" + quad_o(to)" if by_four else " + get_o(to)") if p.adds and adds else ""
        put, value = ("put_quad_o", "v") if by_four else ("put_o", "v" if single else f"v[{e}]")
        text += f"if (j + {e}u < P.n) {{ let to = place_o(at, i, j + {e}u); {put}(to, {value}{plus}); }}\n"
    return text + "}\n"


def _finish(run: Runtime, p: Product, splits: int) -> Kernel | None:
    """Sums the parts in their order and stores an element, or four of 16 bits, per invocation."""
    by_four = p.quads[0] and p.kinds[0].per_word == 2
    count = p.batch * p.m * p.n
    numbers = {"m": p.m, "n": p.n, "count": count, "splits": splits, **p.numbers}
    each, of, get = (4, "Four", "quad_s") if by_four else (1, "T", "get_s")
    found = [tensor("o", p.kinds[0], by_four, True), tensor("s", p.sums, by_four)]
    body = f"""let e = g * {each}u; if (e >= P.count) {{ return; }} var sum = {of}();
    for (var s = 0u; s < P.splits; s++) {{ sum += {get}(s * P.count + e); }}
    store(base_o(e / P.n / P.m), e / P.n % P.m, e % P.n, sum);"""
    source = f"alias T = {p.type}; alias Four = vec4<T>;\n" + "".join(text for _, text in found) + p.help + p.writes
    source += _store(p, not by_four, by_four) + main(body)
    return run.kernel([argument for argument, _ in found], source, -(-count // (WIDTH * each)), numbers)


def _whole(run: Runtime, p: Product, together: int) -> Kernel | None:
    """Each element of the output by one invocation, or by the `together` of a workgroup."""
    count = p.batch * p.m * p.n
    numbers = {"m": p.m, "n": p.n, "k": p.k, "count": count, **p.numbers}
    source = f"alias T = {p.type};\n{p.help}{p.reads}{p.writes}{_read('a')}{_read('b')}{_store(p, True, False)}"
    e, start, end = "g", "0u", ""
    if together > 1:
        source += f"var<workgroup> parts: array<T, {together}>;\n"
        e, start = "group", "l"
        end = f"""parts[l] = sum; workgroupBarrier();
    for (var half = {together // 2}u; half > 0u; half /= 2u) {{
        if (l < half) {{ parts[l] += parts[l + half]; }} workgroupBarrier();
    }}
    if (l > 0u) {{ return; }} sum = parts[0];"""
    body = f"""let e = {e}; if (e >= P.count) {{ return; }}
    let i = e / P.n / P.m; let row = e / P.n % P.m; let column = e % P.n; let at_a = base_a(i); let at_b = base_b(i);
    var sum = T();
    for (var k = {start}; k < P.k; k += {together}u) {{ sum += read_a(at_a, row, k) * read_b(at_b, column, k); }}
    {end} store(base_o(i), row, column, sum);"""
    arguments = [Tensor(name, kind, name == "o") for name, kind in zip("oab", p.kinds)]
    return run.kernel(arguments, source + main(body), count if together > 1 else -(-count // WIDTH), numbers)
