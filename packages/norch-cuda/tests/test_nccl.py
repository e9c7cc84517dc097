"""The engine "nccl": what it says where it cannot be used, one process, and two processes on two GPUs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import norch

WORKER = Path(__file__).with_name("nccl_worker.py")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
CHECKS = (
    "reductions", "reduce", "broadcast", "all_gather", "reduce_scatter", "exchange", "nothing", "waiting", "memory",
    "graph", "two_groups", "together", "late",
)  # fmt: skip


def load_engine():
    pytest.importorskip("norch.distributed")
    from norch_cuda import nccl

    return nccl.norch_engine()


# --- Without a GPU ----------------------------------------------------------------------------------------------------


def test_it_is_declared_as_an_engine():
    assert [e.value for e in entry_points(group="norch.distributed") if e.name == "nccl"] == ["norch_cuda.nccl"]


def test_a_missing_library_says_what_to_install():
    show = (
        "import ctypes, sys\n"
        "try:\n    ctypes.CDLL('libnccl.so.2')\nexcept OSError:\n    pass\nelse:\n    sys.exit('the system has it')\n"
        "from norch_cuda import _ext\n"
        "_ext.set_library_finder(lambda name: '')\n"
        "try:\n    _ext.nccl_version()\nexcept RuntimeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    assert "libnccl.so.2, which collectives of CUDA tensors need, cannot be loaded: " in done.stdout
    assert "`pip install norch-cuda[nccl]` has it" in done.stdout


def test_without_a_gpu_it_says_why():
    engine = load_engine()
    if norch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "NVIDIA" in engine.unusable_reason()
    assert engine.device_types == {"cuda"}


def test_what_it_reduces():
    from_module = pytest.importorskip("norch_cuda.nccl", exc_type=ImportError)
    group = from_module.NCCLCommunicator(None, 2, 1.0)
    for name in DTYPES:
        dtype = getattr(norch, name)
        assert all(group.reduces(dtype, op) for op in ("sum", "product", "min", "max"))
        assert group.reduces(dtype, "avg") == dtype.is_floating_point
        assert not any(group.reduces(dtype, op) for op in ("band", "bor", "bxor"))
    assert not group.reduces(norch.bool, "sum")
    x = norch.ones(2)
    with pytest.raises(NotImplementedError, match="have no tags"):
        group.exchange([(x, 1)], [], tag=3)
    with pytest.raises(NotImplementedError, match="needs the rank"):
        group.exchange([], [(x, None)])


def test_a_missing_member_and_a_shared_gpu_are_named():
    pytest.importorskip("norch.distributed")
    from norch.distributed.store import HashStore
    from norch_cuda.nccl import _find_problem

    store = HashStore()
    store.set("nccl/0", json.dumps(["a", "cuda:0 (X) of here"]))
    assert _find_problem([3, 5, 7], store, time.monotonic(), 9) == "nccl: ranks 5, 7 of 3 did not come within 9 s"
    store.set("nccl/1", json.dumps(["b", "cuda:1 (X) of here"]))
    store.set("nccl/2", json.dumps(["a", "cuda:0 (X) of here"]))
    problem = _find_problem([3, 5, 7], store, time.monotonic() + 9, 9)
    assert problem.startswith("nccl: ranks 3 and 7 both use cuda:0 (X) of here, and NCCL needs a GPU for each")
    store.set("nccl/2", json.dumps(["c", "cuda:2 (X) of here"]))
    assert _find_problem([3, 5, 7], store, time.monotonic() + 9, 9) == ""


# --- One process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def group(cuda):
    engine = load_engine()
    if reason := engine.unusable_reason():
        pytest.skip(reason)
    from norch.distributed.store import HashStore

    group = engine.connect([0], 0, HashStore(), 60)
    yield group
    group.close()


def keep_busy():
    """Work for many milliseconds."""
    x = norch.ones(1 << 27, device="cuda")
    for _ in range(100):
        x.mul_(1.0)
    return x


@pytest.mark.parametrize("name", DTYPES)
def test_every_reduction(group, name):
    x = norch.arange(100, device="cuda").to(getattr(norch, name))
    want = x.tolist()
    for op in ("sum", "product", "min", "max", "avg"):
        if group.reduces(x.dtype, op):
            assert group.all_reduce(x, op).chain()
            assert group.reduce(x, op, 0).chain()
            out = norch.zeros(100, device="cuda", dtype=x.dtype)
            group.reduce_scatter(out, x, op).chain()
            assert x.tolist() == out.tolist() == want


@pytest.mark.parametrize("name", [*DTYPES, "bool", "uint16", "float8_e5m2"])
def test_every_dtype_can_be_moved(group, name):
    x = norch.arange(60, device="cuda").to(getattr(norch, name))
    out, other = norch.zeros_like(x), norch.zeros_like(x)
    group.broadcast(x, 0).chain()
    group.all_gather(out, x).chain()
    group.exchange([(x[20:50], 0)], [(other[10:40], 0)]).chain()
    assert out.to(norch.float32).tolist() == x.to(norch.float32).tolist()
    assert other[10:40].to(norch.float32).tolist() == x[20:50].to(norch.float32).tolist()
    assert not other[:10].to(norch.float32).any()


def test_the_device_waits_and_the_host_does_not(group):
    busy, x = keep_busy(), norch.zeros(1000, device="cuda")
    x.add_(busy[:1000])
    out = norch.zeros(1000, device="cuda")
    request = group.all_gather(out, x)
    assert not request.test(), "the call waited for the device"
    assert request.chain()
    result = out + 1
    assert not request.test()
    assert result.sum().item() == 2000
    assert request.test()
    assert request.test()


def by_another_stream(out, side):
    with norch.cuda.stream(side):
        return out + 0


USES = {
    "op": lambda out, side: out + 0,
    "in place": lambda out, side: out.add_(0.0),
    "view": lambda out, side: out.view(10, 100)[1:] + 0,
    "copy": lambda out, side: out.tolist(),
    "address": lambda out, side: out.data_ptr(),
    "event": lambda out, side: norch.cuda.Event().record(),
    "other stream": by_another_stream,
    "collective": None,
    "synchronize": lambda out, side: norch.cuda.current_stream().synchronize(),
}


@pytest.mark.parametrize("use", USES)
def test_the_device_waits_when_it_uses_the_result(group, use):
    side, third = norch.cuda.Stream(), norch.cuda.Stream()
    out, free = norch.zeros(1000, device="cuda"), norch.zeros(1000, device="cuda")
    group.all_gather(norch.zeros_like(free), free).chain()
    side.wait_stream(norch.cuda.current_stream())
    with norch.cuda.stream(side):
        busy = keep_busy()
        request = group.all_gather(out, busy[:1000])
    assert request.chain_late()
    assert (free + 1).tolist() == [1.0] * 1000
    assert not request.test(), "what does not use the result waited for it"
    USES[use](out, third) if USES[use] else group.all_reduce(free, "sum").chain()
    assert (free + 1).tolist() == [1.0] * 1000
    assert request.test(), "the stream did not wait"
    assert out.tolist() == [1.0] * 1000


def test_a_late_result_that_nobody_uses_is_let_go(group):
    def allocated():
        norch.cuda.synchronize()
        return norch.cuda.memory_allocated()

    x = norch.ones(1 << 20, device="cuda")
    before = allocated()
    for _ in range(3):
        out = norch.empty_like(x)
        group.all_gather(out, x).chain_late()
        del out
        kept = norch.full((1 << 20,), 7.0, device="cuda")
        assert kept.amin().item() == 7.0
    del kept
    assert allocated() == before


def test_a_graph_does_not_miss_late_results(group):
    x, graph = norch.zeros(1000, device="cuda"), norch.cuda.CUDAGraph()
    side = norch.cuda.Stream()
    with norch.cuda.graph(graph):
        y = x + 1
    for i in range(3):
        side.wait_stream(norch.cuda.current_stream())
        with norch.cuda.stream(side):
            busy = keep_busy() * i
            request = group.all_gather(x, busy[:1000])
        request.chain_late()
        graph.replay()
        assert y.tolist() == [i + 1.0] * 1000


def test_memory_in_use_is_not_given_away(group):
    x = norch.full((1 << 22,), 3.0, device="cuda")
    group.all_gather(norch.empty_like(x), x).chain()
    norch.cuda.synchronize()
    outs = []
    for i in range(8):
        busy = norch.ones(1 << 26, device="cuda")
        for _ in range(10):
            busy.mul_(1.0)
        side = norch.cuda.Stream()
        x = norch.full((1 << 20,), float(i), device="cuda")
        out = norch.zeros(1 << 20, device="cuda")
        side.wait_stream(norch.cuda.current_stream())
        with norch.cuda.stream(side):
            request = group.all_gather(out, x)
        del x
        if i % 3:
            request.chain() if i % 2 else request.chain_late()
        del request  # nobody waits for it
        norch.full((1 << 20,), -1.0, device="cuda")  # would take the memory
        outs.append(out)
    norch.cuda.synchronize()
    assert [out.amax().item() for out in outs] == [out.amin().item() for out in outs] == list(range(8))


def test_a_graph_holds_collectives(group):
    x, out = norch.ones(1000, device="cuda"), norch.zeros(1000, device="cuda")
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        y = x * 2
        group.all_reduce(y, "sum").chain()
        request = group.all_gather(out, y)
        assert request.test()
        request.chain()
        result = out + 1
    request.chain()
    assert out.sum().item() == 0
    for i in range(3):
        x.fill_(i)
        graph.replay()
        assert result.tolist() == [2.0 * i + 1] * 1000
        after = norch.zeros(1000, device="cuda")
        group.all_gather(after, result).chain()
        assert after.tolist() == result.tolist()
    del graph  # NCCL does not end a group whose collectives a graph still holds


def test_operands_are_checked(group):
    native = group._native
    x = norch.ones(4, device="cuda")
    with pytest.raises(ValueError, match="do not lie in a buffer"):
        native.all_reduce(x.buffer, 0, 1 << 20, 7, 0)
    with pytest.raises(TypeError, match="expected a norch_cuda.Buffer"):
        native.all_reduce(norch.ones(4).buffer, 0, 4, 7, 0)
    if norch.cuda.device_count() > 1:
        with pytest.raises(ValueError, match="the group is on cuda:0, a tensor on cuda:1"):
            group.all_reduce(norch.ones(4, device="cuda:1"), "sum")


def test_what_was_ended_says_so(cuda):
    engine = load_engine()
    if reason := engine.unusable_reason():
        pytest.skip(reason)
    from norch.distributed.errors import DistributedError
    from norch.distributed.store import HashStore

    x = norch.ones(4, device="cuda")
    closed, aborted = (engine.connect([0], 0, HashStore(), 60) for _ in range(2))
    request = closed.all_reduce(x, "sum")
    closed.close()
    assert request.test()
    with pytest.raises(DistributedError, match="nccl: the group was closed"):
        closed.all_reduce(x, "sum")
    request = aborted.all_reduce(x, "sum")
    aborted.abort()
    for call in (request.test, request.chain, lambda: aborted.all_reduce(x, "sum")):
        with pytest.raises(DistributedError, match="nccl: the group was aborted"):
            call()
    norch.cuda.synchronize()


# --- Several processes ------------------------------------------------------------------------------------------------


def run_job(check, tmp_path, ranks=(0, 1), limit=60):
    """What each of the processes prints, which get the variables of torchrun's."""
    jobs = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for rank in ranks:
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, str(WORKER), check, str(tmp_path / "store")]
        jobs.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        return [job.communicate(timeout=limit)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


@pytest.fixture
def usable(cuda):
    if reason := load_engine().unusable_reason():
        pytest.skip(reason)


@pytest.fixture
def two_gpus(usable):
    if norch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What each check of two processes said, by its name."""
    found = {}

    def ask(check):
        if not found:
            shown = run_job("all", tmp_path_factory.mktemp("nccl"))
            for rank, text in enumerate(shown):
                lines = [line for line in text.splitlines() if line.startswith("{")]
                assert lines, f"rank {rank}: {text}"
                found[rank] = json.loads(lines[-1])
        return [found[rank][check] for rank in (0, 1)]

    return ask


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes(two_gpus, outcome, check):
    assert outcome(check) == ["ok", "ok"]


def test_two_processes_by_the_names_of_norch_distributed(two_gpus, tmp_path):
    for shown in run_job("by_names", tmp_path):
        assert "all names ok" in shown, shown


def test_two_processes_on_one_gpu(usable, tmp_path):
    for shown in run_job("shared_gpu", tmp_path):
        assert "DistributedError: nccl: ranks 0 and 1 both use cuda:0 (NVIDIA" in shown
        assert "call norch.cuda.set_device(local_rank) before init_process_group()" in shown


def test_a_member_that_does_not_come(usable, tmp_path):
    start = time.monotonic()
    (shown,) = run_job("absent", tmp_path, ranks=[0])
    assert "DistributedError: nccl: rank 1 of 2 did not come within 3 s" in shown
    (shown,) = run_job("absent", tmp_path / "..", ranks=[1])
    assert "DistributedError: nccl: rank 0 did not come within 3 s" in shown
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("check", ["abort_first", "abort_later"])
def test_what_waits_for_a_member_that_hangs_can_be_aborted(two_gpus, tmp_path, check):
    """In the first collective the host waits for the connection, later the device for the other one."""
    waiting, hanging = run_job(check, tmp_path)
    assert "nccl: the group was aborted" in waiting, waiting
    seconds = float(waiting.split("ended after ")[1].split()[0])
    assert seconds < 5
    assert "hangs" in hanging


@pytest.mark.parametrize(
    ("check", "limit", "said"),
    [
        ("killed", 4, "rank 1 on .* is dead; its last was collective 2, all_reduce"),
        ("flooded", 7, r"all_reduce.* did not end within 4 s: rank 1 on .*: MISSING; its last was"),
        ("hung", 7, r"all_reduce.* did not end within 4 s: rank 1 on .*: MISSING; its last was"),
        (
            "mismatch",
            4,
            r"collective 3 is not the same on all ranks: rank 0: .*\(100,\).*, rank 1: .*\(101,\)",
        ),
    ],
)
def test_who_is_to_blame_is_said_where_only_the_device_waits(two_gpus, tmp_path, check, limit, said):
    waiting, other = run_job(check, tmp_path)
    assert re.search(f"norch.distributed: rank 0: .*{said}", waiting), waiting
    assert "were given up, and what they were to write is not there" in waiting
    assert re.search(f"this group has failed before: .*{said}", waiting), waiting
    assert float(waiting.split("ended after ")[1].split()[0]) < limit
    if check == "mismatch":
        assert re.search(said, other)
