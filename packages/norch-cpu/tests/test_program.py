"""A list of kernel calls as one: Backend.program."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import norch
from norch.backend import Fed, IndexOutOfBounds, Operand, Place
from norch.device import CPU
from norch.dtype import float32, int64

backend = CPU.backend
N = 1000
VECTOR = Operand(float32, (N,), (1,))
NUMBER = Operand(float32, (), (), True)
ROWS = 500  # a product takes milliseconds, and tenths of a second where AddressSanitizer watches
MATRIX = Operand(float32, (ROWS, ROWS), (ROWS, 1))


def kernel(op, *operands, **attrs):
    return backend.compile(op, operands, attrs)


def buffer_of(array):
    buffer = backend.allocate(array.nbytes, 0)
    backend.copy_in(buffer, 0, memoryview(array).cast("B"))
    return buffer


def values(buffer, dtype=np.float32):
    return np.frombuffer(memoryview(buffer), dtype=dtype).copy()


def program(calls, places, scratch=0):
    return backend.program(calls, scratch, [None] * places, 0)


def one_by_one(calls, buffers, numbers=()):
    for call, arguments in calls:
        given = [buffers[a] if type(a) is Place else numbers[a] if type(a) is Fed else a for a in arguments]
        call(*given)


@pytest.fixture
def mixed():
    """Calls of many kernels, as a step has them: views, halves of a buffer, a product, reductions, numbers."""
    half = Operand(float32, (N // 2,), (1,))
    every_second = Operand(float32, (N // 2,), (2,))
    total = Operand(float32, (1,), (1,))
    square = Operand(float32, (20, 20), (20, 1))
    turned = Operand(float32, (20, 20), (1, 20))
    return [
        (kernel("mul", VECTOR, VECTOR, NUMBER), (Place(0), 0, Place(1), 0, 1.5)),
        (kernel("tanh", VECTOR, VECTOR), (Place(0), N, Place(0), 0)),
        (kernel("add", half, every_second, half), (Place(2), 0, Place(0), N, Place(1), N // 2)),
        (kernel("matmul", square, square, turned), (Place(3), 0, Place(2), 0, Place(2), 100)),
        (kernel("sum", total, VECTOR, dims=(0,)), (Place(4), 1, Place(0), N)),
        (kernel("fill", total, NUMBER), (Place(4), 0, Fed(1))),
        (kernel("pow", half, half, NUMBER), (Place(2), N // 2, Place(2), 0, Fed(0))),
    ]


def buffers_of(seed):
    rng = np.random.default_rng(seed)
    return [None, *(buffer_of(rng.random(n, dtype=np.float32)) for n in (N, N, 400, 2))]


def test_it_computes_what_its_kernels_do(mixed):
    run = program(mixed, 5, 8 * N)
    for seed, numbers in enumerate([(2.0, 7.0), (3, 0.5), (0.5, -1)]):
        got, expected = buffers_of(seed), buffers_of(seed)
        assert run(got, numbers) is None
        expected[0] = backend.allocate(8 * N, 0)
        one_by_one(mixed, expected, numbers)
        for a, b in zip(got[1:], expected[1:]):
            np.testing.assert_array_equal(values(a), values(b))


def test_buffers_and_numbers_may_be_tuples_or_lists(mixed):
    run = program(mixed, 5, 8 * N)
    results = []
    for sequence in (tuple, list):
        buffers = buffers_of(1)
        run(sequence(buffers), sequence((2.0, 3.0)))
        results.append(values(buffers[2]))
    np.testing.assert_array_equal(*results)


def test_a_number_is_converted_as_its_operand_says():
    count = Operand(int64, (3,), (1,))
    step = Operand(int64, (), (), True)
    calls = [
        (kernel("fill", VECTOR, NUMBER), (Place(1), 0, Fed(0))),
        (kernel("fill", count, step), (Place(2), 0, Fed(0))),
    ]
    floats, integers = backend.allocate(4 * N, 0), backend.allocate(24, 0)
    run = program(calls, 3)
    run((None, floats, integers), (3,))
    assert values(floats)[-1] == 3.0
    assert values(integers, np.int64).tolist() == [3, 3, 3]
    run((None, floats, integers), (2**64 - 1,))
    assert values(integers, np.int64).tolist() == [-1, -1, -1]
    for wrong in ("3", None):
        with pytest.raises(TypeError):
            run((None, floats, integers), (wrong,))
    with pytest.raises(TypeError, match="fed 1 numbers got 0"):
        run((None, floats, integers), ())


def test_random_numbers_advance_with_what_they_are_fed():
    key = Operand(int64, (), (), True)
    calls = [(kernel("random", VECTOR, key, key, kind="normal"), (Place(1), 0, Fed(0), Fed(1)))]
    run = program(calls, 2)
    for seed, offset in ((1, 0), (1, 250), (2**64 - 1, 0)):
        got, expected = backend.allocate(4 * N, 0), backend.allocate(4 * N, 0)
        run((None, got), (seed, offset))
        calls[0][0](expected, 0, seed, offset)
        np.testing.assert_array_equal(values(got), values(expected))


def test_a_program_of_no_calls():
    assert program([], 1)((None,), ()) is None
    assert program([], 3)((None, 1, 2), (1.0,)) is None


def test_operands_without_elements():
    empty = Operand(float32, (0,), (1,))
    run = program([(kernel("neg", empty, empty), (Place(1), 5, Place(0), 9))], 2)
    run((None, backend.allocate(0, 0)), ())


# --- What it refuses -------------------------------------------------------------------------------------------------


def test_what_is_no_kernel_of_its_own_is_left_to_core():
    neg = kernel("neg", VECTOR, VECTOR)
    for other in (lambda *args: None, len, print, object()):
        assert program([(neg, (Place(1), 0, Place(1), 0)), (other, (Place(1), 0))], 2) is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Place(1), 0, Place(1)), TypeError, "takes 4 arguments, got 3"),
        ((Place(1), 0, 1, 0), TypeError, "must be a Place, got 1"),
        ((Place(1), 0, Fed(1), 0), TypeError, "must be a Place, got 1"),
        ((Place(1), 0, Place(2), 0), ValueError, r"Place\(2\) of a program with 2 places"),
        ((Place(1), 0, Place(-1), 0), ValueError, r"Place\(-1\)"),
        ((Place(1), 0, Place(1), -1), ValueError, "cannot begin at element -1"),
        ((Place(1), 0, Place(1), 1 << 61), ValueError, "cannot begin at element"),
        ((Place(1), 0, Place(1), "0"), TypeError, "int"),
        ((Place(1), 0, Place(0), 5), ValueError, "4000 bytes at element 5 does not lie in 4016 bytes of scratch"),
    ],
)
def test_impossible_calls_are_refused_when_it_is_made(arguments, error, message):
    neg = kernel("neg", VECTOR, VECTOR)
    calls = [(neg, (Place(1), 0, Place(1), 0)), (neg, arguments)]
    with pytest.raises(error, match=message) as caught:
        program(calls, 2, 4016)
    assert caught.value.call == 1


def test_a_negative_number_that_is_fed():
    with pytest.raises(ValueError, match=r"Fed\(-1\)"):
        program([(kernel("fill", VECTOR, NUMBER), (Place(1), 0, Fed(-1)))], 2)


def test_a_run_refuses_buffers_that_do_not_do():
    neg = kernel("neg", VECTOR, VECTOR)
    run = program([(neg, (Place(1), 0, Place(2), 10))], 3)
    good, small = backend.allocate(4 * N + 40, 0), backend.allocate(4 * N + 36, 0)
    run((None, good, good), ())
    with pytest.raises(ValueError, match="place 2: the program needs 4040 bytes, the buffer has 4036"):
        run((None, good, small), ())
    for wrong in (bytearray(5000), None, norch.ones(N)):
        with pytest.raises(TypeError, match="place 2: expected"):
            run((None, good, wrong), ())
    for buffers in ((None, good), (None, good, good, good)):
        with pytest.raises(TypeError, match="3 places got"):
            run(buffers, ())
    for arguments in ((), ((None, good, good),), (5, ()), ((None, good, good), 5)):
        with pytest.raises(TypeError):
            run(*arguments)


def test_no_memory_for_scratch():
    huge = 1 << 50
    run = program([(kernel("neg", VECTOR, VECTOR), (Place(0), 0, Place(1), 0))], 2, huge)
    with pytest.raises(MemoryError):
        run((None, backend.allocate(4 * N, 0)), ())


# --- What kernels raise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 300_000])
def test_an_error_says_which_call_it_is_of(count):
    x, index = Operand(float32, (4,), (1,)), Operand(int64, (count,), (1,))
    out = Operand(float32, (count,), (1,))
    gather = kernel("gather", out, x, index, dim=0)
    divide = kernel("floor_divide", index, index, Operand(int64, (), (), True))
    fill = kernel("fill", out, NUMBER)
    calls = [
        (fill, (Place(0), 0, 1.0)),
        (gather, (Place(0), 0, Place(1), 0, Place(2), 0)),
        (divide, (Place(2), 0, Place(2), 0, Fed(0))),
        (fill, (Place(3), 0, 2.0)),
    ]
    run = program(calls, 4, 4 * count)
    good, bad = np.zeros(count, np.int64), np.full(count, 9)
    results = buffer_of(np.zeros(count, np.float32))
    x = buffer_of(np.ones(4, np.float32))
    with pytest.raises(IndexOutOfBounds) as caught:
        run((None, x, buffer_of(bad), results), (1,))
    assert (caught.value.call, caught.value.index, caught.value.size) == (1, 9, 4)
    with pytest.raises(ZeroDivisionError) as caught:
        run((None, x, buffer_of(good), results), (0,))
    assert caught.value.call == 2
    assert not values(results).any()
    run((None, x, buffer_of(good), results), (1,))
    assert (values(results) == 2).all()


# --- Threads, signals, memory ----------------------------------------------------------------------------------------


def test_many_threads_each_with_a_program():
    add = kernel("add", VECTOR, VECTOR, NUMBER)
    failures = []

    def work(number):
        calls = [(add, (Place(0), 0, Place(1), 0, Fed(0)))] + [(add, (Place(0), 0, Place(0), 0, Fed(0)))] * 98
        run = program([*calls, (add, (Place(1), 0, Place(0), 0, Fed(0)))], 2, 4 * N)
        buffer = buffer_of(np.zeros(N, np.float32))
        for _ in range(30):
            run((None, buffer), (number,))
        failures.extend(v for v in values(buffer) if v != 3000 * number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_runs_of_one_program_may_overlap():
    matmul = kernel("matmul", MATRIX, MATRIX, MATRIX)
    calls = [(matmul, (Place(0), 0, Place(1), 0, Place(1), 0)), (matmul, (Place(2), 0, Place(0), 0, Place(1), 0))]
    run = program(calls, 3, 4 * ROWS * ROWS)
    results = [backend.allocate(4 * ROWS * ROWS, 0) for _ in range(3)]

    def work(number):
        scaled = buffer_of(np.eye(ROWS, dtype=np.float32) * (number + 2))
        run((None, scaled, results[number]), ())

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number, result in enumerate(results):
        np.testing.assert_array_equal(values(result).reshape(ROWS, ROWS), np.eye(ROWS) * (number + 2) ** 3)


@pytest.mark.skipif(sys.platform == "win32", reason="sends itself a signal")
def test_a_signal_stops_a_long_run():
    code = """
import signal, time
from norch.backend import Operand, Place
from norch.device import CPU
from norch.dtype import float32
matrix = Operand(float32, (600, 600), (600, 1))
matmul = CPU.backend.compile("matmul", (matrix,) * 3, {})
run = CPU.backend.program([(matmul, (Place(0), 0, Place(1), 0, Place(1), 0))] * 200_000, 4 * 600 * 600, [None] * 2, 0)
zeros = CPU.backend.allocate(4 * 600 * 600, 0)
zeros_view = memoryview(zeros)
zeros_view[:] = bytes(len(zeros_view))
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
start = time.monotonic()
try:
    run((None, zeros), ())
except KeyboardInterrupt as error:
    print("stopped", hasattr(error, "call"), time.monotonic() - start < 30)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ)
    assert (done.returncode, done.stdout.split()) == (0, ["stopped", "False", "True"]), done.stderr


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_a_signal_that_raises_nothing_lets_it_go_on():
    matmul = kernel("matmul", MATRIX, MATRIX, MATRIX)
    run = program([(matmul, (Place(2), 0, Place(1), 0, Place(1), 0))] * 8, 3)
    identity, result = buffer_of(np.eye(ROWS, dtype=np.float32)), backend.allocate(4 * ROWS * ROWS, 0)
    before = signal.signal(signal.SIGALRM, lambda *args: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.005)
        run((None, identity, result), ())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(values(result).reshape(ROWS, ROWS), np.eye(ROWS))


def test_long_programs_release_the_interpreter():
    matmul = kernel("matmul", MATRIX, MATRIX, MATRIX)
    run = program([(matmul, (Place(2), 0, Place(1), 0, Place(1), 0))] * 4, 3)
    identity, result = buffer_of(np.eye(ROWS, dtype=np.float32)), backend.allocate(4 * ROWS * ROWS, 0)
    began, ended = threading.Event(), threading.Event()

    def work():
        began.wait()
        ended.set()

    other = threading.Thread(target=work)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that only a released lock lets the other thread in
    try:
        began.set()
        for _ in range(20):  # a busy machine may let it wait
            run((None, identity, result), ())
            if ended.is_set():
                break
        assert ended.is_set()
    finally:
        sys.setswitchinterval(interval)
        other.join()


def test_it_keeps_its_kernels_and_nothing_else():
    neg = kernel("neg", VECTOR, VECTOR)
    buffer = buffer_of(np.ones(N, np.float32))
    run = backend.program([(neg, (Place(1), 0, Place(1), 0))], 0, [None, buffer], 0)
    del neg
    gc.collect()
    run((None, buffer), ())
    assert values(buffer)[0] == -1
    freed = weakref.ref(buffer)
    del buffer
    assert freed() is None


def test_nothing_leaks(mixed):
    stats = norch.cpu.memory_stats
    buffers, numbers = tuple(buffers_of(0)), (2.0, 3.0)
    bad = (*buffers[:2], backend.allocate(4, 0), *buffers[3:])

    def rounds(count):
        for _ in range(count):
            run = program(mixed, 5, 8 * N)
            run(buffers, numbers)
            run(list(buffers), list(numbers))
            for wrong in ((bad, numbers), (buffers, (1.0, "x")), (buffers[:2], numbers)):
                with pytest.raises((TypeError, ValueError)):
                    run(*wrong)
        gc.collect()
        counted = [sys.getrefcount(x) for x in (*buffers, *numbers, bad, mixed[0][0])]
        return stats()["allocated_bytes"], [n for n in counted if n < 2**31]  # an immortal object's says nothing

    rounds(5)
    before = rounds(1)
    assert rounds(50) == before
