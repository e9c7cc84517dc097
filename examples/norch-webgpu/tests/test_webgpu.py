"""What is particular to this backend. That it computes what norch asks is the kit's to say."""

import gc
import itertools
import math
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import wgpu

import norch

WEBGPU = "webgpu"


def there(values, **options):
    return norch.tensor(values, device=WEBGPU, **options)


def device():
    return norch.device(WEBGPU).backend.run.devices[0]


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- The module -------------------------------------------------------------------------------------------------------


def test_the_module_names_the_adapter_and_its_limits():
    assert norch.webgpu.is_available()
    assert norch.webgpu.get_device_name(norch.device("webgpu:0")) == norch.webgpu.get_device_name(0)
    found = norch.webgpu.get_device_properties()
    assert found["name"] == norch.webgpu.get_device_name()
    assert found["api"] in ("Vulkan", "Metal", "D3D12")
    assert found["limits"]["max-storage-buffers-per-shader-stage"] >= 8
    assert "float64" in found["refused"]
    with pytest.raises(norch.DeviceError, match="cpu"):
        norch.webgpu.get_device_name("cpu")


def test_memory_is_counted():
    gc.collect()
    before = norch.webgpu.memory_allocated()
    x = norch.zeros(1000, 1000, device=WEBGPU)
    assert 4e6 <= norch.webgpu.memory_allocated() - before <= 5e6
    assert norch.webgpu.max_memory_allocated() >= norch.webgpu.memory_allocated()
    assert norch.webgpu.memory_reserved() >= norch.webgpu.memory_allocated()
    del x
    assert norch.webgpu.memory_allocated() == before


# --- Memory -----------------------------------------------------------------------------------------------------------


def test_pieces_of_memory_never_overlap_and_come_back():
    pool, draw = device().pool, np.random.default_rng(0)
    norch.webgpu.synchronize()
    held = []
    for _ in range(2000):
        if held and draw.random() < 0.5:
            held.pop(draw.integers(len(held)))
        else:
            held.append(pool.take(int(2 ** draw.uniform(0, 22))))
    spans = sorted((id(m.slab), m.start, m.start + m.size) for m in held)
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in itertools.pairwise(spans))
    assert all(m.start % 256 == 0 and m.nbytes <= m.size and m.start + m.size <= m.slab.size for m in held)
    held.clear()
    norch.webgpu.empty_cache()
    assert all(slab.free != [(0, slab.size)] for slab in pool.slabs)
    assert (there([1.0]) + 1).tolist() == [2]


def test_what_is_freed_is_used_again_only_behind_the_commands_that_read_it():
    x, found = there(np.arange(5000, dtype=np.float32)), []
    for i in range(50):
        y = x + i
        found.append(y * 2)
        del y  # its memory goes to the next, before anything was submitted
    for i, z in enumerate(found):
        assert z[::999].tolist() == [2.0 * (n + i) for n in range(0, 5000, 999)]


def test_uploads_come_in_the_order_of_the_commands():
    x = norch.zeros(3, device=WEBGPU)
    y = x + 1
    x[:] = there([5.0, 6.0, 7.0])
    z = x + 1
    big = norch.zeros(50_000, device=WEBGPU)
    w = big + 1
    big.copy_(norch.ones(50_000))
    assert (y.tolist(), z.tolist()) == ([1, 1, 1], [6, 7, 8])
    assert (w.sum().item(), big.sum().item()) == (50_000, 50_000)


def test_memory_that_runs_out_is_an_error_that_names_the_adapter_and_its_limit():
    most = device().pool.most
    with pytest.raises(norch.OutOfMemoryError, match=rf"binds at most {most} bytes"):
        norch.empty(most // 4 + 100, device=WEBGPU)
    assert (there([1.0]) + 1).tolist() == [2]


def test_an_adapter_without_room_says_so(monkeypatch):
    pool = device().pool

    def refuse(**options):
        raise wgpu.GPUOutOfMemoryError("not enough memory left")

    held = []
    with monkeypatch.context() as patched:
        patched.setattr(device().wgpu, "create_buffer", refuse)
        with pytest.raises(norch.OutOfMemoryError, match=r"has no room for .* reserved.*not enough memory"):
            held.extend(norch.empty(pool.most // 4, device=WEBGPU) for _ in range(1000))
    assert (there([1.0]) + 1).tolist() == [2]


# --- Commands ---------------------------------------------------------------------------------------------------------


def test_a_hundred_ops_are_submitted_at_once():
    x, encoder = there([1.0]), device().encoder
    norch.webgpu.synchronize()
    before = encoder.submitted
    for _ in range(1000):
        x = x + 1
    assert encoder.submitted - before <= 10
    assert x.item() == 1001


def test_two_threads_share_a_kernel():
    wrong = []

    def work(factor):
        x = norch.arange(1000, device=WEBGPU, dtype=norch.float32)
        found = [(x * factor).sum().item() for _ in range(50)]
        wrong.extend(f for f in found if f != 499500 * factor)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_kernel_holds_its_program():
    said = run("""if True:
        import gc, norch
        x = norch.arange(5.0, device="webgpu")
        for _ in range(2):
            print((x * 3).tolist())
            x.device.backend.run.devices[0].pipeline.cache_clear()  # as where two threads compile it: one is kept
            gc.collect()
    """)
    assert said == 2 * "[0.0, 3.0, 6.0, 9.0, 12.0]\n"


def test_reading_may_be_put_off():
    x, backend = there([1.0, 2.0, 3.0]), norch.device(WEBGPU).backend
    y = x * 2
    found = np.zeros(3, np.float32)
    backend.copy_out_later(y.buffer, 0, memoryview(found).cast("B"))
    y += 100
    norch.webgpu.synchronize()
    assert found.tolist() == [2, 4, 6]


# --- What fails -------------------------------------------------------------------------------------------------------


def test_what_a_keyboard_interrupt_left_is_not_read_by_the_next(monkeypatch):
    """Ctrl-C while the host waits: the mapping is done later, behind the back of what is read then."""
    encoder = sys.modules["norch_webgpu.encoder"]
    lib, x = encoder.lib, norch.arange(1000.0, device=WEBGPU)

    class Interrupted:
        def __getattr__(self, name):
            return getattr(lib, name)

        def wgpuDevicePoll(self, *args):
            raise KeyboardInterrupt

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(encoder, "lib", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                (x + 1).tolist()
        assert (x + 2).tolist() == [n + 2.0 for n in range(1000)]


def test_without_an_adapter_it_says_what_to_install():
    program = "import norch; print(norch.webgpu.device_count(), norch.webgpu.is_available(), norch.webgpu.why_not())"
    assert "mesa-vulkan-drivers" in (said := run(program, NORCH_WEBGPU_ADAPTER="there is none"))
    assert said.startswith("0 False")


def test_a_lost_device_is_an_error_and_harms_no_other():
    said = run("""if True:
        import norch
        x = norch.ones(3, device="webgpu")
        norch.webgpu.synchronize()
        norch.device("webgpu").backend.run.devices[0].wgpu.destroy()
        for attempt in (lambda: x + 1, lambda: x.tolist(), lambda: x.exp(), lambda: norch.ones(3).to("webgpu"),
                        norch.webgpu.synchronize, lambda: norch.zeros(1 << 22, device="webgpu")):
            try:
                attempt()
            except RuntimeError as error:
                print("was lost" in str(error))
        print((norch.ones(3) + 1).tolist())
    """)
    assert said.splitlines()[-1] == "[2.0, 2.0, 2.0]"
    assert "True" in said
    assert "False" not in said


def test_a_kernel_that_does_not_compile_names_the_adapter():
    with pytest.raises(RuntimeError, match="llvmpipe|.") as failed:
        norch.device(WEBGPU).backend.run.kernel([], "@compute @workgroup_size(1) fn main() { nothing(); }", 1, {})
    assert device().name in str(failed.value)
    assert "nothing()" in failed.value.__notes__[0]


def test_a_driver_that_miscompiles_is_not_used():
    said = run("""if True:
        import norch_webgpu.devices
        norch_webgpu.devices.PROBED[0] = 7
        import norch
        print(norch.webgpu.is_available(), norch.webgpu.why_not())
    """)
    assert said.startswith("False")
    assert "cannot be used: its driver" in said


def test_an_adapter_without_features_trains_and_refuses_what_it_cannot_compute():
    said = run("""if True:
        import norch_webgpu.devices
        norch_webgpu.devices.USED = ()
        import norch
        from norch import nn, optim

        norch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to("webgpu")
        optimizer = optim.AdamW(model.parameters(), lr=0.05)
        x, y = norch.randn(5, 4, device="webgpu"), norch.tensor([0, 1, 2, 0, 1], device="webgpu")
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(model(x).argmax(1).tolist(), norch.full((2,), -5, device="webgpu")[1:].contiguous().item())
        try:
            y + 1
        except norch.DTypeError as error:
            print(error)
    """)
    assert said.splitlines()[0] == "[0, 1, 2, 0, 1] -5"
    assert "shader-int64" in said


# --- Numbers ----------------------------------------------------------------------------------------------------------


def test_16_bit_floats_are_rounded_once_and_to_even():
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    bits = bits[~np.isnan(bits)]
    found = there(bits).float().half().cpu().numpy()
    assert (found == bits).all()
    between = (np.arange(1 << 15, dtype=np.uint32) << 17 | 0x8000).view(np.float32)
    between = between[np.isfinite(between) & (np.abs(between) > 1e-37)]
    finite = np.sort(bits[np.isfinite(bits)].astype(np.float32))
    halves = (finite[:-1] + finite[1:]) / 2
    for dtype, middle in ((norch.bfloat16, between), (norch.float16, halves)):
        for x in (middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(math.inf))):
            found = there(x).to(dtype).float().cpu().numpy()
            wanted = norch.tensor(x).to(dtype).float().numpy()
            assert ((found == wanted) | (np.isnan(found) & np.isnan(wanted))).all()


@pytest.mark.parametrize("dtype", [norch.bool, norch.int8, norch.uint8, norch.int16, norch.float16])
def test_neighbours_in_a_word_keep_their_bytes(dtype):
    wanted = np.arange(64).reshape(8, 8) % 2
    x = there(wanted).to(dtype)
    for rows, columns in ((slice(1, 2), slice(1, 4)), (slice(3, 7, 3), slice(0, 8, 3)), (slice(7, 8), slice(7, 8))):
        x[rows, columns] = 1
        wanted[rows, columns] = 1
    x.view(64)[13:19] = there([0, 1, 0, 0, 1, 1]).to(dtype)
    wanted.reshape(64)[13:19] = [0, 1, 0, 0, 1, 1]
    assert (x.float().cpu().numpy() == wanted).all()


FUNCTIONS = (
    "exp expm1 log log1p log2 log10 sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_five_units_everywhere(name):
    draw = np.random.default_rng(0)
    x = draw.integers(0, 1 << 32, 30_000, np.uint32).view(np.float32)
    x = np.concatenate([x, draw.normal(size=30_000).astype(np.float32)])
    x = x[~np.isnan(x) & ((np.abs(x) > 1.2e-38) | (x == 0))]  # some adapters take subnormals for 0
    found = getattr(norch, name)(there(x)).cpu().numpy()
    with np.errstate(all="ignore"):
        wanted = getattr(norch, name)(norch.tensor(x.astype(np.float64))).numpy()
        stored = wanted.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(stored), np.float32(1.2e-38)))
        near = (np.abs(found - wanted) <= 5 * unit) | (found == stored) | (np.isnan(found) & np.isnan(stored))
    assert near.all(), (x[~near][:5], found[~near][:5], wanted[~near][:5])


def test_quotients_of_floats_are_rounded_once():
    a, b = np.random.default_rng(2).integers(0, 1 << 32, (2, 50_000), np.uint32).view(np.float32)
    a[:2000], b[:2000] = np.arange(2000) * 49, 49
    a[2000:2002], b[2000:2002] = math.inf, (3e38, 1e-38)
    with np.errstate(all="ignore"):
        wanted = a / b
    good = (np.abs(a) > 1e-30) & (np.abs(b) > 1.2e-38) & ~(np.abs(wanted) < 1e-30)  # some take subnormals for 0
    found = (there(a) / there(b)).cpu().numpy()
    assert np.array_equal(found[good], wanted[good], equal_nan=True)


def test_integers_are_divided_as_in_python():
    draw = np.random.default_rng(3)
    for dtype, numpy in ((norch.int8, np.int8), (norch.int32, np.int32), (norch.int64, np.int64)):
        a, b = draw.integers(-100, 100, 5000).astype(numpy), draw.choice([-96, -34, -7, -1, 1, 2, 3, 6, 96], 5000)
        x, y = there(a), there(b.astype(numpy))
        assert ((x // y).cpu().numpy() == a // b.astype(numpy)).all()
        assert ((x % y).cpu().numpy() == a % b.astype(numpy)).all()
        found = norch.full((), -96, dtype=dtype, device=WEBGPU) // y
        assert found.tolist() == (-96 // b).tolist()


def test_remainders_of_floats_are_exact():
    draw = np.random.default_rng(1)
    a, b = draw.integers(0, 1 << 32, (2, 20_000), np.uint32).view(np.float32)
    good = np.isfinite(a) & np.isfinite(b) & (np.abs(a) > 1e-30) & (np.abs(b) > 1e-30)
    a, b = a[good], b[good]
    assert np.array_equal((there(a) % there(b)).cpu().numpy(), np.mod(a, b))


@pytest.mark.parametrize("shape", [(3, 1, 1, 9), (1, 2, 7, 1), (7, 9), (1, 9), (3, 2, 7, 9), (1, 1)])
def test_a_mask_that_broadcasts(shape):
    norch.manual_seed(0)
    given = [norch.randn(3, 2, n, 8) for n in (7, 9, 9)]
    seen = norch.rand(*shape) > 0.3
    for mask in (seen, seen.float() * 3):
        wanted = norch.scaled_dot_product_attention(*given, attn_mask=mask)
        found = norch.scaled_dot_product_attention(*[x.to(WEBGPU) for x in given], attn_mask=mask.to(WEBGPU))
        assert (found.cpu() - wanted).abs().max().item() < 1e-5


def test_random_numbers_are_those_of_the_cpu():
    found = []
    for where in ("cpu", WEBGPU):
        norch.manual_seed(3)
        x = [norch.rand(7, 5, device=where), norch.randint(0, 99, (9,), device=where), norch.randperm(50, device=where)]
        found.append([one.tolist() for one in x])
    assert found[0] == found[1]


def test_importing_norch_loads_none_of_it():
    assert run("import sys, norch; print({'wgpu', 'norch_webgpu'} & set(sys.modules))").strip() == "set()"
