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
    the offset is a multiple of 4. text: the functions. adds: to what out is.
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
    adds: bool = False


def places(name: str, base: str, place: str) -> str:
    """The functions of an operand, from a body and an expression."""
    text = f"fn base_{name}(i: u32) -> u32 {{ {base} }}\n"
    return f"{text}fn place_{name}(at: u32, i: u32, k: u32) -> u32 {{ return {place}; }}\n"


def multiply(run: Runtime, p: Product) -> Kernel | None:
    """The kernel of a product, whose arguments are out, a and b."""
    terms = p.m * p.n * p.k
    if terms * p.batch <= FEW or terms <= FEW // 32 or (p.m <= 2 and p.k <= 64):
        return _single(run, p)
    shared = min(d.limits["max-compute-workgroup-storage-size"] for d in run.devices)
    tile, splits = choose(p.m, p.n, p.k, p.batch, shared, p.kinds[0].computed)
    sums = KINDS[{"f32": "float32", "i32": "int32", "i64": "int64"}[p.kinds[0].computed]]
    parts = p.batch * p.m * p.n * sums.size
    splits = min(splits, run.devices[0].pool.most // parts) or 1
    can = [q and k.name in ("float32", "int32") for q, k in zip(p.quads, p.kinds)]
    programs: dict[tuple[bool, ...], Kernel | None] = {}
    finish = _finish(run, p, sums, splits) if splits > 1 else None

    def call(*args: Any) -> None:
        key = tuple([q and at % 4 == 0 for q, at in zip(can, args[1::2])])
        if key not in programs:
            programs[key] = _tiles(run, p, key, sums if finish else p.kinds[0], tile, splits)
        multiplied: Any = programs[key]
        if finish is None:
            multiplied(*args)
            return
        scratch = args[0].device.pool.take(splits * parts)
        multiplied(scratch, 0, *args[2:])
        finish(*args[:2], scratch, 0)

    return call


def _tiles(run: Runtime, p: Product, quads: tuple[bool, ...], out: Kind, tile: Tile, splits: int) -> Kernel | None:
    """The kernel that multiplies; if sums are split it writes the parts, one after the other."""
    chunk, tiles = max(-(-p.k // splits // tile.k) * tile.k, tile.k), tile.number(p.m, p.n)
    numbers = {"m": p.m, "n": p.n, "k": p.k, "across": -(-p.n // tile.n), "tiles": tiles, "chunk": chunk}
    numbers |= {"batch": p.batch, "groups": tiles * p.batch * splits, **p.numbers}
    by_four = quads[0] if splits == 1 else p.n % 4 == 0
    place = "place_o(at, i, j)" if splits == 1 else "(at * P.m + i) * P.n + j"
    source, arguments = f"alias T = {out.computed}; alias Four = vec4<T>;\n{p.text}", []
    for name, kind, fours in zip("oab", (out, *p.kinds[1:]), (by_four, *quads[1:])):
        arguments.append(Tensor(name, kind, name == "o", "vec4<T>" if fours else ""))
    source += _load("a", "m", p.along[0], quads[1]) + _load("b", "n", p.along[1], quads[2])
    source += _store(place, False, by_four, p.adds and splits == 1)
    setup = f"""if (group >= P.groups) {{ return; }}
    let row = group % P.tiles / P.across * {tile.m}u; let column = group % P.tiles % P.across * {tile.n}u;
    let whole = group / P.tiles; let part = whole / P.batch; let i = whole % P.batch;
    let first = part * P.chunk; let last = min(P.k, first + P.chunk);
    let at_a = base_a(i); let at_b = base_b(i); let at_o = {"base_o(i)" if splits == 1 else "whole"};"""
    source += tiled(tile, out.computed, p.along, setup)
    return run.kernel(arguments, source, numbers["groups"], numbers, trusted=True)


def _read(name: str) -> str:
    return f"""fn read_{name}(at: u32, i: u32, k: u32) -> T {{
    let p = place_{name}(at, i, k); if (p == {NOWHERE}) {{ return T(); }} return get_{name}(p); }}
"""


def _load(name: str, lines: str, along: bool, quads: bool) -> str:
    text = f"fn load_{name}(at: u32, i: u32, k: u32, last: u32) -> Four {{ var v = Four();\n"
    if quads:
        found = f"v = {name}[(P.{name}_ + place_{name}(at, i, k)) / 4u];"
        return f"{text}if (i < P.{lines} && k < last) {{ {found} }} return v; }}\n"
    for e in range(4):
        i, k = ("i", f"k + {e}u") if along else (f"i + {e}u", "k")
        text += f"if ({i} < P.{lines} && {k} < last) {{ v[{e}] = read_{name}(at, {i}, {k}); }}\n"
    return f"{_read(name)}{text}return v; }}\n"


def _store(place: str, single: bool, by_four: bool, adds: bool) -> str:
    """store(at, i, j, v): a number if `single`, else four along j."""
    text = f"fn put(at: u32, i: u32, j: u32, v: {'Four' if by_four else 'T'}) {{\n"
    text += f"if (i < P.m && j < P.n) {{ let to = {place};\n"
    if by_four:
        text += f"o[(P.o_ + to) / 4u] = v{' + o[(P.o_ + to) / 4u]' if adds else ''}; }} }}\n"
    else:
        text += f"put_o(to, v{' + get_o(to)' if adds else ''}); }} }}\n"
    puts = "put(at, i, j, v);" if single or by_four else " ".join(f"put(at, i, j + {e}u, v[{e}]);" for e in range(4))
    return f"{text}fn store(at: u32, i: u32, j: u32, v: {'T' if single else 'Four'}) {{ {puts} }}\n"


def _finish(run: Runtime, p: Product, sums: Kind, splits: int) -> Kernel | None:
    """Adds up the parts in their order."""
    numbers = {"m": p.m, "n": p.n, "count": p.batch * p.m * p.n, "splits": splits, **p.numbers}
    body = """let e = g; if (e >= P.count) { return; } var sum = T();
    for (var s = 0u; s < P.splits; s++) { sum += get_s(s * P.count + e); }
    store(base_o(e / P.n / P.m), e / P.n % P.m, e % P.n, sum);"""
    source = f"alias T = {sums.computed};\n{p.text}{_store('place_o(at, i, j)', True, False, p.adds)}{main(body)}"
    arguments = [Tensor("o", p.kinds[0], True), Tensor("s", sums)]
    return run.kernel(arguments, source, -(-numbers["count"] // WIDTH), numbers)


def _single(run: Runtime, p: Product) -> Kernel | None:
    """Each element of the output by one invocation."""
    numbers = {"m": p.m, "n": p.n, "k": p.k, "count": p.batch * p.m * p.n, **p.numbers}
    source = f"alias T = {p.kinds[0].computed};\n{p.text}{_read('a')}{_read('b')}"
    body = """if (g >= P.count) { return; } let i = g / P.n / P.m; let row = g / P.n % P.m; let column = g % P.n;
    let at_a = base_a(i); let at_b = base_b(i); var sum = T();
    for (var k = 0u; k < P.k; k++) { sum += read_a(at_a, row, k) * read_b(at_b, column, k); }
    store(base_o(i), row, column, sum);"""
    source += _store("place_o(at, i, j)", True, False, p.adds) + main(body)
    arguments = [Tensor(name, kind, name == "o") for name, kind in zip("oab", p.kinds)]
    return run.kernel(arguments, source, -(-numbers["count"] // WIDTH), numbers)
