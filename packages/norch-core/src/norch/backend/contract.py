"""The contract between norch-core and a backend.

A backend moves bytes: it allocates buffers, copies them, and compiles kernels. Shapes, broadcasting, promotion and
derivatives are decided before it is asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..dtype import DType

CONTRACT = (1, 5)
"""Major and minor version. Majors must match; a backend built for an older minor keeps working, since methods and
fields are only ever added, each with a default.

1.1: Backend.allocating, copy_out_later and current_device.
1.2: Backend.channels_last and record_stream.
1.3: Backend.program, and the composite "fused".
1.4: Backend.advice, kept and feeders, a program's release(), the composites of linear algebra ("linalg_solve" and
others: norch.linalg.routines), "recurrence", "cross_entropy_rows", "residual_norm" and "batch_norm_relu"
with their gradients, "casts".
1.5: Backend.missing_dtypes, IndexOutOfBounds.op, unseen, DeviceError from `compile`, and decisions on what was left
open: the order of work and what may be put off, lifetimes, threads, limits, scalars. The composite "fused_rows".
"""

UNARY: list[str] = []
BINARY: list[str] = []
COMPARISON: list[str] = []
REDUCTION: list[str] = []
OTHER: list[str] = []
PRIMITIVES: set[str] = set()
"""All of them. The entries of ops put their names into these lists when norch is imported."""

ELEMENTWISE: set[str] = set()
"""UNARY, BINARY, COMPARISON, "copy", "fill" and "where"."""


def declare(name: str, family: list[str], elementwise: bool = True) -> None:
    """Makes `name` a primitive of `family`, one of the lists above."""
    family.append(name)
    PRIMITIVES.add(name)
    if elementwise:
        ELEMENTWISE.add(name)


TWO_OUTPUTS = frozenset({"sort"})
"""Primitives with two outputs; all others have one."""

IN_PLACE = frozenset({"scatter", "scatter_add"})
"""Kernels that read and write their output; every other kernel only writes it, and writes all of it."""


class Operand(NamedTuple):
    """What `compile` is told of one operand.

    `strides` count elements and are never negative; a broadcast dim has stride 0. A scalar operand (`is_scalar`) has no
    layout: its kernel gets a Python number where a tensor operand's gets a buffer and an offset: for a floating dtype
    an int or a float of any value, NaN, infinities and what the dtype rounds to one included; for an integer one an int
    in its range; for bool a bool. Its dtype may be a missing one.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_scalar: bool = False


CHANNELS_LAST = frozenset(
    {
        "cat",
        "conv2d",
        "conv2d_input_grad",
        "conv2d_weight_grad",
        "conv3d",
        "conv3d_input_grad",
        "conv3d_weight_grad",
        "max_pool2d",
        "max_pool2d_grad",
        "max_pool2d_indices",
        "pad",
        "sum_pool2d",
        "sum_pool2d_grad",
    }
)
"""Composites whose result may be channels-last: see Backend.channels_last."""

Kernel = Callable[..., None]
"""`kernel(buffer, offset, ..., scalar, ...)`: for each operand of `compile`, in its order, a buffer and an offset in
elements, or the number of a scalar operand."""


class Place(int):
    """In a program's calls: stands for the buffer of that number."""

    __slots__ = ()


class Fed(int):
    """In a program's calls: stands for the number, of those that change from run to run, at that position."""

    __slots__ = ()


Recorded = Callable[[], list[tuple[str, tuple[Any, ...], bool]]]
"""What a backend has recorded so far of calls that get other numbers each time, draws and steps of optimisers: the
kernel, its numbers, and whether it can be given others."""

feeders: list[Callable[[Recorded], Any]] = []
"""For backends that record work by themselves, as `norch.cuda.graph` does: `feeders[0](recorded)` is the context of a
recording, whose `feed()` then yields the positions of those calls and their numbers for the next replay. It is there
once `norch.capture` was asked for."""

unseen: list[Callable[[str], None]] = []
"""For functions of a backend's own that give a device work besides kernel calls, such as the replay of a graph: each of
these is told of it before, by a name for messages. `norch.capture` replays no step as a whole that does so."""


class Buffer:
    """Device memory. A backend may return any object that has these two attributes; a native one needs no base class.

    `nbytes` is what was asked for. `modified` belongs to core, which sets it (None at first) when an in-place op
    writes the buffer.
    """

    __slots__ = ("__weakref__", "modified", "nbytes")

    nbytes: int
    modified: tuple[int, str] | None

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.modified = None


class IndexOutOfBounds(Exception):
    """Index `index` in a dim of `size` elements: raised by gather, scatter and scatter_add kernels, or later by what
    waits for one, which then names the op."""

    def __init__(self, index: int, size: int, op: str = "") -> None:
        super().__init__(f"index {index} is out of bounds for a dim of size {size}")
        self.index = index
        self.size = size
        self.op = op


class Backend(ABC):
    """One device type. Subclass it, set `device_type`, and return an instance from the hook `norch_backend`.

    Primitives (`compile(op, operands, attrs)`), outputs first. All tensor operands have the broadcast shape of the
    output and one dtype, the output's, unless said otherwise; any input (not output) may be a scalar for the
    elementwise ones.

    =====================  ==========================================================================================
    copy                   out, x of any two dtypes (the cast is C's; to bool it is `x != 0`)
    fill                   out, scalar
    UNARY                  out, x. Transcendental ones and sqrt get floating dtypes only; bitwise_not bool and integers
    BINARY                 out, a, b. div, atan2 floating only; bitwise ones bool (not shifts) and integers;
                           floor_divide and remainder follow Python's signs; on bool, add is or, mul is and
    COMPARISON             out (bool), a, b
    where                  out, condition (bool), a, b
    sum prod amax amin     out, x; attrs dims (ascending tuple). out has x's rank, 1 in each reduced dim. NaN wins in
                           amax and amin. sum and prod of no elements are 0 and 1; amax and amin are never asked that
    any all                the same, of bool
    argmax argmin          out (int64), x; attrs dims, one dim. The first of equals; the first NaN wins
    cumsum                 out, x; attrs dim
    matmul                 out (*batch, m, n), a (*batch, m, k), b (*batch, k, n), floating or integers; k may be 0
    gather                 out, x, index (int64); attrs dim. out[i][j] = x[index[i][j]][j] for dim 0. x may be larger
                           than index in other dims. A negative index counts from the end; else IndexOutOfBounds
    scatter scatter_add    out (read and written), index (int64), src; attrs dim. out[index[i][j]][j] = or += src[i][j]
    sort                   values, indices (int64), x; attrs dim, descending. Stable; NaN is larger than all else
    arange                 out (one dim), scalars start and step of out's dtype; out[i] = start + i * step
    random                 out; scalars seed and offset (ints, 0 to 2**64 - 1, whatever their dtype); attrs kind:
                           "uniform", "normal", "bits" (int64 out: 32 random bits), "bits64" (int64 out: 63).
                           See norch.numpy_backend.philox, which is the definition
    =====================  ==========================================================================================

    The dtypes that are only stored (uint16 to uint64, floats of 8 bits) reach no backend: core asks for integers of
    their size where they are moved, and puts their casts together from the kernels above.

    Float16 and bfloat16 are computed in float32 and rounded once; so are arange and random, in float64, for floats.

    What an op meets at its edges: integer floor_divide and remainder by 0 never trap. They raise ZeroDivisionError
    where the host can tell without waiting, and the output may hold anything; elsewhere any value will do, and the
    other elements are right. The least integer divided by -1 is itself, and leaves 0; integer pow with a negative
    exponent is C's (0, or 1 and -1 for those bases); a shift by the dtype's width or more, or by a negative count,
    gives 0, or -1 for a negative value; sign(NaN) is NaN; sub, floor_divide, remainder, pow and matmul are never asked
    of bool. A scalar counts as a number of the operands' dtype, except that arithmetic of 16-bit floats takes it in
    float32.

    The composite "fused" is an elementwise program, which `norch.capture` makes of calls. Operands: outputs of one
    shape, then the inputs, tensors of that shape and scalars. attrs steps: "mul float32 o2 o3;sigmoid float32 s0;add
    float32 s1 o2": of each step the op (elementwise, or an elementwise composite such as gelu), its result's dtype,
    what it reads (o2 is operand 2, s0 the result of step 0), then its attributes (approximate=none). attrs results: for
    each output the step that it is the result of. A step rounds as the op's own kernel does, so that results are the
    same bits (a NaN's are any). An output may be exactly one of the inputs, which steps read as it was.
    `norch.backend.parse_steps` reads the text.

    "fused_rows" is the same with reductions of rows (since 1.5). Of the shape that operands have the last dim may be 1
    instead: such an operand has one number for each row. Steps may be sum, prod, amax and amin too ("sum float32 s0"),
    which make such a number, as their own kernel does of rows without gaps; so do elementwise steps that read nothing
    else but scalars. Other steps read it as repeated along the row. Where there is no kernel core asks for "fused" of
    the steps between reductions.

    A 0-d operand of argmax or argmin has dims () and of cumsum, sort, gather or scatter dim 0. An operand without
    elements may start past the end of its buffer. An elementwise output (since 1.3 also that of an elementwise
    composite) may be exactly one of the inputs; otherwise core sees to it that outputs and inputs do not overlap. After
    IndexOutOfBounds of a kernel's own call the output is as it was before.

    Order. Work of a device (kernels, copy_in, copy, copy_out, copy_out_later) takes effect in the order of the calls,
    of several threads too: a call that begins after another has returned comes behind it. `copy` between devices has
    its place on both. Work may be put off, gathered and submitted together, for as long as nobody waits. copy_out and
    host_view wait for what writes the buffer, synchronize for all work of the device; a kernel never waits.

    Errors of work that was put off are raised by the next copy_out, host_view or synchronize of that device, by nothing
    else. Of indices out of range the first is raised, once, and the others are forgotten; the work behind them is done
    as ever. The op that met one may have written elements whose index was right; of the others a gather's hold
    anything, a scatter's are as they were. What copy_out was to fill may hold anything when it raises. A device
    that is lost is a DeviceError from then on; the others work.

    Lifetimes. What copy_in was given is the caller's again when it returns. A buffer may be dropped while work that
    uses it is put off or under way, by any thread and at any moment, also by the garbage collector within a method of
    the backend: freeing takes no lock that this thread may hold already. Its memory is used for nothing else before
    that work is done. Nothing holds a buffer for longer: a kernel forgets what it was called with.

    Threads. Any method and any kernel may be called by several threads at once; core holds no lock. The same kernel may
    be asked for twice at a time.

    Devices. `index` is from 0 to device_count() - 1, which does not change once it is not 0. A kernel belongs to none:
    it runs on the device of the buffers that it is called with.

    Limits. What cannot be allocated is a MemoryError. What else a device's limits forbid (more elements than its
    kernels index, a binding too large) `compile`, or the kernel where only an offset tells, refuses with a
    norch.backend.DeviceError: a sentence with the device, the limit and what was asked. There are no other limits,
    neither on the number of dims nor on their sizes. A kernel gives the same bits for the same values, wherever its
    operands lie.
    """

    device_type: str
    contract: tuple[int, int] = CONTRACT
    priority: int = 0
    """Of two providers of one device type the higher wins; the NumPy reference has -100."""

    channels_last: frozenset[str] = frozenset()
    """Those of CHANNELS_LAST for which `compile` knows outputs (n, c, ...) whose channels vary fastest, be it that it
    answers None. Of the others, and after a None, it is asked for a contiguous result, which core copies."""

    kept: frozenset[str] = frozenset()
    """Composites that core asks for only where they are named here: "scaled_dot_product_attention_sums" (outputs the
    attention and for each query log(sum(exp(scores))), in float32 for 16-bit floats) in place of attention that will
    need a gradient, which "scaled_dot_product_attention_sums_grad" computes from both. "fused" named here is asked for
    outside of `norch.capture` too, in place of elementwise composites that the backend has no kernel of, and of
    elementwise primitives whose operands have to be converted ("copy float32 o2;mul float32 o1 s0"): for who compiles
    it as quickly as other kernels. None decomposes, and converts before, as ever."""

    missing_dtypes: Mapping[str, str] = {}
    """By name the dtypes that its devices do not have, each with the reason, a sentence that users see: {"float64":
    "its adapter has no shader-f64"}. Core makes no tensors of them there, and asks for no kernel; `compile` answers
    None. It is known, and does not change, once device_count() is not 0. No backend is without float32 or bool. int64,
    the dtype of indices, is never missing whole: its tensors are made and moved, and `compile` is asked; where it
    answers None, the op is refused."""

    @abstractmethod
    def device_count(self) -> int:
        """How many devices there are; 0 where none is usable, never an exception."""

    @abstractmethod
    def allocate(self, nbytes: int, index: int) -> Any:
        """A new buffer of `nbytes` (0 is allowed), contents undefined. Raises MemoryError where there is no room, or
        the device's limits do not allow so much at once."""

    @abstractmethod
    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Host to device: writes `data` (contiguous bytes, maybe none) at byte `offset`. `data` has been read when this
        returns; the buffer may be written later, in the order of the calls."""

    @abstractmethod
    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Device to host: fills the writable `data` from byte `offset`, after all work that writes it is done. Raises
        what that work met, if it was not raised before."""

    def copy_out_later(self, buffer: Any, offset: int, data: memoryview) -> None:
        """`copy_out` that may return before `data` is filled, which is so after `synchronize` at the latest. `data`
        gets what the buffer holds now, after the work given so far, and is kept alive until then."""
        self.copy_out(buffer, offset, data)

    @abstractmethod
    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        """From `source` to `out`, two buffers of this backend, `nbytes` from byte `source_offset` to byte `out_offset`;
        they may lie on different devices of it.
        """

    @abstractmethod
    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        """The kernel for exactly these operands (outputs first), or None where there is none.

        None for a composite means that core decomposes it.
        """

    def allocating(self, kernel: Kernel, nbytes: int, index: int) -> Callable[..., Any]:
        """`kernel`, which has one output, as a function of its other operands that returns that output in a new buffer
        of `nbytes`. To be overridden where that is faster in one call than in two."""
        allocate = self.allocate

        def call(*args: Any) -> Any:
            buffer = allocate(nbytes, index)
            kernel(buffer, 0, *args)
            return buffer

        return call

    def program(
        self,
        calls: Sequence[tuple[Kernel, tuple[Any, ...]]],
        scratch: int,
        bound: Sequence[Any | None],
        index: int,
    ) -> Callable[[Sequence[Any], Sequence[float]], None] | None:
        """Kernel calls of `norch.capture` as one: `run(buffers, numbers)`. None where core is to run the list itself.

        calls: each a kernel that `compile` returned, and its arguments, in which Place(i) stands for buffers[i] and
        Fed(i) for numbers[i]. scratch: the bytes of place 0, memory that the program provides and whose contents matter
        within a run only; buffers[0] is None. bound: by place the buffer that most runs will get (a parameter's), None
        where each run may get another (an argument's, a result's). Any run may get other buffers, of that size or more.

        `run` may have a method `release`, which frees what it holds until the next run: core calls it before it needs
        much memory. Runs of a program do not overlap, which core sees to. What a kernel raises leaves `run` as it is,
        with the position of its call as the attribute `call`.
        """
        return None

    def advice(self, op: str) -> str | None:
        """What a user can do to have a kernel of `op`, for which `compile` answers None: "pip install ..."."""
        return None

    def synchronize(self, index: int) -> None:
        """Waits until all work given to device `index`, by any thread, is done. Raises what that work met, if it was
        not raised before."""
        return None

    def record_stream(self, buffer: Any, stream: Any) -> None:
        """Notes that `stream`, which the backend's module made, uses the buffer: its memory is not handed out again
        before what the stream was given until then is done. Raises NotImplementedError where there are no streams."""
        raise NotImplementedError(f"record_stream(): the device {self.device_type} has no streams")

    def current_device(self) -> int:
        """The index of the device that the type without an index means, for the calling thread."""
        return 0

    def num_threads(self) -> int:
        """How many host threads a kernel may use."""
        return 1

    def set_num_threads(self, count: int) -> None:
        """Changes `num_threads()`, where that can be changed."""
        return None

    def set_flush_denormal(self, mode: bool) -> bool:
        """Whether kernels can take subnormal numbers for 0. If so, those that the calling thread runs do so from now
        on, or with `mode` False no longer."""
        return False

    def unusable_reason(self) -> str | None:
        """Why `device_count()` is 0, and what would change that; None where it is not 0."""
        return None

    def data_ptr(self, buffer: Any) -> int:
        """The address of the buffer's first byte; 0 where an address means nothing."""
        return 0

    def host_view(self, buffer: Any) -> memoryview | None:
        """The buffer's own bytes where the host can address them, else None. Only this makes `numpy()` copy-free. They
        are read at once, so it waits for work under way. The view keeps the memory, also when the buffer is gone."""
        return None

    def from_host(self, data: memoryview) -> Any | None:
        """A buffer on the host memory `data`, kept alive and not copied; None where the device cannot do that."""
        return None

    def adopt(self, address: int, nbytes: int, index: int, owner: Any) -> Any | None:
        """A buffer on `nbytes` of memory of device `index` that another library has made, from `address` on; `owner`,
        an object, keeps the memory and is kept as long as the buffer. None where an address means nothing."""
        return None
