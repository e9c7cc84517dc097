"""DataLoader: what samples draw depends on seed, epoch and index, and on nothing else."""

from __future__ import annotations

from typing import Any

import loader_datasets as samples
import numpy as np
import pytest
from loader_runs import KINDS, THREADS, epoch, rows

import norch
from norch.utils.data import (
    DataLoader,
    Dataset,
    sample_rng,
)

pytestmark = pytest.mark.usefixtures("on_host")


@pytest.fixture(scope="module")
def reference() -> list[list[Any]]:
    loader = DataLoader(samples.Noisy(), 4, shuffle=True, seed=7)
    return [rows(loader) for _ in range(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_do_not_depend_on_workers(kind: str, reference: list[list[Any]]) -> None:
    loader = DataLoader(samples.Noisy(), 4, shuffle=True, seed=7, **KINDS[kind])
    assert [rows(loader) for _ in range(2)] == reference


@pytest.mark.parametrize("size", [1, 3, 11])
@pytest.mark.parametrize("kind", ["none", "2 threads"])
def test_samples_do_not_depend_on_the_batch_size(size: int, kind: str, reference: list[list[Any]]) -> None:
    loader = DataLoader(samples.Noisy(), size, shuffle=True, seed=7, **KINDS[kind])
    assert [rows(loader) for _ in range(2)] == reference


def test_samples_do_not_depend_on_the_order(reference: list[list[Any]]) -> None:
    assert rows(DataLoader(samples.Noisy(), 4, seed=7)) == sorted(reference[0])


def test_samples_differ(reference: list[list[Any]]) -> None:
    drawn = [str(row[1:]) for epoch in reference for row in epoch]
    assert len(set(drawn)) == len(drawn) == 22
    assert all(row[1][0] != row[1][1] for row in reference[0])


@pytest.mark.parametrize("kind", THREADS)
def test_shared_streams_draw_the_same(kind: str) -> None:
    loader = DataLoader(samples.Stream(20), None, seed=7, **KINDS[kind])
    alone = DataLoader(samples.Stream(20), None, seed=7)
    assert sorted(epoch(loader)) == epoch(alone)
    assert len({x for _, x in epoch(alone)}) == 20


@pytest.mark.parametrize("kind", THREADS)
def test_collate_functions_draw_by_batch(kind: str) -> None:
    def collate(batch: list[int]) -> tuple[list[int], float, float]:
        return batch, sample_rng().random(), norch.rand(()).item()

    expected = epoch(DataLoader(range(6), 2, seed=1, collate_fn=collate))
    assert epoch(DataLoader(range(6), 2, seed=1, collate_fn=collate, **KINDS[kind])) == expected
    assert len({x for _, x, _ in expected}) == 3


def test_sample_rng() -> None:
    seen = []

    class Drawing(Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            first, second = sample_rng(), sample_rng()
            assert first is second
            seen.append((first.random(), sample_rng(index).random(), sample_rng("other").random()))
            return index

    epoch(DataLoader(Drawing(), seed=3))
    assert [a == b for a, b, _ in seen] == [True, True]
    assert len({x for row in seen for x in row}) == 3  # two samples, and one key that both asked for
    norch.manual_seed(2)
    outside = sample_rng().random(), sample_rng().random()
    norch.manual_seed(2)
    assert outside == (sample_rng().random(), sample_rng().random())
    assert outside[0] != outside[1]


def test_seeding_in_a_sample_is_about_this_sample() -> None:
    class Seeding(Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> norch.Tensor:
            norch.manual_seed(index // 2)
            state = norch.get_rng_state()
            first = norch.rand(2)
            norch.set_rng_state(state)
            assert norch.rand(2).tolist() == first.tolist()
            assert norch.initial_seed() == index // 2
            return first

    norch.manual_seed(77)
    (batch,) = epoch(DataLoader(Seeding(), 6, num_workers=2))
    assert batch[0] == batch[1] != batch[2] == batch[3]
    assert norch.initial_seed() == 77


def test_seeds_of_samples_are_what_int64_holds() -> None:
    class Seeds(Dataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> norch.Tensor:
            return norch.tensor(norch.initial_seed())

    found = norch.cat(list(DataLoader(Seeds(), 4, num_workers=2, seed=1))).tolist()
    assert len(set(found)) == 20
    assert min(found) >= 0


def test_a_loader_inside_a_sample() -> None:
    class Outer(Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[float, Any, float]:
            before = sample_rng().random()
            inner = rows(DataLoader(samples.Noisy(3), 3, seed=index))
            return before, str(inner), sample_rng().random()

    class Without(Outer):
        def __getitem__(self, index: int) -> tuple[float, Any, float]:
            return sample_rng().random(), "", sample_rng().random()

    nested, flat = epoch(DataLoader(Outer(), 3, seed=1))[0], epoch(DataLoader(Without(), 3, seed=1))[0]
    assert (nested[0], nested[2]) == (flat[0], flat[2])
    assert len(set(nested[1])) == 3


def test_keys_that_are_no_integers() -> None:
    class Words(Dataset):
        def __getitem__(self, index: Any) -> float:
            return float(sample_rng().random())

    def drawn(order: list[Any]) -> list[float]:
        return [x for b in epoch(DataLoader(Words(), 2, sampler=order, seed=1)) for x in b]

    assert drawn(["a", ("b", 1), "c"]) == drawn(["c", ("b", 1), "a"])[::-1]
    assert len(set(drawn(["a", "b", 1, np.int64(2), norch.tensor(3), -1]))) == 6
    assert drawn([5])[0] == drawn([np.int64(5)])[0] == drawn([norch.tensor(5)])[0]
