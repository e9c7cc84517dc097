"""Data pipes: datasets that are made of each other."""

from __future__ import annotations

import pytest

import norch
from norch.utils.data import DataLoader, Dataset, IterableDataset, IterDataPipe, MapDataPipe, functional_datapipe
from norch.utils.data.datapipes.graph import apply_shuffle_settings
from norch.utils.data.datapipes.iter import IterableWrapper as Wrap
from norch.utils.data.datapipes.map import SequenceWrapper


def odd(x):
    return x % 2


PASSES = {
    "map": (lambda: Wrap(range(3)).map(lambda x: x * 2), [0, 2, 4]),
    "map of a part": (lambda: Wrap([(1, 2), (3, 4)]).map(str, input_col=1), [(1, "2"), (3, "4")]),
    "map to the end": (lambda: Wrap([(1, 2)]).map(str, input_col=1, output_col=-1), [(1, 2, "2")]),
    "map of parts": (lambda: Wrap([(1, 2, 3)]).map(max, input_col=[0, 2]), [(3, 2)]),
    "map by key": (lambda: Wrap([{"a": 1}]).map(str, input_col="a", output_col="b"), [{"a": 1, "b": "1"}]),
    "filter": (lambda: Wrap(range(5)).filter(odd), [1, 3]),
    "filter by a part": (lambda: Wrap([(0, 1), (1, 0)]).filter(bool, input_col=1), [(0, 1)]),
    "batch": (lambda: Wrap(range(5)).batch(2), [[0, 1], [2, 3], [4]]),
    "full batches": (lambda: Wrap(range(5)).batch(2, drop_last=True), [[0, 1], [2, 3]]),
    "unbatch": (lambda: Wrap(range(5)).batch(2).unbatch(), list(range(5))),
    "unbatch all": (lambda: Wrap(range(5)).batch(2).batch(2).unbatch(-1), list(range(5))),
    "zip": (lambda: Wrap(range(3)).zip(Wrap("ab")), [(0, "a"), (1, "b")]),
    "concat": (lambda: Wrap(range(2)).concat(Wrap("ab")), [0, 1, "a", "b"]),
    "mux": (lambda: Wrap(range(3)).mux(Wrap("ab")), [0, "a", 1, "b"]),
    "groupby": (lambda: Wrap(["a", "bb", "c"]).groupby(len), [["a", "c"], ["bb"]]),
    "groupby keys": (lambda: Wrap(["a", "bb", "c"]).groupby(len, keep_key=True), [(1, ["a", "c"]), (2, ["bb"])]),
    "groups of a size": (lambda: Wrap(range(6)).groupby(odd, group_size=2), [[0, 2], [1, 3], [4], [5]]),
    "sharding": (lambda: Wrap(range(3)).sharding_filter(), [0, 1, 2]),
}


@pytest.mark.parametrize("name", PASSES)
def test_pipes_that_are_gone_through(name):
    make, expected = PASSES[name]
    pipe = make()
    assert [list(pipe), list(pipe)] == [expected, expected]
    assert isinstance(pipe, IterDataPipe)
    if name not in ("filter", "filter by a part", "unbatch", "unbatch all") and not name.startswith("group"):
        assert len(pipe) == len(expected)


def test_shuffling():
    norch.manual_seed(3)
    pipe = Wrap(range(100)).shuffle(buffer_size=20)
    first, second = list(pipe), list(pipe)
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    assert list(pipe.set_seed(5)) == list(pipe.set_seed(5))
    assert list(pipe.set_shuffle(False)) == list(range(100))
    assert sorted(SequenceWrapper([5, 6, 7]).shuffle()) == [5, 6, 7]


def test_pipes_of_one_pipe():
    left, right = Wrap(range(4)).fork(2)
    stream = iter(left)
    assert [next(stream), next(stream), list(right), list(stream)] == [0, 1, [0, 1, 2, 3], [2, 3]]
    assert [list(left), list(right)] == [[0, 1, 2, 3]] * 2
    even, uneven = Wrap(range(6)).demux(2, odd)
    assert (list(even), list(uneven)) == ([0, 2, 4], [1, 3, 5])
    left, right = Wrap(range(9)).fork(2, buffer_size=3)
    with pytest.raises(BufferError, match="buffer_size=3"):
        list(left)
    with pytest.raises(ValueError, match="classifier_fn gave None"):
        list(Wrap([1]).demux(1, lambda x: None)[0])
    assert list(Wrap([1]).demux(1, lambda x: None, drop_none=True)[0]) == []


def test_sharding():
    pipe = Wrap(range(7)).sharding_filter()
    pipe.apply_sharding(3, 0)
    assert (list(pipe), len(pipe)) == ([0, 3, 6], 3)
    with pytest.raises(ValueError, match="instance_id 3 of 3"):
        pipe.apply_sharding(3, 3)


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_pipes(workers):
    pipe = Wrap(range(8)).sharding_filter().map(odd)
    found = list(DataLoader(pipe, batch_size=2, num_workers=workers, workers="thread" if workers else None))
    assert sorted(norch.cat(found).tolist()) == [0] * 4 + [1] * 4
    assert [b.tolist() for b in DataLoader(SequenceWrapper([1, 2, 3]), batch_size=2)] == [[1, 2], [3]]


def test_pipes_by_index():
    pipe = SequenceWrapper([3, 4]).map(lambda x: x + 1).concat(SequenceWrapper([7]))
    assert isinstance(pipe, MapDataPipe)
    assert [pipe[i] for i in range(len(pipe))] == [4, 5, 7]
    assert list(pipe.batch(2)[1]) == [7]
    assert pipe.zip(pipe)[2] == (7, 7)
    for wrong in (lambda: pipe[3], lambda: pipe.batch(2)[2]):
        with pytest.raises(IndexError):
            wrong()


def test_methods_of_ones_own():
    @functional_datapipe("plus")
    class Plus(IterDataPipe):
        def __init__(self, source, number):
            self.source, self.number = source, number

        def __iter__(self):
            return (x + self.number for x in self.source)

    assert list(Wrap(range(3)).plus(5).map(str)) == ["5", "6", "7"]
    assert issubclass(IterDataPipe, IterableDataset)
    assert issubclass(MapDataPipe, Dataset)
    with pytest.raises(ValueError, match="'plus' already"):
        functional_datapipe("plus")(Plus)
    with pytest.raises(TypeError, match="no class of pipes"):
        functional_datapipe("minus")(int)
    with pytest.raises(AttributeError, match="no attribute 'minus'"):
        Wrap([1]).minus()
    del IterDataPipe.functions["plus"]


@pytest.mark.parametrize(("count", "workers"), [(0, None), (2, "thread"), (2, "process")])
def test_workers_share_one_shuffled_order(count, workers):
    pipe = Wrap(range(40)).shuffle(buffer_size=15).sharding_filter()
    loader = DataLoader(pipe, batch_size=None, num_workers=count, workers=workers, seed=3)
    first, second = list(loader), list(loader)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    one, other = Wrap(range(40)).shuffle(), Wrap(range(40)).shuffle()
    pairs = list(DataLoader(one.zip(other), batch_size=None, num_workers=1, workers=workers or "thread"))
    assert any(a != b for a, b in pairs)


def test_a_loader_says_whether_a_pipe_shuffles():
    pipe = Wrap(range(40)).shuffle().map(abs)
    for shuffle, is_mixed in ((True, True), (False, False), (None, False), (True, True), (None, True)):
        found = list(DataLoader(pipe, batch_size=None, shuffle=shuffle))
        assert sorted(found) == list(range(40))
        assert (found != list(range(40))) is is_mixed
    batches = pipe.zip(Wrap(range(40)).shuffle())
    assert apply_shuffle_settings(batches, False) is batches
    assert list(batches) == [(i, i) for i in range(40)]
    with pytest.warns(UserWarning, match=r"has no shuffle\(\)"):
        assert list(DataLoader(Wrap(range(3)), batch_size=None, shuffle=True)) == [0, 1, 2]


def test_pipes_take_the_type_of_their_samples():
    class Doubled(IterDataPipe[int]):
        def __iter__(self):
            yield from (1, 2)

    class Squares(MapDataPipe[int]):
        def __getitem__(self, index):
            return index * index

    assert list(Doubled().map(lambda x: x * 2)) == [2, 4]
    assert Squares()[3] == 9
