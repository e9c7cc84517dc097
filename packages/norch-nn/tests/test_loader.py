"""DataLoader: the order and form of batches, and that nothing depends on the workers. Without failures."""

from __future__ import annotations

import threading
from typing import Any

import loader_datasets as samples
import numpy as np
import pytest
from loader_runs import KINDS, THREADS, epoch, listed

import norch
from norch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
    sample_rng,
)

# --- Batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 6, 7])
@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["none", "2 threads"])
def test_sizes(length: int, size: int, drop_last: bool, kind: str) -> None:
    loader = DataLoader(range(length), size, drop_last=drop_last, **KINDS[kind])
    full = [list(range(i, min(i + size, length))) for i in range(0, length, size)]
    expected = [b for b in full if len(b) == size or not drop_last]
    assert epoch(loader) == expected
    assert len(loader) == len(expected)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"batch_size": 4},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": [[0, 2], [5], [1, 1]]},
        {"batch_size": 3, "sampler": [4, 2, 9, 0]},
        {"batch_size": None, "sampler": [[0, 1], [2, 3]]},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["none", "2 threads"])
def test_beside_pytorch(kwargs: dict[str, Any], kind: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.utils.data")
    values = np.arange(33, dtype=np.float32).reshape(11, 3)
    ours = DataLoader(TensorDataset(norch.tensor(values), norch.arange(11)), **kwargs, **KINDS[kind])
    other = theirs.DataLoader(theirs.TensorDataset(torch.tensor(values), torch.arange(11)), **kwargs)
    assert len(ours) == len(other)
    for a, b in zip(ours, other, strict=True):
        assert type(a) is type(b)
        assert [t.tolist() for t in a] == [t.tolist() for t in b]
        assert [str(t.dtype).split(".")[-1] for t in a] == [str(t.dtype).split(".")[-1] for t in b]
    for name in ("batch_size", "drop_last", "num_workers", "prefetch_factor", "pin_memory", "timeout"):
        if kind == "none":
            assert getattr(ours, name) == getattr(other, name), name


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [None, 2, 3])
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_streams_beside_pytorch(drop_last: bool, size: int | None, workers: int) -> None:
    """PyTorch's order of batches where workers share a stream, which is written out: its workers are processes."""
    if size is None and drop_last:
        return
    loader = DataLoader(samples.Stream(11), size, drop_last=drop_last, num_workers=workers)
    shares = [list(range(w, 11, max(1, workers))) for w in range(max(1, workers))]
    batches = [[s[i : i + (size or 1)] for i in range(0, len(s), size or 1)] for s in shares]
    if drop_last:
        batches = [[b for b in share if len(b) == size] for share in batches]
    expected = [share[i] for i in range(max(map(len, batches))) for share in batches if i < len(share)]
    assert [b[0] if size else [b[0]] for b in epoch(loader)] == expected


def test_lengths_of_streams() -> None:
    class Sized(samples.Stream):
        def __len__(self) -> int:
            return self.length

    assert len(DataLoader(Sized(7), 3)) == 3
    assert len(DataLoader(Sized(7), 3, drop_last=True)) == 2
    assert len(DataLoader(Sized(7), None)) == 7
    with pytest.raises(TypeError):
        len(DataLoader(samples.Stream(7), 3))


def test_collate_functions() -> None:
    assert epoch(DataLoader(range(4), 2, collate_fn=lambda b: b[::-1])) == [[1, 0], [3, 2]]
    assert epoch(DataLoader([np.arange(2)], None)) == [[0, 1]]
    assert type(next(iter(DataLoader([np.arange(2)], None)))) is norch.Tensor
    assert epoch(DataLoader([1, 2], None, collate_fn=str)) == ["1", "2"]


@pytest.mark.parametrize("kind", ["none", "2 threads"])
def test_whole_batches(kind: str) -> None:
    asked: list[list[int]] = []

    class Whole(Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            raise AssertionError

        def __getitems__(self, indices: list[int]) -> list[tuple[int, float]]:
            asked.append(indices)
            return [(i, float(sample_rng(i).random())) for i in indices]

    first = epoch(DataLoader(Whole(), 2, seed=1, **KINDS[kind]))
    assert sorted(asked) == [[0, 1], [2, 3], [4]]
    assert [i for b in first for i in b[0]] == [0, 1, 2, 3, 4]
    part = epoch(DataLoader(Subset(Whole(), [4, 2]), 1, seed=1, **KINDS[kind]))
    assert [b[1][0] for b in part] == [first[2][1][0], first[1][1][0]]  # keyed by the index given, not by the batch


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, [3, 1, 2, 0]), lambda d: StackDataset(d, d)])
def test_tensors_are_gathered_as_they_would_be_collated(wrap: Any) -> None:
    x = norch.arange(12.0).reshape(4, 3)
    dataset = wrap(TensorDataset(x, norch.arange(4)))
    order = BatchSampler([2, -1, 0], 2, False)
    batches = list(DataLoader(dataset, batch_sampler=order))
    slow = list(DataLoader(dataset, batch_sampler=order, collate_fn=lambda b: samples_collated(b)))
    assert listed(batches) == listed(slow)
    batches[0][0].reshape(-1) if isinstance(batches[0][0], norch.Tensor) else None
    assert x.tolist() == norch.arange(12.0).reshape(4, 3).tolist()


def samples_collated(batch: list[Any]) -> Any:
    from norch.utils.data import default_collate

    return default_collate(batch)


def test_a_tensor_dataset_with_its_own_getitem_is_asked() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(2 * t for t in super().__getitem__(index))

    assert epoch(DataLoader(Doubled(norch.arange(3)), 3)) == [[[0, 2, 4]]]


def test_a_batch_of_tensors_is_a_copy() -> None:
    x = norch.zeros(4, 2)
    for (batch,) in DataLoader(TensorDataset(x), 2):
        batch += 1
    assert x.sum().item() == 0


# --- Order -----------------------------------------------------------------------------------------------------------


def test_shuffles_are_keyed_by_seed_and_epoch() -> None:
    loader = DataLoader(range(50), 50, shuffle=True, seed=3)
    first, second = epoch(loader)[0], epoch(loader)[0]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert epoch(DataLoader(range(50), 50, shuffle=True, seed=4))[0] != first
    loader.set_epoch(0)
    assert [epoch(loader)[0], epoch(loader)[0]] == [first, second]
    assert epoch(DataLoader(range(50), 7, shuffle=True, seed=3, num_workers=2))[0] == first[:7]


def test_without_a_seed_the_default_generator_decides() -> None:
    def run() -> list[Any]:
        norch.manual_seed(5)
        loader = DataLoader(samples.Noisy(6), 6, shuffle=True)
        return [epoch(loader), epoch(loader)]

    assert run() == run()
    norch.manual_seed(6)
    assert epoch(DataLoader(samples.Noisy(6), 6, shuffle=True)) not in run()
    by_generator = [
        epoch(DataLoader(samples.Noisy(6), 6, True, generator=norch.Generator().manual_seed(1))) for _ in range(2)
    ]
    assert by_generator[0] == by_generator[1]


def test_loading_leaves_the_default_generator_alone() -> None:
    norch.manual_seed(5)
    expected = norch.rand(3).tolist()
    for kind in THREADS:
        norch.manual_seed(5)
        epoch(DataLoader(samples.Noisy(6), 2, shuffle=True, seed=1, **KINDS[kind]))
        assert norch.rand(3).tolist() == expected, kind


# --- Workers ---------------------------------------------------------------------------------------------------------


def test_worker_info() -> None:
    def info(_: Any) -> Any:
        found = get_worker_info()
        return None if found is None else (found.id, found.num_workers, found.seed, threading.current_thread().name)

    class Infos(IterableDataset):
        def __iter__(self):
            yield info(None)

    assert get_worker_info() is None
    assert list(DataLoader(Infos(), None)) == [None]
    loader = DataLoader(Infos(), None, num_workers=2, seed=1, collate_fn=tuple, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert [(i[0], i[1], i[3]) for i in first] == [(0, 2, "norch-loader-0"), (1, 2, "norch-loader-1")]
    assert len({i[2] for i in first + second}) == 4
    loader.set_epoch(0)
    assert list(loader) == first
    assert get_worker_info() is None


def test_worker_init_fn_changes_the_workers_copy() -> None:
    dataset = samples.Stream(100)
    loader = DataLoader(dataset, None, num_workers=2, worker_init_fn=samples.shifted_by_worker)
    assert sorted(i for i, _ in loader) == [0, 1, 2, 3]
    assert dataset.length == 100
    calls = []
    list(DataLoader(range(4), num_workers=2, worker_init_fn=calls.append))
    assert sorted(calls) == [0, 1]


def test_workers_have_shallow_copies_of_datasets_in_datasets() -> None:
    class Lazy(Dataset):
        handle = None
        shared: list[int] = []

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> bool:
            if self.handle is None:
                self.handle = threading.current_thread().name
            self.shared.append(index)
            return self.handle == threading.current_thread().name

    dataset = Lazy()
    part, _ = random_split(dataset, [6, 2], seed=1)
    loader = DataLoader(part + part, 1, num_workers=3)
    assert all(b[0] for b in epoch(loader))
    assert dataset.handle is None
    assert len(dataset.shared) == 12


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_backpressure(factor: int) -> None:
    loaded, lock = [], threading.Lock()

    class Counting(Dataset):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> int:
            with lock:
                loaded.append(index)
            return index

    worst = 0
    for delivered, _ in enumerate(DataLoader(Counting(), 2, num_workers=2, prefetch_factor=factor)):
        with lock:
            worst = max(worst, len(loaded) // 2 - delivered)
    assert worst <= 2 * factor + 1  # those ahead, and the one in hand


def test_a_second_iterator_while_the_first_is_unfinished() -> None:
    for kind in ("none", "2 threads"):
        for persistent in (False, True) if kind != "none" else (False,):
            loader = DataLoader(range(6), 2, persistent_workers=persistent, **KINDS[kind])
            pairs = [(a.tolist(), b.tolist()) for a in loader for b in loader]
            expected = [[0, 1], [2, 3], [4, 5]]
            assert pairs == [(a, b) for a in expected for b in expected]
            first, second = iter(loader), iter(loader)
            assert next(first).tolist() == next(second).tolist() == [0, 1]
            assert epoch(first) == epoch(second) == expected[1:]


def test_persistent_workers_stay() -> None:
    names = []

    def note(batch: list[Any]) -> list[Any]:
        names.append(threading.get_ident())
        return batch

    loader = DataLoader(range(4), num_workers=1, collate_fn=note, persistent_workers=True)
    for _ in range(3):
        list(loader)
    assert len(set(names)) == 1


def test_as_they_come() -> None:
    dataset = samples.Waiting(at=0)
    loader = DataLoader(dataset, 1, num_workers=2, in_order=False, prefetch_factor=4)
    seen = []
    for batch in loader:
        seen += batch.tolist()
        if len(seen) == 7:
            dataset.event.set()
    assert sorted(seen) == list(range(8))
    assert seen[-1] == 0


# --- Arguments -------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_workers": -1}, "num_workers must be an int not below 0, got -1"),
    ({"timeout": -1, "num_workers": 1}, "timeout must not be negative"),
    ({"timeout": 5}, "timeout is for workers"),
    ({"prefetch_factor": 2}, "prefetch_factor is for workers"),
    ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor must be an int above 0"),
    ({"persistent_workers": True}, "persistent_workers is for workers"),
    ({"multiprocessing_context": "spawn"}, "multiprocessing_context is for workers"),
    ({"multiprocessing_context": "nonsense", "num_workers": 1}, "'nonsense' is none of"),
    ({"multiprocessing_context": "spawn", "workers": "thread", "num_workers": 1}, "not for threads"),
    ({"workers": "fibre"}, "'thread' or 'process', got 'fibre'"),
    ({"sampler": [0], "shuffle": True}, "sampler says the order"),
    ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler excludes"),
    ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler excludes"),
    ({"batch_size": None, "drop_last": True}, "makes no batches"),
    ({"batch_size": 0}, "batch_size must be an int above 0"),
]


@pytest.mark.parametrize(("kwargs", "match"), REFUSED, ids=[str(k) for k, _ in REFUSED])
def test_refused_arguments(kwargs: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        DataLoader(range(3), **kwargs)


@pytest.mark.parametrize("kwargs", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}], ids=str)
def test_refused_for_streams(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an IterableDataset has its own order"):
        DataLoader(samples.Stream(), **kwargs)


def test_what_is_fixed() -> None:
    loader = DataLoader(range(3), shuffle=True)
    assert isinstance(loader.sampler, RandomSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    loader.collate_fn = len
    assert list(loader) == [1, 1, 1]
    with pytest.raises(ValueError, match="batch_size cannot be changed"):
        loader.batch_size = 2


def test_pinning(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []

    class Module:
        def is_available(self) -> bool:
            return True

        pin_memory = None

    def pin_memory(tensor: norch.Tensor, device: str) -> norch.Tensor:
        assert device == "toy"
        pinned.append(tuple(tensor.shape))
        return tensor

    class Own:
        def pin_memory(self) -> str:
            return "pinned by itself"

    monkeypatch.setattr(norch, "toy", Module(), raising=False)
    monkeypatch.setattr(norch.Tensor, "pin_memory", pin_memory)
    for workers in (0, 2):
        loader = DataLoader(
            [(norch.zeros(3, device="cpu"), {"a": norch.tensor(1, device="cpu")})] * 2,
            2,
            pin_memory=True,
            pin_memory_device="toy",
            num_workers=workers,
        )
        assert listed(list(loader)) == [[[[0, 0, 0]] * 2, {"a": [1, 1]}]]
    assert pinned == [(2, 3), (2,)] * 2
    loader = DataLoader([0], 1, collate_fn=lambda b: Own(), pin_memory=True, pin_memory_device="toy:0")
    assert list(loader) == ["pinned by itself"]


def test_pinning_where_nothing_pins() -> None:
    loader = DataLoader(range(2), 2, pin_memory=True, pin_memory_device="cpu")
    with pytest.warns(UserWarning, match="pin_memory has no effect, since device type 'cpu'"):
        assert epoch(loader) == [[0, 1]]
    assert epoch(loader) == [[0, 1]]  # once is enough
