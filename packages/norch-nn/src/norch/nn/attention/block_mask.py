"""Masks of attention by blocks: which blocks of queries and keys meet, and a function of their indices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import norch

_DEFAULT_SPARSE_BLOCK_SIZE = 128

MaskMod = Callable[..., Any]
"""mask_mod(b, h, q_idx, kv_idx): of 0-d tensors, a 0-d tensor of bool, True where the query may attend to the key."""


def over_indices(
    function: Callable[..., Any], sizes: tuple[int, int, int, int], device: Any, *scores: norch.Tensor
) -> norch.Tensor:
    """What a function of 0-d tensors gives for each score, if any, and its indices in the four dims `sizes`."""
    prefix = (0,) * len(scores)
    for dim in (3, 2, 1, 0):
        function = norch.vmap(function, in_dims=(*prefix, *(0 if dim == other else None for other in range(4))))
    found: norch.Tensor = function(*scores, *(norch.arange(size, device=device) for size in sizes))
    return found


def noop_mask(b: norch.Tensor, h: norch.Tensor, q_idx: norch.Tensor, kv_idx: norch.Tensor) -> norch.Tensor:
    """A mask_mod that masks nothing: True, 0-d, for every `b`, `h`, `q_idx` and `kv_idx`."""
    return b.new_ones((), dtype=norch.bool)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask_mod that allows what all of `mask_mods` allow. Raises TypeError for what cannot be called."""
    _check_callable(mask_mods)

    def and_mask(b: norch.Tensor, h: norch.Tensor, q_idx: norch.Tensor, kv_idx: norch.Tensor) -> norch.Tensor:
        result = b.new_ones((), dtype=norch.bool)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask_mod that allows what any of `mask_mods` allows. Raises TypeError for what cannot be called."""
    _check_callable(mask_mods)

    def or_mask(b: norch.Tensor, h: norch.Tensor, q_idx: norch.Tensor, kv_idx: norch.Tensor) -> norch.Tensor:
        result = b.new_zeros((), dtype=norch.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_callable(mask_mods: tuple[MaskMod, ...]) -> None:
    if not all(map(callable, mask_mods)):
        raise TypeError(f"every mask_mod should be callable: {mask_mods}")


def sliced_mask(b: norch.Tensor, h: norch.Tensor, q_idx: norch.Tensor, kv_idx: norch.Tensor) -> norch.Tensor:
    """The mask_mod of a part of a BlockMask. Raises RuntimeError."""
    raise RuntimeError("the mask_mod of a part of a BlockMask is not known: set it, made of that of the whole one")


def _takes_scores(mod_fn: Callable[..., Any]) -> bool:
    """Whether a function of five arguments, not four."""
    given = inspect.signature(mod_fn).parameters.values()
    count = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given)
    if count not in (4, 5):
        raise TypeError(f"a mask_mod takes 4 arguments and a score_mod 5; {mod_fn} takes {count}")
    return count == 5


def create_mask(
    mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> norch.Tensor:
    """The mask of shape (B, H, Q_LEN, KV_LEN), of bool, that a mask_mod describes, or a score_mod: True where it does
    not make 0 to -inf.

    mod_fn: of 0-d tensors, mask_mod(b, h, q_idx, kv_idx) or score_mod(score, b, h, q_idx, kv_idx). B, H: 1 for None.
    Raises TypeError for a function of other arguments.
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    if _takes_scores(mod_fn):
        return over_indices(mod_fn, sizes, device, norch.zeros(sizes, device=device)) != -float("inf")
    return over_indices(mod_fn, sizes, device)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The BlockMask of shape (B, H, Q_LEN, KV_LEN) of a mask_mod, as of `create_mask`, with its tensors on `device`.

    BLOCK_SIZE: of queries and keys. separate_full_blocks: whether blocks of which nothing is masked are listed
    apart, for which the function is not asked again. Raises TypeError for a score_mod.
    """
    if _takes_scores(mask_mod):
        raise TypeError("create_block_mask(): it takes a mask_mod, of 4 arguments, and no score_mod")
    rows, columns = sizes = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = norch.nn.functional.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    counts = mask.unflatten(3, (-1, columns)).unflatten(2, (-1, rows)).sum((3, 5))
    some, full = counts > 0, counts == rows * columns
    if not separate_full_blocks:
        return BlockMask.from_kv_blocks(*_ordered(some), None, None, sizes, mask_mod, (Q_LEN, KV_LEN))
    return BlockMask.from_kv_blocks(*_ordered(some & ~full), *_ordered(full), sizes, mask_mod, (Q_LEN, KV_LEN))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _ordered(dense: norch.Tensor) -> tuple[norch.Tensor, norch.Tensor]:
    """Of each row how many blocks there are, and their columns first, then the others."""
    dense = dense.to(norch.int32)
    columns = dense.argsort(dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(norch.int32), columns.to(norch.int32)


def _dense(counts: norch.Tensor, columns: norch.Tensor) -> norch.Tensor:
    """Of shape (…, rows, columns) and int32: 1 where there is a block."""
    size, columns = columns.shape[-1], columns.to(norch.int64)
    listed = (norch.arange(size, device=columns.device) < counts.unsqueeze(-1)).to(norch.int32)
    return norch.zeros_like(listed).scatter_add(-1, columns, listed).clamp(max=1)


_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


class BlockMask:
    """A mask of attention by blocks, made by `create_block_mask`.

    seq_lengths: of queries and keys. kv_num_blocks, kv_indices: of each row of blocks how many there are, (…, rows),
    and which, (…, rows, columns), for which mask_mod is asked; full_kv_num_blocks, full_kv_indices: those of which
    nothing is masked. q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: the same by columns. BLOCK_SIZE: of
    queries and keys. mask_mod: as of `create_mask`. Blocks that are not listed are masked. Raises ShapeError for
    kv_indices of fewer than 2 dims, ValueError for counts or indices of full blocks alone.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: norch.Tensor,
        kv_indices: norch.Tensor,
        full_kv_num_blocks: norch.Tensor | None = None,
        full_kv_indices: norch.Tensor | None = None,
        q_num_blocks: norch.Tensor | None = None,
        q_indices: norch.Tensor | None = None,
        full_q_num_blocks: norch.Tensor | None = None,
        full_q_indices: norch.Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod = noop_mask,
    ) -> None:
        if kv_indices.ndim < 2:
            raise norch.ShapeError(f"BlockMask: kv_indices {tuple(kv_indices.shape)} must have at least 2 dims")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ValueError("BlockMask: full_kv_num_blocks and full_kv_indices come together")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = _pair(BLOCK_SIZE)
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: norch.Tensor,
        kv_indices: norch.Tensor,
        full_kv_num_blocks: norch.Tensor | None = None,
        full_kv_indices: norch.Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """The BlockMask of these blocks of keys, (…, rows, columns). compute_q_blocks: by columns too."""
        rows, columns = sizes = _pair(BLOCK_SIZE)
        if kv_indices.ndim < 2:
            raise norch.ShapeError(f"BlockMask: kv_indices {tuple(kv_indices.shape)} must have at least 2 dims")
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * rows, kv_indices.shape[-1] * columns)
        by_rows = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        found: list[norch.Tensor | None] = [*by_rows, None, None, None, None]
        if compute_q_blocks:
            found[4:6] = _ordered(_dense(kv_num_blocks, kv_indices).mT)
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                found[6:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices).mT)
        tensors: dict[str, Any] = dict(zip(_TENSORS, found))
        return cls(seq_lengths, **tensors, BLOCK_SIZE=sizes, mask_mod=mask_mod or noop_mask)

    def _tensors(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TENSORS}

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All that it is made of: lengths, tensors, sizes of blocks and mask_mod; numbers apart if `flatten`."""
        if flatten:
            return (*self.seq_lengths, *self._tensors().values(), *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *self._tensors().values(), self.BLOCK_SIZE, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many elements the whole mask has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def sparsity(self) -> float:
        """How much of it, in percent, lies in blocks that are masked."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> norch.Tensor:
        """Of shape (…, rows, columns) and int32: 1 where a block is not masked."""
        found = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            found = found | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return found

    def mask(self, sizes: tuple[int, int, int, int]) -> norch.Tensor:
        """The mask of each element, of bool, which broadcasts to `sizes`: (B, H, queries, keys)."""
        found = over_indices(self.mask_mod, sizes, self.kv_indices.device)
        for dim in (0, 1):
            if found.stride(dim) == 0:  # the same for all, and need not be kept for each
                found = found.narrow(dim, 0, 1)
        found = found & self._of_elements(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            found = found | self._of_elements(self.full_kv_num_blocks, self.full_kv_indices)
        return found

    def _of_elements(self, counts: norch.Tensor, columns: norch.Tensor) -> norch.Tensor:
        dense, (rows, size) = _dense(counts, columns) > 0, self.seq_lengths
        dense = dense.repeat_interleave(self.BLOCK_SIZE[0], -2).repeat_interleave(self.BLOCK_SIZE[1], -1)
        return dense[..., :rows, :size]

    def __getitem__(self, index: Any) -> BlockMask:
        given = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, int) and not -n <= i < n for i, n in zip(given, self.kv_num_blocks.shape)):
            raise IndexError(f"index {index} of a BlockMask of shape {self.shape}")
        kept = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in given)  # dims stay
        parts = {name: value if value is None else value[kept] for name, value in list(self._tensors().items())[:4]}
        return self._of_rows(parts, sliced_mask, self.seq_lengths)

    def _of_rows(self, tensors: dict[str, Any], mask_mod: MaskMod, lengths: tuple[int, int]) -> BlockMask:
        """The BlockMask of these by rows, and like this one by columns too."""
        rows = {name: tensors[name] for name in _TENSORS[:4]}
        by_columns = self.q_indices is not None
        return self.from_kv_blocks(
            **rows, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=mask_mod, seq_lengths=lengths, compute_q_blocks=by_columns
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Its upper left part."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])
        if rows > self.kv_indices.shape[-2] or columns > self.kv_indices.shape[-1]:
            raise norch.ShapeError(f"a BlockMask of shape {self.shape} has no ({new_q_len}, {new_kv_len}) in it")
        parts = self._tensors()
        for counts, indices in (_TENSORS[:2], _TENSORS[2:4]):
            if parts[counts] is not None:
                kept = _dense(parts[counts], parts[indices])[..., :rows, :columns]
                parts[counts], parts[indices] = _ordered(kept)
        return self._of_rows(parts, self.mask_mod, (new_q_len, new_kv_len))

    def to(self, device: Any) -> BlockMask:
        """The same with its tensors on `device`."""
        moved: dict[str, Any] = {
            name: value if value is None else value.to(device) for name, value in self._tensors().items()
        }
        return BlockMask(self.seq_lengths, **moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def __repr__(self) -> str:
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        sizes = f"shape={self.shape}, sparsity={self.sparsity():.2f}%, BLOCK_SIZE={self.BLOCK_SIZE}"
        return f"BlockMask({sizes}, mask_mod={name})"
