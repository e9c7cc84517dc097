"""The allocator: what it counts, when it gives memory back, what it says when there is none; pinned memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import norch


def test_memory_is_counted_and_used_again(cuda):
    norch.cuda.empty_cache()
    before = norch.cuda.memory_allocated()
    x = norch.zeros(1 << 20, device=cuda)
    address = x.data_ptr()
    assert norch.cuda.memory_allocated() - before == 4 << 20
    assert norch.cuda.max_memory_allocated() >= norch.cuda.memory_allocated()
    assert norch.cuda.memory_reserved() >= norch.cuda.memory_allocated()
    del x
    assert norch.cuda.memory_allocated() == before
    assert norch.zeros(1 << 20, device=cuda).data_ptr() == address


def test_small_blocks_do_not_overlap(cuda):
    tensors = [norch.full((n,), float(n), device=cuda) for n in range(1, 700)]
    for n, x in enumerate(tensors, 1):
        assert x.data_ptr() % 256 == 0
        assert x.tolist() == [float(n)] * n


def test_the_cache_is_given_back(cuda):
    norch.cuda.empty_cache()
    before = norch.cuda.memory_reserved()
    x, y = norch.zeros(1 << 22, device=cuda), norch.zeros(100, device=cuda)
    del x, y
    gc.collect()
    assert norch.cuda.memory_reserved() > before
    norch.cuda.empty_cache()
    assert norch.cuda.memory_reserved() <= before


def test_the_peak_can_be_reset(cuda):
    norch.zeros(1 << 22, device=cuda)
    norch.cuda.reset_peak_memory_stats()
    assert norch.cuda.max_memory_allocated() == norch.cuda.memory_allocated()
    assert norch.cuda.max_memory_reserved() == norch.cuda.memory_reserved()


def test_names_that_pytorch_has_for_the_same(cuda):
    x = norch.zeros(1 << 20, device=cuda)
    norch.cuda.reset_max_memory_allocated()
    assert norch.cuda.max_memory_allocated() == norch.cuda.memory_allocated() >= x.nbytes
    assert norch.cuda.memory_cached() == norch.cuda.memory_reserved()
    assert norch.cuda.max_memory_cached() == norch.cuda.max_memory_reserved()
    assert f"{norch.cuda.memory_allocated() / 2**20:,.1f} MiB" in norch.cuda.memory_summary()
    assert len(norch.cuda.memory_summary(abbreviated=True)) < len(norch.cuda.memory_summary())
    stats = norch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["active_bytes.all.current"] == norch.cuda.memory_allocated()
    assert stats["reserved_bytes.all.peak"] == norch.cuda.max_memory_reserved()
    assert stats["num_ooms"] == stats["out_of_memory_errors"] <= stats["num_alloc_retries"] == stats["retries"]
    norch.cuda.reset_accumulated_memory_stats()
    counts = [norch.cuda.memory_stats()[name] for name in ("allocations", "num_ooms", "num_alloc_retries")]
    assert counts == [0, 0, 0]
    stats = norch.cuda.memory_stats()
    assert norch.accelerator.memory_stats() == stats
    assert norch.accelerator.get_memory_info()[1] == norch.cuda.mem_get_info()[1]
    assert norch.accelerator.current_stream() == norch.cuda.current_stream()
    with norch.accelerator.device_index(0), norch.accelerator.device_index(None):
        assert norch.accelerator.current_device_index() == 0
    norch.cuda.init()
    assert norch.cuda.ipc_collect() is None
    assert norch.cuda.is_initialized()
    assert norch.cuda.is_tf32_supported() == (norch.cuda.get_device_capability()[0] >= 8)
    with norch.cuda.device_of(x):
        assert norch.cuda.current_device() == x.device.index


def test_too_much_says_what_was_asked_for_and_what_there_is(cuda):
    gc.collect()
    total, before = norch.cuda.get_device_properties().total_memory, norch.cuda.memory_stats()
    with pytest.raises(
        norch.OutOfMemoryError, match=rf"cannot allocate \d+ bytes: \d+ are in use, \d+ reserved, of {total}"
    ):
        norch.empty(2 * total, dtype=norch.uint8, device=cuda)
    after = norch.cuda.memory_stats()
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"] + 1
    assert norch.ones(3, device=cuda).sum().item() == 3


def test_the_cache_makes_room_before_memory_is_out(cuda):
    free = norch.cuda.get_device_properties().total_memory - norch.cuda.memory_reserved()
    size = int(free * 0.6)
    x = norch.empty(size, dtype=norch.uint8, device=cuda)
    del x  # cached now; another size does not fit beside it
    y = norch.empty(int(size * 0.7), dtype=norch.uint8, device=cuda)
    z = norch.empty(int(size * 0.6), dtype=norch.uint8, device=cuda)
    assert y.numel() + z.numel() > size
    del y, z
    norch.cuda.empty_cache()


def test_pinned_memory_goes_over_and_back(cuda):
    values = np.arange(100_000, dtype=np.float32)
    pinned = norch.cuda.pin_memory(norch.tensor(values))
    assert pinned.device.type == "cpu"
    assert norch.cuda.memory_stats()["pinned_bytes"] >= values.nbytes
    moved = pinned.to(cuda, non_blocking=True)
    np.testing.assert_array_equal(moved.cpu().numpy(), values)


def test_what_a_copy_still_reads_is_not_freed(cuda):
    copies = []
    for i in range(50):
        pinned = norch.cuda.pin_memory(norch.full((100_000,), float(i)))
        copies.append(pinned.to(cuda))
        del pinned
    assert [x[99_999].item() for x in copies] == list(range(50))


@pytest.mark.parametrize("count", [0, 1, 3, 1000, (1 << 18) + 1, 1 << 22, (1 << 24) + 5])
def test_host_data_of_every_size(cuda, count):
    values = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(norch.tensor(values).to(cuda).cpu().numpy(), values)


@pytest.mark.parametrize(
    "nbytes", [0, 1, 256, 257, 2048, 2049, 70_000, 262_144, 300_000, (5 << 20) + 1, (70 << 20) + 1]
)
def test_what_is_counted_for_a_tensor_can_be_told(cuda, nbytes):
    norch.cuda.empty_cache()
    before = norch.cuda.memory_allocated()
    x = norch.empty(nbytes, dtype=norch.uint8, device=cuda)
    counted = norch.cuda.memory_allocated() - before
    assert counted == norch.cuda.allocated_size(nbytes) if nbytes else counted <= 256
    del x


def test_free_memory_is_cudas(cuda):
    norch.cuda.empty_cache()
    free, total = norch.cuda.mem_get_info(cuda)
    assert 0 < free < total
    x = norch.empty(64 << 20, dtype=norch.uint8, device=cuda)
    assert free - norch.cuda.mem_get_info()[0] >= 64 << 20
    del x


def test_a_convolution_tells_the_memory_that_it_takes(cuda):
    pytest.importorskip("norch.nn")
    model, x = norch.nn.Conv2d(32, 64, 3, padding=1).to(cuda), norch.randn(16, 32, 32, 32, device=cuda)
    told = norch.fits(model, x, loss=lambda out: out.square().mean(), largest_batch=False)
    before = norch.cuda.memory_allocated() - 4 * (x.numel() + sum(p.numel() for p in model.parameters()))
    norch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        model.zero_grad()
        out = model(x)
        loss = out.square().mean()
        loss.backward()
    measured = norch.cuda.max_memory_allocated() - before
    assert 0.9 < told.peak / measured < 1.1


def test_a_part_of_the_memory(cuda):
    norch.cuda.empty_cache()
    reserved, total = norch.cuda.memory_reserved(), norch.cuda.get_device_properties().total_memory
    try:
        norch.cuda.set_per_process_memory_fraction((reserved + (64 << 20)) / total)
        x = norch.empty(8 << 20, device=cuda)
        del x
        with pytest.raises(norch.OutOfMemoryError):
            norch.empty(32 << 20, device=cuda)
        y = norch.empty(12 << 20, device=cuda)  # when what was kept has been given back
        assert norch.cuda.memory_reserved() <= reserved + (64 << 20)
        del y
    finally:
        norch.cuda.set_per_process_memory_fraction(1.0)
    norch.empty(32 << 20, device=cuda)
    with pytest.raises(ValueError, match="from 0 to 1"):
        norch.cuda.set_per_process_memory_fraction(2.0)


class Cycle:
    def __init__(self, nbytes):
        self.held, self.itself = norch.empty(nbytes, dtype=norch.uint8, device="cuda"), self


@pytest.fixture
def little_memory(cuda):
    """64 MiB more than what is in use, and Python's collector is off."""
    gc.collect()
    norch.cuda.empty_cache()
    reserved, total = norch.cuda.memory_reserved(), norch.cuda.get_device_properties().total_memory
    norch.cuda.set_per_process_memory_fraction((reserved + (64 << 20)) / total)
    gc.disable()
    yield
    gc.enable()
    norch.cuda.set_per_process_memory_fraction(1.0)


def test_garbage_is_collected_before_memory_is_out(little_memory):
    failures = norch.cuda.memory_stats()["num_ooms"]
    for _ in range(5):
        Cycle(40 << 20)
    assert norch.cuda.memory_stats()["num_ooms"] == failures
    kept = norch.empty(60 << 20, dtype=norch.uint8, device="cuda")
    with pytest.raises(norch.OutOfMemoryError):
        norch.empty(60 << 20, dtype=norch.uint8, device="cuda")
    assert norch.cuda.memory_stats()["num_ooms"] == failures + 1
    del kept


def test_a_captured_step_collects_garbage_for_its_memory(little_memory):
    x = norch.ones(1 << 20, device="cuda")

    @norch.capture
    def step(x):
        return norch.cat([x] * 4).cumsum(0)[-1]

    for _ in range(3):
        step(x)
    norch.cuda.empty_cache()
    Cycle(30 << 20)
    assert step(x).item() == 4 << 20  # the first replay, which takes 32 MiB for what is between
    assert step.report().replayed == 1


def test_garbage_that_computes_is_collected_in_the_middle_of_nothing(little_memory):
    """A finaliser may launch kernels, on another stream too; the op that made room for itself is right afterwards."""
    side, seen = norch.cuda.Stream(), []

    class Computes(Cycle):
        def __del__(self):
            with norch.cuda.stream(side):
                seen.append((norch.ones(1000, device="cuda") * 3).sum())

    x = norch.arange(1 << 22, device="cuda", dtype=norch.float32)
    Computes(40 << 20)
    assert (x + x).tolist()[:3] == [0, 2, 4]
    y = norch.cat([x, x])
    side.synchronize()
    assert [z.item() for z in seen] == [3000]
    assert y[-1].item() == (1 << 22) - 1
