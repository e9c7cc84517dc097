"""Random tensors: what a seed fixes, what they are distributed as, and generators in threads."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import norch
from norch import DTypeError, Generator, ShapeError, Tensor

DRAWS: dict[str, Callable[[Generator | None], Tensor]] = {
    "rand": lambda g: norch.rand(7, generator=g),
    "rand double": lambda g: norch.rand(7, generator=g, dtype=norch.float64),
    "rand half": lambda g: norch.rand(7, generator=g, dtype=norch.float16),
    "randn": lambda g: norch.randn(3, 3, generator=g),
    "randint": lambda g: norch.randint(0, 1000, (7,), generator=g),
    "randint wide": lambda g: norch.randint(-(2**40), 2**40, (7,), generator=g),
    "randperm": lambda g: norch.randperm(20, generator=g),
    "bernoulli": lambda g: norch.bernoulli(norch.full((30,), 0.5), generator=g),
    "normal": lambda g: norch.normal(1.0, 2.0, (7,), generator=g),
    "uniform_": lambda g: norch.empty(7).uniform_(-1, 1, generator=g),
    "normal_": lambda g: norch.empty(7).normal_(generator=g),
    "bernoulli_": lambda g: norch.empty(30).bernoulli_(generator=g),
    "random_": lambda g: norch.empty(7, dtype=norch.int64).random_(0, 1000, generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_one_seed_one_sequence(name: str) -> None:
    draw = DRAWS[name]
    a, b, c = Generator().manual_seed(7), Generator().manual_seed(7), Generator().manual_seed(8)
    first, second = draw(a), draw(a)
    assert first.tolist() == draw(b).tolist()
    assert second.tolist() == draw(b).tolist()
    assert first.tolist() != second.tolist()
    assert first.tolist() != draw(c).tolist()
    norch.manual_seed(7)
    assert draw(None).tolist() == first.tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_state_brings_back_the_sequence(name: str) -> None:
    generator = Generator().manual_seed(3)
    DRAWS[name](generator)
    state = generator.get_state()
    after = DRAWS[name](generator).tolist()
    assert DRAWS[name](generator).tolist() != after
    generator.set_state(state)
    assert DRAWS[name](generator).tolist() == after


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_a_copy_of_a_generator_goes_on_by_itself(copied: Callable[[Generator], Generator]) -> None:
    generator = Generator().manual_seed(3)
    norch.rand(2, generator=generator)
    twin = copied(generator)
    assert norch.rand(2, generator=twin).tolist() == norch.rand(2, generator=generator).tolist()
    norch.rand(2, generator=twin)
    assert twin.get_state().tolist() != generator.get_state().tolist()


def test_the_default_generators_state() -> None:
    norch.manual_seed(11)
    assert norch.initial_seed() == 11
    state = norch.get_rng_state()
    first = norch.rand(5).tolist()
    norch.set_rng_state(state)
    assert norch.rand(5).tolist() == first


def test_a_generator_chosen_for_a_block() -> None:
    norch.manual_seed(11)
    expected = norch.rand(5).tolist()
    norch.manual_seed(11)
    own = Generator().manual_seed(5)
    with norch.use_generator(own) as given:
        assert given is own
        assert norch.current_generator() is own
        inside = norch.rand(5).tolist()
        dropped = norch.dropout(norch.ones(64), 0.5).tolist()
        with norch.use_generator(Generator().manual_seed(5)):
            assert norch.rand(5).tolist() == inside
            assert norch.dropout(norch.ones(64), 0.5).tolist() == dropped
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(norch.current_generator).result() is norch.default_generator
        norch.manual_seed(6)
    assert own.initial_seed() == 6
    assert norch.current_generator() is norch.default_generator
    assert norch.rand(5).tolist() == expected
    with pytest.raises(DTypeError, match=r"use_generator\(\): expected a Generator, got int"):
        norch.use_generator(3)  # type: ignore[arg-type]


def test_seeds() -> None:
    generator = Generator()
    assert generator.initial_seed() == generator.manual_seed(0).initial_seed()
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1
    assert generator.seed() == generator.initial_seed()
    assert generator.seed() != generator.seed()
    with pytest.raises(DTypeError, match="seed"):
        generator.manual_seed(1.5)  # type: ignore[arg-type]


def test_elements_do_not_depend_on_the_shape() -> None:
    shapes = [(24,), (4, 6), (2, 3, 4)]
    rows = [norch.rand(s, generator=Generator().manual_seed(1)).reshape(-1).tolist() for s in shapes]
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16, norch.float32, norch.float64], ids=lambda d: d.name)
def test_uniform(dtype: norch.DType) -> None:
    x = norch.rand(20_000, generator=Generator().manual_seed(0), dtype=dtype).double().numpy()
    assert x.min() >= 0
    assert x.max() < 1
    counts, _ = np.histogram(x, 16, (0, 1))
    assert ((counts - 1250) ** 2 / 1250).sum() < 45  # chi-squared, 15 degrees: 1 in 10,000
    y = norch.empty(1000, dtype=dtype).uniform_(2, 3, generator=Generator().manual_seed(0))
    assert 2 <= float(y.min()) <= float(y.max()) <= 3


def test_normal() -> None:
    x = norch.randn(100_000, generator=Generator().manual_seed(0), dtype=norch.float64).numpy()
    assert abs(x.mean()) < 0.015
    assert abs(x.std() - 1) < 0.01
    assert abs((x**3).mean()) < 0.05
    assert abs((x**4).mean() - 3) < 0.15
    assert np.isfinite(x).all()
    y = norch.normal(5.0, 0.5, (50_000,), generator=Generator().manual_seed(1))
    assert abs(float(y.mean()) - 5) < 0.02
    assert abs(float(y.std()) - 0.5) < 0.01
    means = norch.tensor([0.0, 100.0])
    assert norch.normal(means, norch.tensor([0.0, 0.0])).tolist() == [0, 100]
    assert norch.normal(means, 1.0).shape == (2,)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 10), (-5, 5), (0, 2**31), (-(2**61), 2**61), (2**40, 2**40 + 3)])
def test_randint(low: int, high: int) -> None:
    x = norch.randint(low, high, (5000,), generator=Generator().manual_seed(0))
    assert x.dtype is norch.int64
    assert low <= int(x.min()) <= int(x.max()) < high
    if high - low <= 10:
        counts = np.bincount((x - low).numpy(), minlength=high - low)
        assert counts.min() > 5000 / (high - low) * 0.8
    else:
        assert abs(float((x - low).double().mean()) / (high - low) - 0.5) < 0.02


def test_forms_of_randint() -> None:
    assert norch.randint(5, (2, 3)).shape == (2, 3)
    assert norch.randint(5, (2,), dtype=norch.int8).dtype is norch.int8
    assert norch.randint_like(norch.zeros(3), 2, 4).dtype is norch.float32
    assert set(norch.randint_like(norch.zeros(100), high=2).tolist()) == {0.0, 1.0}
    with pytest.raises(TypeError, match="high"):
        norch.randint_like(norch.zeros(3))
    for low, high in ((3, 3), (4, 3), (0, 2**64)):
        with pytest.raises(ShapeError, match="randint"):
            norch.randint(low, high, (2,))


@pytest.mark.parametrize("n", [0, 1, 2, 100, 5000])
def test_randperm(n: int) -> None:
    x = norch.randperm(n, generator=Generator().manual_seed(0))
    assert x.dtype is norch.int64
    assert sorted(x.tolist()) == list(range(n))
    if n >= 100:
        assert x.tolist() != list(range(n))
        assert abs(np.corrcoef(x.numpy(), np.arange(n))[0, 1]) < 0.3
    assert norch.randperm(n, dtype=norch.int32).dtype is norch.int32


def test_every_permutation_comes_equally_often() -> None:
    generator, counts = Generator().manual_seed(0), dict.fromkeys(range(6), 0)
    order = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    for _ in range(1200):
        counts[order.index(tuple(norch.randperm(3, generator=generator).tolist()))] += 1
    assert min(counts.values()) > 150


def test_bernoulli() -> None:
    generator = Generator().manual_seed(0)
    chances = norch.tensor([0.0, 0.25, 1.0]).expand(10_000, 3)
    x = norch.bernoulli(chances, generator=generator)
    assert x.dtype is norch.float32
    assert set(np.unique(x.numpy())) == {0, 1}
    mean = x.mean(0).tolist()
    assert (mean[0], mean[2]) == (0, 1)
    assert abs(mean[1] - 0.25) < 0.02
    assert norch.bernoulli(norch.zeros(5, dtype=norch.int64), 1.0).tolist() == [1] * 5
    with pytest.raises(DTypeError, match="bernoulli"):
        norch.bernoulli(norch.ones(2, dtype=norch.int64))


def test_draws_can_be_differentiated_around() -> None:
    mean = norch.zeros(3, requires_grad=True)
    (mean + norch.randn(3)).sum().backward()
    assert mean.grad.tolist() == [1, 1, 1]
    with norch.no_grad():
        mean.normal_(0, 1)
    assert mean.requires_grad
    assert norch.rand(2, requires_grad=True).is_leaf


def test_threads_draw_each_number_once() -> None:
    generator, parts, lock = Generator().manual_seed(5), [], threading.Lock()

    def work() -> None:
        for _ in range(50):
            drawn = norch.rand(4, generator=generator).tolist()
            with lock:
                parts.append(tuple(drawn))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = Generator().manual_seed(5)
    assert sorted(parts) == sorted(tuple(norch.rand(4, generator=again).tolist()) for _ in range(200))


def test_generators_leave_each_other_alone() -> None:
    norch.manual_seed(1)
    expected = norch.rand(3).tolist()
    norch.manual_seed(1)
    norch.rand(100, generator=Generator().manual_seed(9))
    np.random.rand(3)
    assert norch.rand(3).tolist() == expected


def test_states_are_tensors_as_scripts_expect() -> None:
    generator = Generator().manual_seed(2**64 - 1)
    generator.next()
    state = generator.get_state()
    assert (state.dtype, state.shape, str(state.device)) == (norch.uint8, (16,), "cpu")
    assert state.tolist() == [255] * 8 + [1] + [0] * 7
    assert Generator().set_state((2**64 - 1, 1)).get_state().tolist() == state.tolist()
    generator.next()
    assert state.tolist()[8] == 1  # not the generator's own memory
    for wrong in (norch.zeros(16), norch.zeros(5, dtype=norch.uint8), (1, 2, 3), "state", (0.5, 1), None):
        with pytest.raises(DTypeError, match="set_state"):
            norch.set_rng_state(wrong)  # type: ignore[arg-type]


def test_one_generator_serves_all_devices() -> None:
    norch.cpu.manual_seed(3)
    expected = norch.rand(3).tolist()
    norch.cuda.manual_seed_all(3)
    states = norch.cpu.get_rng_state_all()
    assert norch.rand(3).tolist() == expected
    assert norch.cuda.initial_seed() == 3
    norch.cpu.set_rng_state_all(states)
    assert norch.rand(3).tolist() == expected
    norch.cpu.seed()
    assert norch.initial_seed() != 3
    assert len(norch.cuda.get_rng_state_all()) == norch.cuda.device_count()
    assert norch.cuda.default_generators == (norch.default_generator,) * norch.cuda.device_count()
    assert norch.cpu.default_generators[0] is norch.default_generator


@pytest.mark.parametrize("enabled", [True, False])
def test_forked_randomness_leaves_no_trace(enabled: bool) -> None:
    norch.manual_seed(4)
    before = norch.get_rng_state().tolist()
    with norch.random.fork_rng(enabled=enabled):
        norch.manual_seed(5)
        norch.rand(2)
    assert (norch.get_rng_state().tolist() == before) == enabled


def test_every_draw_asks_a_generator_of_ones_own():
    class Counting(norch.Generator):
        asked = 0

        def next(self):
            self.asked += 1
            return super().next()

    own = Counting()
    with norch.use_generator(own):
        norch.randn(2)
        norch.rand_like(norch.ones(2))
        norch.randint(0, 9, (2,))
    assert own.asked == 3


def test_draws_in_the_shape_of_a_tensor_take_what_zeros_like_takes():
    x = norch.ones(2, 3, 4, 5)
    for draw in norch.rand_like, norch.randn_like, lambda x, **more: norch.randint_like(x, 2, **more):
        kept = draw(x, memory_format=norch.preserve_format, layout=norch.strided, pin_memory=False)
        assert (kept.shape, kept.dtype) == (x.shape, x.dtype)
        assert draw(x, memory_format=norch.channels_last).stride() == (60, 1, 15, 3)
        assert draw(x, requires_grad=True).requires_grad
        assert draw(x, dtype=norch.float64, out=norch.empty(0, dtype=norch.float64)).shape == x.shape
        with pytest.raises(TypeError, match="unexpected arguments? nothing"):
            draw(x, nothing=1)


WHOLE = {
    "bool": 1, "uint8": 255, "int8": 127, "int16": 2**15 - 1, "int64": 2**63 - 1, "float16": 2**11, "bfloat16": 2**8,
    "float32": 2**24, "float64": 2**53,
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_random_integers_of_all_that_a_dtype_holds(name):
    most, x = WHOLE[name], norch.empty(3000, dtype=getattr(norch, name))
    drawn = [int(v) for v in x.random_().tolist()]
    assert min(drawn) >= 0
    assert max(drawn) <= most
    assert max(drawn) > 0.9 * most
    if name in ("int8", "int64", "float32"):
        least = -most - 1 if name != "float32" else -most
        drawn = [int(v) for v in x.random_(least, None).tolist()]
        assert least <= min(drawn) < 0.9 * least
        assert 0.9 * most < max(drawn) <= most
        assert abs(sum(v < 0 for v in drawn) / 3000 - 0.5) < 0.06
    with pytest.raises(ShapeError, match="no integers, or too many"):
        norch.randint(0, 2**63 + 1, (2,))


def test_ranges_of_more_than_half_of_int64():
    drawn = norch.randint(-(2**62), 2**63 - 1, (3000,)).tolist()
    assert min(drawn) >= -(2**62)
    assert abs(sum(v < 0 for v in drawn) / 3000 - 1 / 3) < 0.06


@pytest.mark.parametrize("name", ["rand", "randn"])
def test_draws_into_out_are_those_of_its_dtype(name):
    out = norch.empty(0, dtype=norch.float64)
    norch.manual_seed(3)
    getattr(norch, name)(4, out=out)
    norch.manual_seed(3)
    assert getattr(norch, name)(4, dtype=norch.float64).tolist() == out.tolist()


def test_normal_numbers_of_tensors_go_into_out():
    out = norch.full((3,), 42.0)
    assert norch.normal(norch.zeros(3), 1e-3, out=out) is out
    assert float(out.abs().max()) < 1
    assert norch.normal(norch.zeros(2), norch.ones(2), requires_grad=True).requires_grad


def test_normal_of_a_size_takes_tensors_of_one_element():
    norch.manual_seed(3)
    found = norch.normal(norch.tensor(5), norch.tensor(2.0, dtype=norch.float64), size=(4, 3))
    norch.manual_seed(3)
    assert norch.equal(found, norch.normal(5.0, 2.0, (4, 3)))
    with pytest.raises(norch.ShapeError):
        norch.normal(norch.zeros(2), 1.0, (3,))
    with pytest.raises(norch.ShapeError, match="must not be negative"):
        norch.normal(0.0, norch.tensor(-1.0), (3,))


@pytest.mark.parametrize(("given", "seed"), [(3.7, 3), ("5", 5), (True, 1), (np.int64(7), 7)])
def test_seeds_are_what_int_makes_of_them(given: Any, seed: int) -> None:
    """As PyTorch's: CompressAI seeds by random.random()."""
    assert norch.manual_seed(given).initial_seed() == seed
    with pytest.raises(norch.DTypeError, match="seed must be an int"):
        norch.manual_seed(None)
