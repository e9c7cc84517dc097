"""The product of two matrices in tiles, which matmul and convolution share: the WGSL.

A workgroup computes a tile of the output from tiles of both operands in shared memory, an invocation a few rows and
columns of it in registers. While one part of the sum is computed the operands of the next are on their way.
"""

from typing import NamedTuple

from .source import main

SPLIT_BELOW = 128
"""Below so many workgroups a GPU has idle cores: smaller tiles are taken, then the sum is split among workgroups."""


class Tile(NamedTuple):
    """`m` rows and `n` columns of the output, `k` terms at a time; `rows` and `columns` of each invocation."""

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


LARGE, MIDDLE, SMALL = Tile(128, 128, 16, 8, 8), Tile(64, 64, 16, 8, 4), Tile(32, 32, 16, 4, 4)


def choose(m: int, n: int, k: int, batch: int, shared: int, computed: str) -> tuple[Tile, int]:
    """A tile for products of m * k by k * n in `shared` bytes, and among how many workgroups each sum is split."""
    fit = [t for t in (LARGE, MIDDLE) if (t.m + t.n + 4) * t.k * (8 if computed == "i64" else 4) <= shared]
    tile = next((t for t in fit if t.number(m, n) * batch >= SPLIT_BELOW), SMALL)
    groups = max(tile.number(m, n) * batch, 1)
    return tile, max(1, min(-(-SPLIT_BELOW // groups), k // 256))


def tiled(tile: Tile, of: str, along_k: tuple[bool, bool], setup: str) -> str:
    """An entry point that computes a tile of out[i, j] = sum of a[i, k] * b[j, k] over first <= k < last.

    `setup` declares row and column, the tile's first, and first, last, at_a, at_b and at_o. The text before it has
    `load_a(at, i, k, last)` and `load_b(at, j, k, last)`, which give four elements, with increasing k where `along_k`
    and else with increasing i or j, zeros out of range, and `store(at, i, j, v)` of a vector, v of columns j to j + 3,
    or for b along k of a number.
    """
    shared = ""
    for name, size, along in zip(("left", "right"), tile[:2], along_k):
        count = tile.k // 4 * (size + 2 * along)  # with room, so that few banks are asked twice
        shared += f"var<workgroup> {name}: array<vec4<{of}>, {count}>;\n"
    return shared + main(f"{setup}\n{_body(tile, of, along_k)}", tile.width)


def _body(tile: Tile, of: str, along_k: tuple[bool, bool]) -> str:
    four, quads = f"vec4<{of}>", tile.k // 4
    across = tile.n // tile.columns
    fetch, keep, names = "", "", ""
    for side, shared, size, along, start in zip("ab", ("left", "right"), tile[:2], along_k, ("row", "column")):
        for s in range(size * quads // tile.width):
            u = f"(l + {s * tile.width}u)"
            if along:
                line, k, at = (
                    f"{u} / {quads}u",
                    f"{u} % {quads}u * 4u",
                    f"{u} % {quads}u * {size + 2}u + {u} / {quads}u",
                )
            else:
                line, k, at = f"{u} % {size // 4}u * 4u", f"{u} / {size // 4}u", u
            names += f"var {side}{s}: {four}; let {side}_line{s} = {start} + {line}; let {side}_at{s} = {at};\n"
            fetch += f"{side}{s} = load_{side}(at_{side}, {side}_line{s}, start + {k}, last);\n"
            keep += f"{shared}[{side}_at{s}] = {side}{s};\n"
    sums = "".join(f"var c{r}_{g}: {four}; " for r in range(tile.rows) for g in range(tile.columns // 4))
    terms = f"for (var q = 0u; q < {quads}u; q++) {{\n{_terms(tile, of, along_k)}}}"
    return f"""let x = l % {across}u; let y = l / {across}u;
    {sums}
    {names}
    var start = first;
    loop {{ // the next terms are on their way while those in shared memory are added
        {fetch}
        if (start > first) {{ {terms} }}
        if (start >= last) {{ break; }}
        workgroupBarrier();
        {keep}
        workgroupBarrier();
        start += {tile.k}u;
    }}
    {_stores(tile, along_k)}"""


def _terms(tile: Tile, of: str, along_k: tuple[bool, bool]) -> str:
    """Adds the four terms of `q` to each sum."""
    across, down = tile.n // tile.columns, tile.m // tile.rows
    text = ""
    sides = (("a", "left", "y", tile.m, tile.rows, down), ("b", "right", "x", tile.n, tile.columns, across))
    for along, (side, shared, place, size, count, step) in zip(along_k, sides):
        text += f"let {side}_q = q * {size + 2 * along}u + {place};\n"
        for r in range(count):
            d, g = r % 4, r // 4
            name, at = (f"{r}", r * step) if along else (f"{g}_{d}", d * size // 4 + g * step)
            text += f"let {side}{name} = {shared}[{side}_q + {at}u];\n"
    for d, e in enumerate("xyzw"):
        for g in range(tile.columns // 4):
            b = f"vec4<{of}>({', '.join(f'b{4 * g + j}.{e}' for j in range(4))})" if along_k[1] else f"b{g}_{d}"
            for r in range(tile.rows):
                a = f"a{r}.{e}" if along_k[0] else f"a{r // 4}_{d}.{'xyzw'[r % 4]}"
                c = f"c{r}_{g}"
                value = f"fma(vec4<f32>({a}), {b}, {c})" if of == "f32" else f"{c} + {a} * {b}"
                text += f"{c} = {value};\n"
    return text


def _stores(tile: Tile, along_k: tuple[bool, bool]) -> str:
    across, down = tile.n // tile.columns, tile.m // tile.rows
    text = ""
    for r in range(tile.rows):
        i = f"row + y + {r * down}u" if along_k[0] else f"row + 4u * (y + {r // 4 * down}u) + {r % 4}u"
        for g in range(tile.columns // 4):
            if not along_k[1]:
                text += f"store(at_o, {i}, column + 4u * (x + {g * across}u), c{r}_{g});\n"
                continue
            for j, e in enumerate("xyzw"):
                text += f"store(at_o, {i}, column + x + {(4 * g + j) * across}u, c{r}_{g}.{e});\n"
    return text
