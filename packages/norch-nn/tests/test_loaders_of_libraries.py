"""What libraries with loaders of their own take of PyTorch's: kinds of datasets, the iterator, pinned memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import norch
import norch.utils.data as loading
from norch.utils.data import DataLoader, dataloader, get_worker_info
from norch.utils.data._utils.pin_memory import pin_memory
from norch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter


def batches(kind: int, dataset: object, indices: list, workers: int = 0, **options: object) -> list:
    loader = SimpleNamespace(
        dataset=dataset,
        collate_fn=options.pop("collate", list),
        _dataset_kind=kind,
        _index_sampler=indices,
        _auto_collation=options.pop("auto", True),
        drop_last=options.pop("drop_last", False),
        batch_size=options.pop("batch_size", None),
        num_workers=workers,
        worker_init_fn=options.pop("init", None),
        pin_memory=False,
        pin_memory_device="",
        timeout=60,
        prefetch_factor=2,
        **dict.fromkeys(("multiprocessing_context", "generator")),
    )
    return list((_MultiProcessingDataLoaderIter if workers else _SingleProcessDataLoaderIter)(loader))


def test_batches_of_a_loader() -> None:
    data = [10, 11, 12, 13, 14]
    rows = [[0, 4], [2, 1]]
    assert batches(_DatasetKind.Map, data, rows) == [[10, 14], [12, 11]]
    assert batches(_DatasetKind.Map, data, [3, 0], auto=False, collate=str) == ["13", "10"]
    assert batches(_DatasetKind.Iterable, data, iter(int, 1), auto=False, collate=str) == list(map(str, data))
    pairs = [[0, 0]] * 9
    assert batches(_DatasetKind.Iterable, data, pairs) == [[10, 11], [12, 13], [14]]
    assert batches(_DatasetKind.Iterable, data, pairs, drop_last=True) == [[10, 11], [12, 13]]


class Shared:
    """A stream that its worker has cut down to its share, and that is no IterableDataset."""

    first, step = 0, 1

    def __iter__(self):
        return iter(range(self.first, 6, self.step))


def cut(index: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.first, info.dataset.step = index, info.num_workers


def test_batches_that_processes_make() -> None:
    data = [10, 11, 12, 13, 14]
    assert batches(_DatasetKind.Map, data, [[0, 4], [2, 1]], workers=2) == [[10, 14], [12, 11]]
    assert batches(_DatasetKind.Map, data, [3, 0], workers=2, auto=False, collate=str) == ["13", "10"]
    found = batches(_DatasetKind.Iterable, Shared(), [], workers=2, auto=False, collate=str, init=cut)
    assert sorted(found) == list("012345")
    found = batches(_DatasetKind.Iterable, Shared(), [], workers=1, batch_size=4)
    assert found == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.usefixtures("on_host")
def test_memory_is_pinned_where_a_device_has_it() -> None:
    batch = {"x": [norch.ones(2)], "name": "a"}
    with pytest.warns(UserWarning, match="pin_memory has no effect"):
        assert pin_memory(batch, "strange") is batch


def test_names_of_backends() -> None:
    from norch.distributed import Backend

    assert Backend.NCCL == "nccl" == Backend("NCCL")
    assert Backend.default_device_backend_map["cpu"] in Backend.backend_list
    with pytest.raises(ValueError, match="must be a string, got 3"):
        Backend(3)


def test_a_loader_whose_dataset_reads_whole_batches():
    class Slices(DataLoader):
        def __iter__(self):
            self._started = True
            self.collate_fn = lambda batch: batch
            return super().__iter__()

        @property
        def _auto_collation(self):
            return False if hasattr(self, "_started") else super()._auto_collation

        @property
        def _index_sampler(self):
            return self.batch_sampler if super()._auto_collation else self.sampler

    class Rows:
        x = norch.arange(10.0)

        def __getitem__(self, index):
            assert isinstance(index, list)
            return self.x[index], -self.x[index]

        def __len__(self):
            return 10

    found = list(Slices(Rows(), batch_size=4))
    assert [x.tolist() for x, _ in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert found[2][1].tolist() == [-8, -9]


class Resumable(loading.DataLoader):
    """A loader written after PyTorch's: it sets its attributes and makes an iterator of its own."""

    def __init__(self, dataset, batch_size=1, drop_last=False, generator=None):
        self.dataset, self.batch_size, self.drop_last, self.generator = dataset, batch_size, drop_last, generator
        self.num_workers, self.timeout, self.pin_memory, self.pin_memory_device = 0, 0, False, ""
        self._IterableDataset_len_called = None
        iterable = isinstance(dataset, loading.IterableDataset)
        self._dataset_kind = dataloader._DatasetKind.Iterable if iterable else dataloader._DatasetKind.Map
        self.sampler = dataloader._InfiniteConstantSampler() if iterable else loading.SequentialSampler(dataset)
        self.batch_sampler = batch_size and loading.BatchSampler(self.sampler, batch_size, drop_last)
        self.collate_fn = loading._utils.collate.default_collate if batch_size else lambda sample: sample
        self.check_worker_number_rationality()

    def __iter__(self):
        return Counting(self)


class Counting(dataloader._BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        given = (self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)
        self.fetcher = loading._DatasetKind.create_fetcher(*given)

    def _next_data(self):
        return self.fetcher.fetch(self._next_index())


class Stream(loading.IterableDataset):
    def __iter__(self):
        return iter(range(7))


def values(loader):
    return [batch.tolist() if isinstance(batch, norch.Tensor) else batch for batch in loader]


def test_a_loader_with_an_iterator_of_its_own():
    indexed = loading.TensorDataset(norch.arange(7))
    loader = Resumable(indexed, 3)
    batches = iter(loader)
    assert (len(loader), len(batches)) == (3, 3)
    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches._num_yielded == 3
    batches._reset(loader)
    assert next(batches)[0].tolist() == [0, 1, 2]
    assert values(Resumable(Stream(), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert values(Resumable(Stream(), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert values(Resumable(Stream(), None)) == list(range(7))
    assert len(Resumable(indexed, None)) == 7


def test_what_such_loaders_tell_their_workers():
    worker, signals = loading._utils.worker, loading._utils.signal_handling
    assert loading.get_worker_info() is None
    worker._worker_info = worker.WorkerInfo(id=1, num_workers=2, seed=3, dataset=None)
    try:
        assert loading.get_worker_info().id == 1
        seen = []
        dataloader._sharding_worker_init_fn(seen.append, 1, 0, 1)
        assert seen == [1]
        pipe = loading.datapipes.iter.IterableWrapper(range(12)).sharding_filter()
        worker._worker_info = worker.WorkerInfo(id=1, num_workers=2, seed=3, dataset=pipe)
        dataloader._sharding_worker_init_fn(None, 3, 2, 1)  # the second worker of the last of three processes
        assert list(pipe) == [5, 11]
    finally:
        worker._worker_info = None
    assert worker.ManagerWatchdog().is_alive()
    assert signals._set_worker_pids(1, (2,)) is signals._set_SIGCHLD_handler() is None
    assert norch.set_vital("Dataloader", "enabled", "True") is False


class Renamed(DataLoader):
    """Its samples are numbers of rows, and `dataset` says what these are of."""

    dataset = property(lambda self: ["a", "b"], lambda self, value: None)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_order_is_of_the_dataset_that_was_given(shuffle: bool) -> None:
    loader = Renamed(range(5), batch_size=2, shuffle=shuffle)
    assert len(loader) == 3
    assert sorted(i for indices in loader.batch_sampler for i in indices) == [0, 1, 2, 3, 4]
