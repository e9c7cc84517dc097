"""Datasets, their parts and combinations, and samplers; beside PyTorch's where it is installed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import norch
from norch.utils import data
from norch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

pytestmark = pytest.mark.usefixtures("on_host")


class Count(IterableDataset):
    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


# --- Datasets --------------------------------------------------------------------------------------------------------


def test_norch_finds_utils() -> None:
    assert norch.utils.data.DataLoader is data.DataLoader


def test_tensor_dataset() -> None:
    x, y = norch.arange(6).reshape(3, 2), norch.arange(3)
    dataset = TensorDataset(x, y)
    assert len(dataset) == 3
    assert [t.tolist() for t in dataset[1]] == [[2, 3], 1]
    assert [t.tolist() for t in dataset[-1]] == [[4, 5], 2]
    assert [t.tolist() for t in dataset[1:]] == [[[2, 3], [4, 5]], [1, 2]]
    with pytest.raises(norch.ShapeError, match=r"same size in dim 0, got shapes \(3, 2\), \(4,\)"):
        TensorDataset(x, norch.arange(4))
    with pytest.raises(norch.ShapeError, match=r"\(\)"):
        TensorDataset(norch.tensor(1.0))
    with pytest.raises(ValueError, match="at least one tensor"):
        TensorDataset()


def test_base_classes_name_what_is_missing() -> None:
    class Empty(Dataset[int]):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no __getitem__"):
        Empty()[0]

    class Silent(IterableDataset[int]):
        pass

    with pytest.raises(NotImplementedError, match="Silent has no __iter__"):
        iter(Silent())


def test_stack_dataset() -> None:
    a, b = TensorDataset(norch.arange(3)), list("xyz")
    assert StackDataset(a, b)[1] == ((norch.tensor(1),), "y")
    named = StackDataset(left=a, right=b)
    assert len(named) == 3
    assert named[2] == {"left": (norch.tensor(2),), "right": "z"}
    assert [s["right"] for s in named.__getitems__([2, 0])] == ["z", "x"]
    with pytest.raises(ValueError, match=r"differ in length: \[3, 2\]"):
        StackDataset(a, "xy")
    with pytest.raises(ValueError, match="either"):
        StackDataset()

    class Short(Dataset):
        def __len__(self) -> int:
            return 3

        def __getitems__(self, indices):
            return indices[1:]

    with pytest.raises(ValueError, match="gave 1 samples for 2 indices"):
        StackDataset(Short(), b).__getitems__([0, 1])


def test_subset() -> None:
    part = Subset("abcdef", [5, 0, 3])
    assert len(part) == 3
    assert [part[i] for i in range(3)] == ["f", "a", "d"]
    assert part.__getitems__([2, 0]) == ["d", "f"]
    assert Subset(np.arange(10) * 2, [5, 0, 3])[[0, 2]].tolist() == [10, 6]


def test_concat_dataset() -> None:
    joined = ConcatDataset(["ab", "", "cde"])
    assert len(joined) == 5
    assert joined.cumulative_sizes == [2, 2, 5]
    assert "".join(joined[i] for i in range(5)) == "abcde"
    assert (joined[-1], joined[-5]) == ("e", "a")
    with pytest.raises(IndexError, match="index 5 is out of range for 5"):
        joined[5]
    with pytest.raises(ValueError, match="index -6 is out of range"):
        joined[-6]
    with pytest.raises(ValueError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(ValueError, match="ChainDataset"):
        ConcatDataset([Count(1)])
    x = TensorDataset(norch.arange(2))
    assert len(x + x + x) == 6


def test_chain_dataset() -> None:
    chained = Count(1, 2) + Count(3)
    assert isinstance(chained, ChainDataset)
    assert list(chained) == [1, 2, 3]
    assert len(chained) == 3
    with pytest.raises(TypeError, match="only takes IterableDataset, got list"):
        list(ChainDataset([[1]]))


# --- random_split ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "lengths", "expected"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.7, 0.3], [7, 3]),
        (10, [0.33, 0.33, 0.34], [4, 3, 3]),
        (7, [0.5, 0.5], [4, 3]),
        (1, [1, 0], [1, 0]),
        (0, [0, 0], [0, 0]),
        (1000, [0.1] * 10, [100] * 10),
    ],
)
@pytest.mark.filterwarnings("ignore:random_split")
def test_random_split(total: int, lengths: list[float], expected: list[int]) -> None:
    norch.manual_seed(0)
    parts = random_split(range(total), lengths)
    assert [len(p) for p in parts] == expected
    assert sorted(i for p in parts for i in p) == list(range(total))


def test_random_split_follows_its_generator_or_seed() -> None:
    def split(**kwargs):
        return [list(p) for p in random_split(range(20), [15, 5], **kwargs)]

    assert split(seed=3) == split(seed=3) == split(generator=norch.Generator().manual_seed(3)) != split(seed=4)
    norch.manual_seed(3)
    assert split() == split(seed=3) != split()


@pytest.mark.parametrize(
    ("lengths", "match"),
    [
        ([5, 6], r"lengths \[5, 6\] do not add up to the 10 samples"),
        ([0.5, 0.4], "do not add up"),
        ([11, -1], "do not add up"),
        ([1.5, -0.5], r"fraction 1.5 at position 0"),
    ],
)
def test_random_split_refuses(lengths: list[float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        random_split(range(10), lengths)


def test_random_split_warns_of_an_empty_part() -> None:
    with pytest.warns(UserWarning, match="position 1 is empty"):
        random_split(range(2), [0.99, 0.01])
    with pytest.raises(ValueError, match="not both"):
        random_split(range(2), [1, 1], norch.Generator(), seed=1)


# --- Samplers --------------------------------------------------------------------------------------------------------


def seeded(seed: int = 1) -> norch.Generator:
    return norch.Generator().manual_seed(seed)


def test_sequential_sampler() -> None:
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert len(SequentialSampler("abc")) == 3


def test_random_sampler() -> None:
    sampler = RandomSampler(range(50), generator=seeded())
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert all(type(i) is int for i in first)
    assert list(RandomSampler(range(50), generator=seeded())) == first
    norch.manual_seed(9)
    unseeded = list(RandomSampler(range(50)))
    norch.manual_seed(9)
    assert list(RandomSampler(range(50))) == unseeded


@pytest.mark.parametrize("count", [3, 10, 25])
def test_random_sampler_of_more_or_less(count: int) -> None:
    sampler = RandomSampler(range(10), num_samples=count, generator=seeded())
    drawn = list(sampler)
    assert len(drawn) == len(sampler) == count
    for start in range(0, count, 10):
        assert len(set(drawn[start : start + 10])) == min(10, count - start)


def test_random_sampler_with_replacement() -> None:
    drawn = list(RandomSampler(range(10), replacement=True, num_samples=100_000, generator=seeded()))
    counts = Counter(drawn)
    assert len(drawn) == 100_000
    assert sorted(counts) == list(range(10))
    assert all(abs(n - 10_000) < 6 * 95 for n in counts.values())  # six standard deviations


def test_subset_random_sampler() -> None:
    sampler = SubsetRandomSampler([3, 5, 8, 13, 21], generator=seeded())
    assert len(sampler) == 5
    assert sorted(sampler) == [3, 5, 8, 13, 21]


def test_weighted_random_sampler_with_replacement() -> None:
    weights = [0.0, 1.0, 2.0, 5.0, 0.0]
    counts = Counter(WeightedRandomSampler(weights, 80_000, generator=seeded()))
    assert sorted(counts) == [1, 2, 3]
    for i, w in enumerate(weights):
        p = w / 8
        assert abs(counts[i] - 80_000 * p) <= 6 * (80_000 * p * (1 - p)) ** 0.5


def test_weighted_random_sampler_without_replacement() -> None:
    generator = seeded()
    first = Counter()
    for _ in range(4000):
        drawn = list(WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False, generator=generator))
        assert sorted(drawn) == [0, 2]
        first[drawn[0]] += 1
    assert abs(first[2] - 3000) < 6 * (4000 * 3 / 16) ** 0.5


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: WeightedRandomSampler([1, 0], 2, replacement=False), "only 1 have a weight above 0"),
        (lambda: WeightedRandomSampler([1, -1], 2), "not negative"),
        (lambda: WeightedRandomSampler([[1.0]], 1), r"1-D, got shape \(1, 1\)"),
        (lambda: WeightedRandomSampler([1.0], 0), "num_samples must be an int above 0, got 0"),
        (lambda: RandomSampler("abc", num_samples=0), "num_samples"),
        (lambda: RandomSampler("", replacement=True), "no samples"),
        (lambda: BatchSampler(range(3), 0, False), "batch_size must be an int above 0, got 0"),
        (lambda: BatchSampler(range(3), True, False), "batch_size"),
        (lambda: BatchSampler(range(3), 1, 2), "drop_last must be a bool, got 2"),
    ],
)
def test_samplers_refuse(call, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


def test_batch_sampler() -> None:
    assert list(BatchSampler(SequentialSampler(range(7)), 3, False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(BatchSampler(SequentialSampler(range(7)), 3, True)) == [[0, 1, 2], [3, 4, 5]]
    assert [len(BatchSampler(range(7), 3, last)) for last in (False, True)] == [3, 2]
    assert list(BatchSampler(range(0), 3, False)) == []
