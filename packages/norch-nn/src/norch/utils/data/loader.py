"""DataLoader: batches of a dataset, in an order, by workers or without, that can go on where it was."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

import norch

from .collate import default_collate, default_convert
from .datapipes import IterDataPipe
from .datapipes.graph import apply_shuffle_settings
from .dataset import IterableDataset, T_co
from .fetch import Job
from .iteration import DirectIterator, IndexedIterator, StreamIterator, WorkerIterator
from .pinning import Pin, pinner
from .pool import Pool
from .progress import Progress, order_state, restore_order
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .threads import ThreadPool

_FIXED = ("dataset", "batch_size", "batch_sampler", "sampler", "drop_last", "persistent_workers", "num_workers")


class _Endless(Sampler[None]):
    """The sampler of an IterableDataset, which has no indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Iterating gives the batches of one epoch of `dataset`. The arguments are PyTorch's, but for the last two.

    batch_size: samples a batch; None: each alone. shuffle: a RandomSampler in place of a SequentialSampler, of an
    IterDataPipe whether its `shuffle()` does; `sampler` or `batch_sampler`, which gives lists, may be given instead.
    drop_last: no last batch that is smaller. num_workers: 0 makes samples in the loop. collate_fn: makes a batch of a
    list of samples; `default_collate`. prefetch_factor: batches that each worker is ahead; 2. in_order: batches in the
    sampler's order, or as they are ready.
    pin_memory_device: for which device `pin_memory` pins, CUDA unless named.

    seed: with the epoch's number it decides the shuffle, and with the sample's index what `sample_rng()` and norch's
    random ops draw for a sample, so that nothing depends on the workers. Without it a number is drawn from `generator`,
    or norch's default generator, whenever an epoch starts, and the first is the seed: a loader that is not in the
    checkpoint then takes as many numbers after a resume as without. Epochs count up from 0; `set_epoch` says otherwise.
    workers: "thread" or "process". Threads are the default: they start at once and copy nothing, and NumPy, zlib, file
    reading and the like leave Python free for others. Processes suit samples made by much Python code; they are spawned
    (0.3 s each, hence `persistent_workers`) unless `multiprocessing_context`, which implies them, says otherwise.
    `worker_init_fn` and `get_worker_info()` work in both; each worker has a shallow copy of the dataset.

    timeout: seconds to wait for a batch; then, or when a worker dies, the loop ends with a WorkerError that says what
    each worker was doing. With 0 it ends when no worker has done anything for ten minutes. An exception in a worker is
    raised in the loop, with the worker's traceback, when it is the batch's turn.

    `state_dict()` at any moment, also in the loop, is a position that `load_state_dict()` goes on from exactly.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: norch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        workers: str | None = None,
    ) -> None:
        self._initialised = False
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context, workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.workers = workers or ("thread" if multiprocessing_context is None else "process")
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.generator = generator
        self._choose_order(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_collate if self.batch_sampler is not None else default_convert)
        self.seed, self._draws = seed, seed is None
        self._epoch = 0
        self._progress: Progress | None = None
        self._resume: Progress | None = None
        self._pool: Pool | None = None
        self._pool_end: Any = None
        self._pin: Any = ...  # not known yet
        self._initialised = True

    @property
    def _iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _choose_order(
        self, dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        # `self.dataset` may be another: subclasses have properties of that name.
        if isinstance(dataset, IterDataPipe):
            apply_shuffle_settings(dataset, shuffle)
            shuffle = None
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise ValueError(f"DataLoader: an IterableDataset has its own order, {name} is not for it")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler says the order, so that shuffle must not be set")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None makes no batches, so that drop_last must not be set")
        if sampler is None:
            if iterable:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset)
            elif batch_sampler is None or hasattr(dataset, "__len__"):
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self._initialised:
            raise ValueError(f"DataLoader: {name} cannot be changed once the loader is made")
        super().__setattr__(name, value)

    _initialised = False

    def __len__(self) -> int:
        """Batches in an epoch. Raises TypeError where the dataset or sampler has no length."""
        if not self._iterable:
            return len(self._index_sampler)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    # --- Epochs -----------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that the next iterator starts: at its beginning, or where a loaded state is in it."""
        self._epoch, self._progress = int(epoch), None
        if self._resume is not None and self._resume.epoch != self._epoch:
            self._resume = None

    def __iter__(self) -> Iterator[Any]:
        progress = self._resume
        if progress is None:
            progress = Progress(self._draw() if self._draws else self._settled_seed(), self._epoch)
            progress.order = order_state(self._index_sampler)
        else:
            if self._draws and not progress.begun:
                self._draw()
            progress.begun = True
            restore_order(self._index_sampler, progress.order)
        iterator = self._start(progress)
        self._resume, self._progress, self._epoch = None, progress, progress.epoch + 1
        return iterator

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are made one by one and then collated. Subclasses that read whole batches say False."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """Gives the indices of each batch, or of each sample where there are none."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _start(self, progress: Progress) -> Iterator[Any]:
        if self._pin is ...:
            self._pin = pinner(self.pin_memory_device) if self.pin_memory else None
        job = Job(
            self.dataset,
            self._iterable,
            self._auto_collation,
            self.batch_size,
            self.drop_last,
            self.collate_fn,
            self.worker_init_fn,
        )
        if not self.num_workers:
            return DirectIterator(job, self._index_sampler, progress, self._pin)
        pool, pin = self._workers(job, progress)
        kind: type[WorkerIterator] = StreamIterator if self._iterable else IndexedIterator
        extra = {} if self._iterable else {"sampler": self._index_sampler}
        return kind(
            pool,
            progress,
            self.num_workers * (self.prefetch_factor or 2),
            self.timeout,
            self.in_order,
            pin,
            self._keep if self.persistent_workers else _let_go,
            self._again,
            **extra,
        )

    def _again(self, progress: Progress) -> Iterator[Any]:
        """An iterator for the rest of an epoch whose iterator has closed its workers."""
        restore_order(self._index_sampler, progress.order)
        return self._start(progress)

    def _draw(self) -> int:
        drawn = int(norch.randint(0, 2**63 - 1, (), generator=self.generator, device="cpu"))
        if self.seed is None:
            self.seed = drawn
        return self.seed

    def _settled_seed(self) -> int:
        """The seed; where none is drawn yet, that which the next epoch will draw, without moving the generator."""
        if self.seed is None:
            own = self.generator
            before = norch.get_rng_state() if own is None else own.get_state()
            self._draw()
            norch.set_rng_state(before) if own is None else own.set_state(before)
        assert self.seed is not None
        return self.seed

    def _workers(self, job: Job, progress: Progress) -> tuple[Pool, Pin | None]:
        """Workers for an epoch, and what pins batches in this thread. A pool that an iterator has is nobody else's."""
        threads, epoch = self.workers == "thread", progress.at()
        pool, self._pool = self._pool, None
        if pool is not None:
            self._pool_end.detach()
            pool.begin(epoch)
        elif threads:
            pool = ThreadPool(job, epoch, self.num_workers, self._pin)
        else:
            from .processes import ProcessPool

            pool = ProcessPool(
                job, epoch, self.num_workers, self.prefetch_factor or 2, self.multiprocessing_context or "spawn"
            )
        return pool, None if threads else self._pin

    def _keep(self, pool: Pool) -> bool:
        if self._pool is None:
            self._pool = pool
            self._pool_end = weakref.finalize(self, pool.close, 1.0)
            return True
        return False

    def check_worker_number_rationality(self) -> None:
        """Nothing: as many workers as are asked for are made."""

    # --- State ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator is: what it has handed over counts, what workers have ready beyond that does not.

        Before the first epoch, and after the end of one, it is the start of the next. It is made of numbers, strings,
        lists and dicts, beside what `state_dict()` of an IterableDataset or of a sampler gave.
        """
        progress = self._progress or self._resume
        if progress is None or progress.finished:
            progress = Progress(self._settled_seed(), self._epoch, begun=False)
            progress.order = order_state(self._index_sampler)
        return {"version": 1, **self._form(), **progress.state_dict()}

    def _form(self) -> dict[str, Any]:
        try:
            length = None if self._iterable else len(self.dataset)
        except TypeError:  # it has none
            length = None
        return {"length": length, "batch_size": self.batch_size, "drop_last": self.drop_last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lets the next iterator go on from a state. The number and kind of workers may be others.

        Only for an IterableDataset, whose workers each have a stream, their number must be the same (without workers is
        as with one). Raises ValueError if the dataset's length, `batch_size` or `drop_last` differ from the state's.
        """
        if state_dict.get("version") != 1:
            raise ValueError(f"DataLoader.load_state_dict(): unknown version {state_dict.get('version')!r} of a state")
        for name, value in self._form().items():
            if state_dict[name] != value:
                raise ValueError(
                    f"DataLoader.load_state_dict(): the state is of a loader with {name} {state_dict[name]!r}, this "
                    f"one has {value!r}"
                )
        progress = Progress.of(state_dict)
        size = max(1, self.num_workers)
        if progress.streams is not None and len(progress.streams) != size:
            raise ValueError(
                f"DataLoader.load_state_dict(): the state has the streams of {len(progress.streams)} workers of an "
                f"IterableDataset, this loader {size}"
            )
        self.seed, self._epoch = progress.seed, progress.epoch
        self._resume, self._progress = progress, None


def _let_go(pool: Pool) -> bool:
    return False


def _check_workers(
    num_workers: int, timeout: float, prefetch: Any, persistent: bool, context: Any, workers: str | None
) -> None:
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"DataLoader: num_workers must be an int not below 0, got {num_workers!r}")
    if not timeout >= 0:
        raise ValueError(f"DataLoader: timeout must not be negative, got {timeout!r}")
    if workers not in (None, "thread", "process"):
        raise ValueError(f"DataLoader: workers must be 'thread' or 'process', got {workers!r}")
    if workers == "thread" and context is not None:
        raise ValueError("DataLoader: multiprocessing_context is for workers='process', not for threads")
    if isinstance(context, str):
        from multiprocessing import get_all_start_methods

        if context not in get_all_start_methods():
            raise ValueError(
                f"DataLoader: multiprocessing_context {context!r} is none of {', '.join(get_all_start_methods())}"
            )
    elif context is not None and not hasattr(context, "Process"):
        raise TypeError(
            f"DataLoader: multiprocessing_context must be a string or a context, got {type(context).__name__}"
        )
    if prefetch is not None and (isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1):
        raise ValueError(f"DataLoader: prefetch_factor must be an int above 0, got {prefetch!r}")
    if num_workers:
        return
    for name, value in (
        ("timeout", timeout),
        ("prefetch_factor", prefetch is not None),
        ("persistent_workers", persistent),
        ("multiprocessing_context", context is not None),
    ):
        if value:
            raise ValueError(f"DataLoader: {name} is for workers; set num_workers above 0")
