"""Streams, events, graphs, the current device; nothing waits that need not."""

from __future__ import annotations

import pytest

import norch


def keep_busy(cuda):
    """Work for many milliseconds."""
    x = norch.ones(1 << 27, device=cuda)
    for _ in range(200):
        x.mul_(1.0)
    return x


def test_work_of_two_streams_is_ordered_by_events(cuda):
    side = norch.cuda.Stream()
    x = keep_busy(cuda)
    y = x[:1000] + 1
    side.wait_stream(norch.cuda.current_stream())
    with norch.cuda.stream(side):
        assert norch.cuda.current_stream() == side
        z = y * 2
    norch.cuda.current_stream().wait_stream(side)
    assert z.sum().item() == 4000
    assert norch.cuda.current_stream() == norch.cuda.default_stream()


def test_memory_used_on_another_stream_is_not_given_away_too_early(cuda):
    side = norch.cuda.Stream()
    for _ in range(20):
        x = norch.full((1 << 20,), 3.0, device=cuda)
        side.wait_stream(norch.cuda.current_stream())
        with norch.cuda.stream(side):
            big = norch.ones(1 << 24, device=cuda)
            for _ in range(10):
                big.mul_(1.0)
            y = x + 1
        del x
        norch.full((1 << 20,), 7.0, device=cuda)  # would take the same memory
        side.synchronize()
        assert y.amax().item() == y.amin().item() == 4


def test_memory_that_others_use_on_a_stream_is_kept_for_it(cuda):
    """As a collective does, whose kernels norch does not launch."""
    side, done = norch.cuda.Stream(), norch.cuda.Event()
    norch.cuda.empty_cache()
    x = norch.full((1 << 20,), 3.0, device=cuda)
    pointer = x.data_ptr()
    norch.cuda.synchronize()
    with norch.cuda.stream(side):
        busy = keep_busy(cuda)
        done.record()
    x.record_stream(side)
    del x
    y = norch.full((1 << 20,), 7.0, device=cuda)
    if y.data_ptr() == pointer:  # then what writes it comes after what the side stream was given
        norch.cuda.current_stream().synchronize()
        assert done.query()
    norch.cuda.synchronize()
    assert busy[0].item() == 1
    norch.ones(3, device=cuda).record_stream(norch.cuda.default_stream())
    with pytest.raises(TypeError, match=r"expected a norch.cuda.Stream, got NoneType"):
        norch.ones(3, device=cuda).record_stream(None)


def test_events_tell_time_and_order(cuda):
    start, end = norch.cuda.Event(enable_timing=True), norch.cuda.Event(enable_timing=True)
    start.record()
    keep_busy(cuda)
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        norch.cuda.Event().elapsed_time(end)


def test_events_are_recorded_on_streams_that_are_named(cuda):
    side, done = norch.cuda.Stream(), norch.cuda.Event()
    x = norch.zeros(1000, device=cuda)
    start = norch.cuda.current_stream().record_event()
    start.wait(side)
    with norch.cuda.stream(side):
        busy = keep_busy(cuda)
        y = x + 1
    done.record(side)
    assert not done.query(), "the event was recorded on the current stream"
    done.wait(norch.cuda.current_stream())
    assert (y * 2).sum().item() == 2000
    assert done.query()
    assert busy[0].item() == 1
    again = norch.cuda.Event(enable_timing=True)
    again.record(stream=norch.cuda.current_stream())
    assert norch.cuda.Stream().record_event(again) is again
    assert isinstance(start, norch.cuda.Event)


def test_streams_of_other_libraries(cuda):
    side = norch.cuda.Stream()
    found = norch.cuda.ExternalStream(side.cuda_stream)
    assert found == side == norch.cuda.get_stream_from_external(side.cuda_stream, cuda)
    assert isinstance(found, norch.cuda.Stream)
    assert norch.cuda.ExternalStream(0) == norch.cuda.default_stream()
    assert norch._C._cuda_getCurrentRawStream(0) == norch.cuda.current_stream().cuda_stream
    with norch.cuda.stream(found):
        assert (norch.ones(3, device=cuda) * 2).tolist() == [2, 2, 2]


def test_what_scripts_ask_of_cuda(cuda):
    runtime = norch.cuda.cudart()
    assert runtime.cudaProfilerStart() == runtime.cudaProfilerStop() == 0
    assert runtime.cudaMemGetInfo(0)[1] == norch.cuda.mem_get_info()[1]
    assert norch.cuda.can_device_access_peer(0, 0) is False
    norch.cuda.set_sync_debug_mode("default")
    assert norch.cuda.get_sync_debug_mode() == 0
    with pytest.raises(norch.LackingError, match="profile shows"):
        norch.cuda.set_sync_debug_mode("warn")
    try:
        version = norch.cuda.nccl.version()
    except RuntimeError:
        pytest.skip("needs NCCL")
    assert version >= (2, 0, 0)


def test_a_training_loop_that_reads_nothing_back_never_waits(cuda):
    nn, optim = pytest.importorskip("norch.nn"), pytest.importorskip("norch.optim")
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(cuda)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    images, labels = norch.randn(16, 64), norch.randint(0, 10, (16,))

    def step():
        loss = criterion(model(images.to(cuda)), labels.to(cuda))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step().item()
    done = norch.cuda.Event()
    busy = keep_busy(cuda)
    done.record()
    loss = step()
    assert not done.query(), "a step waited for the device"
    assert loss.item() > 0
    assert busy[0].item() == 1


def test_a_copy_to_pinned_memory_need_not_wait(cuda):
    pinned = norch.cuda.pin_memory(norch.zeros(1000))
    x = norch.arange(2000, device=cuda, dtype=norch.float32)
    done = norch.cuda.Event()
    busy = keep_busy(cuda)
    pinned.copy_(x[1000:], non_blocking=True)
    done.record()
    assert not done.query(), "the copy waited for the device"
    norch.cuda.synchronize()
    assert pinned.tolist() == list(range(1000, 2000))
    assert busy[0].item() == 1
    with pytest.raises(norch.ShapeError):
        pinned.copy_(x, non_blocking=True)
    pageable = norch.zeros(2000)
    assert pageable.copy_(x, non_blocking=True).tolist() == list(range(2000))


def test_a_graph_replays_what_was_recorded(cuda):
    x, w = norch.ones(8, 4, device=cuda), norch.full((4,), 2.0, device=cuda)
    for _ in range(3):
        (x * w + 1).exp()
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        assert norch.cuda.is_current_stream_capturing()
        y = (x * w + 1) * 0.5
        z = y + 1  # memory is taken and given back while recording
        del y
        out = z * 2
    assert not norch.cuda.is_current_stream_capturing()
    graph.replay()
    assert out.tolist() == [[5.0] * 4] * 8
    x.copy_(norch.zeros(8, 4, device=cuda))
    other = [norch.full((8, 4), -1.0, device=cuda) for _ in range(50)]  # takes none of the graph's memory
    graph.replay()
    assert out.tolist() == [[3.0] * 4] * 8
    assert all(t.tolist() == [[-1.0] * 4] * 8 for t in other)


def test_tensors_from_outside_may_go_while_a_graph_is_recorded(cuda):
    side = norch.cuda.Stream()
    x, y = norch.ones(1 << 20, device=cuda), norch.full((1 << 20,), 2.0, device=cuda)
    side.wait_stream(norch.cuda.current_stream())
    with norch.cuda.stream(side):
        z = norch.full((1 << 20,), 3.0, device=cuda)
    norch.cuda.current_stream().wait_stream(side)
    z.mul_(1.0)
    kept, graph = y, norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph, stream=side):
        out = y + 1
        x * y
        before = norch.cuda.memory_allocated()
        del x, z
        assert norch.cuda.memory_allocated() == before  # their streams cannot wait for one that is recorded
    assert norch.cuda.memory_allocated() <= before - (8 << 20)
    graph.replay()
    assert out[0].item() == 3
    assert kept[0].item() == 2


def test_what_cannot_be_recorded_says_so(cuda):
    graph = norch.cuda.CUDAGraph()
    with pytest.raises(Exception, match="cannot be recorded in a graph"), norch.cuda.graph(graph):
        norch.ones(3, device=cuda).tolist()
    assert norch.ones(3, device=cuda).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="has not been recorded"):
        norch.cuda.CUDAGraph().replay()


def test_devices_are_counted_and_chosen(cuda):
    count = norch.cuda.device_count()
    assert norch.cuda.current_device() == 0
    assert norch.ones(1, device="cuda").device == norch.device("cuda:0")
    with pytest.raises(norch.DeviceError, match=f"cuda:{count}: there"):
        norch.ones(1, device=f"cuda:{count}")
    with norch.cuda.device(count - 1):
        assert norch.ones(1, device="cuda").device.index == count - 1
    assert norch.cuda.current_device() == 0
    assert "NVIDIA" in norch.cuda.get_device_name()
    properties = norch.cuda.get_device_properties(0)
    assert properties.warp_size == 32
    assert properties.L2_cache_size == properties.l2_cache_size > 0
    assert properties.shared_memory_per_block_optin >= properties.shared_memory_per_block >= 48 << 10
    assert properties.max_threads_per_multi_processor >= properties.max_threads_per_block == 1024
    assert norch.cuda.get_device_capability() == norch.cuda.get_device_capability(norch.cuda.device(0)) >= (8, 0)


def test_two_devices(cuda):
    if norch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = norch.arange(1000, device="cuda:1", dtype=norch.float32)
    y = x.to("cuda:0") * 2
    assert (y.to("cuda:1") - x).sum().item() == 499500
    with pytest.raises(norch.DeviceError):
        x + y


def test_a_stream_can_be_set_for_good(cuda):
    side, before = norch.cuda.Stream(), norch.cuda.current_stream()
    norch.cuda.set_stream(side)
    try:
        norch.cuda.set_stream(None)
        assert norch.cuda.current_stream() == side
        assert (norch.ones(3, device=cuda) + 1).tolist() == [2, 2, 2]
    finally:
        norch.cuda.set_stream(before)
    assert norch.cuda.current_stream() == before
    assert norch.cuda.StreamContext is norch.cuda.stream


def test_streams_tell_their_priority(cuda):
    least, greatest = norch.cuda.Stream.priority_range()
    assert least == 0 > greatest
    assert norch.cuda.Stream().priority == norch.cuda.default_stream().priority == 0
    side = norch.cuda.Stream(priority=-1)
    assert side.priority == -1
    with side:
        assert norch.cuda.current_stream().priority == -1
    assert norch.cuda.Stream(priority=-1000).priority == greatest
