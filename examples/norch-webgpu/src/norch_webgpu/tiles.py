"""The product of two matrices in tiles, which matmul and convolution share: the WGSL.

A workgroup computes a tile of the output from tiles of both operands in shared memory, an invocation a few rows and
columns of it in registers. While one part of the sum is computed the operands of the next are on their way.
"""

from typing import NamedTuple

from .source import main

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


def choose(m: int, n: int, k: int, batch: int) -> tuple[Tile, int]:
    """A tile for products of m * k by k * n, and among how many workgroups each sum is split."""
    most = max(1, k // 256)
    tile = LARGE if min(m, n) > SMALL.m and LARGE.number(m, n) * batch * most >= BUSY else SMALL
    return tile, max(1, min(most, BUSY // (tile.number(m, n) * batch)))


def tiled(tile: Tile, along_k: tuple[bool, bool], setup: str) -> str:
    """An entry point that computes a tile of out[i, j] = sum of a[i, k] * b[j, k] over first <= k < last.

    `setup` declares row and column, the tile's first, and first, last, at_a, at_b and at_o. The text before it has
    `load_a(at, i, k, last)` and `load_b(at, j, k, last)`, which give four elements, with increasing k where `along_k`
    and else with increasing i or j, zeros out of range, and `store(at, i, j, v)` of a vector of columns j to j + 3.
    """
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
    body = f"""{setup}
    let x = l % {across}u; let y = l / {across}u; let is_left = l < {first}u; let u = l - select({first}u, 0u, is_left);
    let block = select({places[1]}, {places[0]}, is_left);
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
    return shared + main(body, tile.width)
