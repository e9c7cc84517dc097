"""A loader that goes on in the middle of an epoch: at every position, exactly what the rest of the epoch would be."""

from __future__ import annotations

import json
import pickle
from typing import Any

import loader_datasets as samples
import pytest
from loader_runs import listed

import norch
from norch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

pytestmark = pytest.mark.usefixtures("on_host")


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it comes back from a file."""
    return json.loads(json.dumps(state))


def positions(make: Any, epochs: int = 2) -> tuple[list[list[Any]], list[list[dict[str, Any]]]]:
    """Batches and, before the first and after each of them, states: by epoch."""
    loader = make()
    batches, states = [], []
    for _ in range(epochs):
        batches.append([])
        states.append([stored(loader.state_dict())])
        for batch in loader:
            batches[-1].append(listed(batch))
            states[-1].append(stored(loader.state_dict()))
    return batches, states


def check(make: Any, resume: Any = None, every: int = 1) -> None:
    """From every position, the rest of its epoch and the whole of the next follow."""
    batches, states = positions(make, 3)
    for epoch in range(2):
        for at in range(0, len(states[epoch]), every):
            loader = (resume or make)()
            loader.load_state_dict(states[epoch][at])
            assert stored(loader.state_dict()) == states[epoch][at]
            assert listed(list(loader)) == batches[epoch][at:], (epoch, at)
            assert listed(list(loader)) == batches[epoch + 1], (epoch, at)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("after", [0, 3])
def test_samples_by_index(before: int, after: int) -> None:
    def loader(workers: int) -> DataLoader:
        return DataLoader(samples.Noisy(11), 2, shuffle=True, num_workers=workers, seed=None)

    check(lambda: loader(before), lambda: loader(after))


def test_persistent_workers() -> None:
    check(lambda: DataLoader(samples.Noisy(7), 2, shuffle=True, num_workers=2, persistent_workers=True))


def test_processes() -> None:
    kwargs = {"shuffle": True, "num_workers": 2, "persistent_workers": True, "seed": 5, "prefetch_factor": 3}
    loader = DataLoader(samples.Noisy(12), 2, workers="process", **kwargs)
    states = []
    batches = []
    for batch in loader:
        batches.append(listed(batch))
        states.append(stored(loader.state_dict()))
    for at in (1, 4):
        loader.load_state_dict(states[at])
        assert listed(list(loader)) == batches[at + 1 :]
    other = DataLoader(samples.Noisy(12), 2, **kwargs)
    other.load_state_dict(states[2])
    assert listed(list(other)) == batches[3:]


def test_gathered_batches() -> None:
    check(lambda: DataLoader(TensorDataset(norch.arange(10)), 3, shuffle=True, drop_last=True))


def test_in_the_order_of_arrival() -> None:
    """What was delivered ahead of its turn is not delivered again; nothing is left out."""
    dataset = samples.Waiting(at=2)
    loader = DataLoader(dataset, 1, num_workers=2, in_order=False, prefetch_factor=3)
    seen: list[int] = []
    for batch in loader:
        seen += batch.tolist()
        if len(seen) == 5:
            break
    state = stored(loader.state_dict())
    dataset.event.set()
    assert 2 not in seen
    assert state["ahead"]
    other = DataLoader(samples.Noisy(8), 1, num_workers=2, collate_fn=samples.first_only)
    other.load_state_dict(state)
    assert [b["index"] for b in other] == sorted(set(range(8)) - set(seen))


class OwnOrder(Sampler):
    """A user's sampler that draws from norch."""

    def __iter__(self):
        return iter(norch.randperm(9).tolist())

    def __len__(self) -> int:
        return 9


class Advancing(Sampler):
    """One that remembers, and says so."""

    def __init__(self) -> None:
        self.start = 0

    def __iter__(self):
        self.start += 1
        for i in range(9):
            yield (i * self.start) % 9

    def state_dict(self) -> dict[str, int]:
        return {"start": self.start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["start"]


def generator() -> norch.Generator:
    return norch.Generator().manual_seed(3)


SAMPLERS = {
    "norch's": lambda: RandomSampler(range(9)),
    "with replacement": lambda: RandomSampler(range(9), replacement=True, num_samples=9),
    "a generator of its own": lambda: RandomSampler(range(9), generator=generator()),
    "subset": lambda: SubsetRandomSampler(range(9), generator=generator()),
    "weighted": lambda: WeightedRandomSampler([1.0 + i for i in range(9)], 9),
    "a user's": OwnOrder,
    "one with a state": Advancing,
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_samplers(name: str, workers: int) -> None:
    check(lambda: DataLoader(range(9), 2, sampler=SAMPLERS[name](), num_workers=workers))
    check(lambda: DataLoader(range(9), batch_sampler=BatchSampler(SAMPLERS[name](), 4, False), num_workers=workers))


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [None, 2])
def test_streams_without_a_state_are_skipped(workers: int, size: int | None) -> None:
    check(lambda: DataLoader(samples.Stream(11), size, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_streams_with_a_state(workers: int) -> None:
    def numbers(loader: DataLoader) -> list[Any]:
        return [batch[0].tolist() for batch in loader]

    whole = numbers(DataLoader(samples.Remembering(), 2, num_workers=workers))
    for at in range(len(whole) + 1):
        loader = DataLoader(samples.Remembering(), 2, num_workers=workers)
        iterator = iter(loader)
        for _ in range(at):
            next(iterator)
        state = stored(loader.state_dict())
        resumed = DataLoader(samples.Remembering(), 2, num_workers=workers)
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert [batch[0].tolist() for batch in rest] == whole[at:]
        if rest:  # nothing was read twice: what is delivered first was asked for first
            assert rest[0][1].tolist()[0] == 1


def test_a_stream_whose_iterator_has_the_state() -> None:
    class Cursor:
        def __init__(self) -> None:
            self.at = 0

        def __next__(self) -> int:
            if self.at == 7:
                raise StopIteration
            self.at += 1
            return self.at - 1

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    class Source(samples.IterableDataset):
        def __iter__(self):
            return Cursor()

    check(lambda: DataLoader(Source(), 2))
    check(lambda: DataLoader(Source(), 2, num_workers=2))


def test_before_between_and_after_epochs() -> None:
    loader = DataLoader(range(6), 2, shuffle=True)
    norch.manual_seed(4)
    start = stored(loader.state_dict())
    first = listed(list(loader))
    between = stored(loader.state_dict())
    assert between["epoch"] == 1
    assert between["batches"] == 0
    second = listed(list(loader))
    loader.load_state_dict(start)
    assert [listed(list(loader)), listed(list(loader))] == [first, second]
    loader.load_state_dict(between)
    assert listed(list(loader)) == second
    loader.load_state_dict(between)
    loader.set_epoch(0)
    assert listed(list(loader)) == first


def test_naming_the_epoch_of_a_loaded_state_keeps_its_place() -> None:
    """Training scripts call `set_epoch(epoch)` before each epoch, the resumed one included."""
    loader = DataLoader(range(6), 2, shuffle=True, seed=1)
    iterator = iter(loader)
    next(iterator)
    rest, state = loader.state_dict(), loader.state_dict()
    expected = listed(list(iterator))
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert loader.state_dict() == rest
    assert listed(list(loader)) == expected
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert len(list(loader)) == 3


def test_after_the_last_batch_an_epoch_is_not_over() -> None:
    loader = DataLoader(range(6), 2, seed=1)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 3)
    loader.load_state_dict(state)
    assert list(loader) == []
    assert loader.state_dict()["epoch"] == 1


def test_an_epoch_that_was_left_can_be_gone_on_with() -> None:
    for workers in (0, 2):
        loader = DataLoader(range(8), 2, shuffle=True, seed=2, num_workers=workers)
        whole = listed(list(loader))
        loader.set_epoch(0)
        for at, _ in enumerate(loader):
            if at == 1:
                break
        state = loader.state_dict()
        assert state["batches"] == 2
        loader.load_state_dict(state)
        assert listed(list(loader)) == whole[2:]


def test_with_norchs_own_generator_in_the_state() -> None:
    """As a training script does it: what is drawn between batches goes on, too."""

    def run(loader: DataLoader, steps: int) -> list[Any]:
        seen = []
        while steps:
            for batch in loader:
                seen.append((listed(batch), norch.rand(1).item()))
                steps -= 1
                if not steps:
                    break
        return seen

    norch.manual_seed(8)
    loader = DataLoader(samples.Noisy(7), 2, shuffle=True)
    run(loader, 6)
    state, random = stored(loader.state_dict()), norch.get_rng_state()
    # The rest of this epoch, in a new iterator, is the same as in the one that was left.
    loader.load_state_dict(state)
    expected = run(loader, 7)
    norch.manual_seed(99)
    other = DataLoader(samples.Noisy(7), 2, shuffle=True, num_workers=2)
    other.load_state_dict(state)
    norch.set_rng_state(random)
    assert run(other, 7) == expected


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: DataLoader(range(7), 2), "with length 6, this one has 7"),
        (lambda: DataLoader(range(6), 3), "with batch_size 2, this one has 3"),
        (lambda: DataLoader(range(6), 2, drop_last=True), "with drop_last False, this one has True"),
    ],
)
def test_a_state_of_another_loader_is_refused(other: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        other().load_state_dict(DataLoader(range(6), 2).state_dict())


def test_more_states_that_are_refused() -> None:
    loader = DataLoader(samples.Stream(), 2, num_workers=2)
    next(iter(loader))
    with pytest.raises(ValueError, match="the streams of 2 workers of an IterableDataset, this loader 3"):
        DataLoader(samples.Stream(), 2, num_workers=3).load_state_dict(loader.state_dict())
    start = DataLoader(samples.Stream(), 2, num_workers=2)
    iterator = iter(start)
    DataLoader(samples.Stream(), 2, num_workers=3).load_state_dict(start.state_dict())
    del iterator
    with pytest.raises(ValueError, match="unknown version 2"):
        loader.load_state_dict({"version": 2})
    own = DataLoader(range(9), 2, sampler=Advancing())
    other = DataLoader(range(9), 2, sampler=OwnOrder())
    other.load_state_dict(own.state_dict())
    with pytest.raises(ValueError, match="OwnOrder does not take the state"):
        iter(other)


def test_a_loader_in_no_checkpoint_shifts_nothing_after_a_resume() -> None:
    """The usual script: the training loader and norch's generator are saved, the test loader is made again."""

    def loaders() -> tuple[DataLoader, DataLoader]:
        return DataLoader(samples.Noisy(7), 2, shuffle=True), DataLoader(samples.Noisy(4), 2)

    def epoch(train: DataLoader, test: DataLoader, save_at: int | None = None) -> tuple[list[Any], list[Any]]:
        seen, saved = [], []
        for at, batch in enumerate(train):
            seen.append((listed(batch), norch.rand(1).item()))
            if at == save_at:
                saved = [stored(train.state_dict()), norch.get_rng_state()]
        list(test)
        return [*seen, norch.rand(1).item()], saved

    norch.manual_seed(3)
    train, test = loaders()
    epoch(train, test)
    begun, saved = epoch(train, test, save_at=1)
    between = [norch.get_rng_state(), stored(train.state_dict())]  # in this order: the state moves no generator
    expected = [epoch(train, test)[0] for _ in range(2)]

    norch.manual_seed(77)
    train, test = loaders()
    train.load_state_dict(saved[0])
    norch.set_rng_state(saved[1])
    assert epoch(train, test)[0] == begun[2:]
    assert [epoch(train, test)[0] for _ in range(2)] == expected

    train, test = loaders()
    train.load_state_dict(between[1])
    norch.set_rng_state(between[0])
    assert [epoch(train, test)[0] for _ in range(2)] == expected


def test_the_state_before_the_first_epoch_moves_no_generator() -> None:
    for generator in (None, norch.Generator().manual_seed(5)):
        norch.manual_seed(4)
        loader = DataLoader(range(9), 2, shuffle=True, generator=generator)
        before = norch.get_rng_state().tolist()
        state = loader.state_dict()
        assert norch.get_rng_state().tolist() == before
        first = listed(list(loader))
        loader.load_state_dict(state)
        assert listed(list(loader)) == first
        if generator is None:
            norch.manual_seed(4)
            assert listed(list(DataLoader(range(9), 2, shuffle=True))) == first


def test_a_pickled_loader_loads() -> None:
    loader = pickle.loads(pickle.dumps(DataLoader([1, 2, 3], batch_size=2)))
    assert [batch.tolist() for batch in loader] == [[1, 2], [3]]
