"""`save` and `load`: nested states as safetensors files, their structure as JSON in the metadata.

The metadata hold `norch`, JSON of
    version   1
    object    the structure (see `tree`), in which tensors and arrays are numbers
    tensors   for each tensor {"data": name in the file}, and where they differ from that: shape, strides, offset (in
              elements), and requires_grad
    arrays    for each NumPy array, its name in the file
    data      for each name [checksum] or [checksum, device]: the CRC-32 of the bytes, and the device unless "cpu"
and before it `norch.header`: the CRC-32 of the header with this number as 00000000.
"""

from __future__ import annotations

import json
import pickle
import zlib
from functools import partial
from typing import Any

import numpy as np

from .. import shown
from ..device import CPU, Device
from ..errors import CheckpointError, DTypeError, NorchError
from ..overriding import unasked
from ..spec import Spec, span
from ..tensor import Tensor
from ..tensor_base import make_tensor
from . import header
from .dtypes import name_of, numpy_dtype
from .files import File
from .header import Entry
from .location import Locations, MapLocation
from .memory import Block, blocks
from .source import PYTORCH_HEADS, Source
from .tree import Decoder, Encoder, NoStateError, device_named
from .writing import BLANK, write_file, write_to

VERSION = 1
_PREFIX = b'{"__metadata__":{"norch.header":"'


# --- Saving ---------------------------------------------------------------------------------------------------------


@unasked
def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str | None = None,
) -> None:
    """Writes `obj`, a tensor, a nested state or any other object to `f`, a path or a binary file.

    A state is dicts, lists, tuples and sets of tensors, NumPy arrays, numbers, strings, bytes, dtypes, devices, None.
    It becomes a safetensors file, or with `format="pytorch"` a zip archive that `torch.load(f, weights_only=True)`
    reads; where norch stands in for PyTorch, the latter is the default for what PyTorch can read. Any other object (a
    module, a dataclass) is pickled, tensors apart: `load` then wants `weights_only=False`, and the classes where they
    were.

    pickle_module: what pickles objects in place of pickle, as cloudpickle does. pickle_protocol,
    _use_new_zipfile_serialization: PyTorch's, ignored.

    Tensors that share memory share it again after loading, and have the attributes that were set on them; gradients are
    not kept, and hooks only with a module. Tensors of classes of your own become tensors; where norch stands in for
    PyTorch, a state that holds one is pickled, and `load` wants `weights_only=False`, or `safe_globals` with the class.
    A path is written in one step and fsynced: whatever interrupts that, its old contents stay whole.

    Raises DTypeError for what cannot be pickled, and with `format="pytorch"` for all but a state.
    """
    if format not in (None, "safetensors", "pytorch"):
        raise ValueError(f"save(): format must be 'safetensors' or 'pytorch', got {format!r}")
    encoder = Encoder(keeps_classes=format is None and shown.root == "torch")
    try:
        tree, metadata = encoder.encode(obj), encoder.metadata()
    except NoStateError as error:
        if format == "pytorch":
            raise
        _save_object(obj, f, error, pickle_module or pickle)
        return
    if format == "pytorch" or (format is None and shown.root == "torch"):
        from .pytorch.writer import members

        try:
            archive = members(obj, encoder)
        except DTypeError:  # PyTorch reads no such state, but norch.load does
            if format == "pytorch":
                raise
        else:
            _save_archive(f, archive)
            return
    memory = blocks(encoder.tensors)
    parts: dict[str, Block | np.ndarray[Any, Any]] = {block.name: block for block in memory}
    parts.update(encoder.arrays)
    structure = {
        "version": VERSION,
        "object": tree,
        "tensors": _records(memory, [tensor for _, tensor in encoder.tensors]),
        "arrays": [name for name, _ in encoder.arrays],
        **({"metadata": metadata} if metadata else {}),
    }

    def head(entries: dict[str, Entry], checksums: dict[str, str]) -> bytes:
        data = {name: [checksums[name], *_place(parts[name])] for name in entries}
        text = json.dumps({**structure, "data": data}, separators=(",", ":"), allow_nan=False)
        if header.containers(text) > header.MAX_CONTAINERS:
            raise CheckpointError(
                f"save(): the structure has more than {header.MAX_CONTAINERS:,} lists and dicts; keep them as tensors"
            )
        raw = header.build(entries, {"norch.header": BLANK, "norch": text})
        return raw.replace(BLANK.encode(), f"{zlib.crc32(raw[8:]):08x}".encode(), 1)

    write_file(f, "save", {name: _layout(part) for name, part in parts.items()}, head, lambda name: _bytes(parts[name]))


def _save_archive(f: Any, members: Any) -> None:
    from .pytorch.zipped import write_archive

    write_to(f, "save", lambda file: write_archive(file, members))


def _save_object(obj: Any, f: Any, error: DTypeError, module: Any) -> None:
    from . import objects

    try:
        members = objects.members(obj, module)
    except NorchError:
        raise
    except Exception as reason:  # whatever a class raises that does not want to be pickled
        raise DTypeError(f"{error}. Nor can it be pickled: {reason}") from reason
    _save_archive(f, members)


def _records(memory: list[Block], tensors: list[Tensor]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{} for _ in tensors]
    for block in memory:
        for number, shape, strides, offset in block.views:
            record = records[number]
            record["data"] = block.name
            if shape != block.shape:
                record["shape"] = list(shape)
            if strides is not None:
                record["strides"] = list(strides)
            if offset:
                record["offset"] = offset
            if tensors[number].requires_grad:
                record["requires_grad"] = True
    return records


def _layout(part: Block | np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...]]:
    return (part.dtype, part.shape) if isinstance(part, Block) else (name_of(part.dtype) or "", part.shape)


def _place(part: Block | np.ndarray[Any, Any]) -> list[str]:
    device = part.device if isinstance(part, Block) else CPU
    return [] if device is CPU else [f"{device.type}:{device.index}"]


def _bytes(part: Block | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if isinstance(part, Block):
        return part.array()
    native = np.asarray(part, numpy_dtype(name_of(part.dtype) or ""), order="C")
    return native.reshape(-1).view(np.uint8)


# --- Loading --------------------------------------------------------------------------------------------------------


def load(
    f: Any,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    dequantize: bool = True,
) -> Any:
    """What `save` wrote to `f`, a path or a binary file; what torch.save wrote; of another safetensors file, of a
    TorchScript archive and of a GGUF file (whose quantised tensors become float32), a dict of its tensors.

    Nothing in the file is ever run, and what is no tensor, container or number is refused by name, unless
    `weights_only=False` says that the file is trusted, or a `pickle_module` is given without `weights_only`: then
    pickled objects are made, which can run any code, by that module or by pickle. Classes of PyTorch become norch's.
    Every byte is compared with the checksums that the file has.

    map_location: where the tensors go, if not to the devices that they were saved from: a device, a dict from device to
    device, or a function of a tensor and the name of its device. mmap: tensors on the CPU stay in the file until they
    are used, and are copied page by page where they are written to; their bytes are then not compared. dequantize: of a
    GGUF file; with False tensors of Q8_0 and Q4_0 stay the blocks that they are stored as, uint8 (..., bytes of a row),
    which `quantized_linear` and the layers of nn.quantized compute with.

    Raises CheckpointError for a file that is damaged, cut off or something else, DeviceError for a device that
    cannot be used here, ValueError for `mmap` of anything but a path, and for a `pickle_module` with `weights_only`.
    """
    if pickle_module is not None and weights_only:
        raise ValueError("load(): weights are read without a pickle_module; leave it out, or say weights_only=False")
    trusted = weights_only is False or pickle_module is not None
    locations = Locations(map_location)
    with File(f, "load") as file:
        if mmap and not file.mappable:
            raise ValueError("load(): mmap=True needs the path of a file")
        if file.head.startswith(PYTORCH_HEADS):
            from . import objects, pytorch

            unpickle = partial(objects.load, module=pickle_module or pickle) if trusted else None
            return pytorch.load(file, locations, bool(mmap), unpickle)
        if file.head.startswith(b"GGUF"):
            from . import gguf_file

            return gguf_file.load(file, locations, bool(mmap), dequantize)
        source = Source(file, "load")
        structure = _structure(source)
        if structure is None:
            return _foreign(source, locations, bool(mmap))
        try:
            return _Reader(source, structure, locations, bool(mmap)).object()
        except RecursionError:
            raise source.fail("its structure is nested too deeply") from None


def _structure(source: Source) -> dict[str, Any] | None:
    """The JSON that `save` wrote, its checksum verified; None where it was something else that wrote the file."""
    raw, at = source.raw, len(_PREFIX)
    signed = raw.startswith(_PREFIX)
    if not signed and not {"norch", "norch.header"} & set(source.metadata):
        return None
    blanked = raw[:at] + BLANK.encode() + raw[at + len(BLANK) :]
    if not signed or raw[at : at + len(BLANK)] != f"{zlib.crc32(blanked):08x}".encode():
        raise source.fail(
            "the header is damaged: it does not have the checksum that it was saved with. If another program rewrote "
            "the file, norch.load_safetensors still reads its tensors"
        )
    structure = header.parse_json(source.metadata.get("norch", ""), source.fail, "the structure")
    if not isinstance(structure, dict) or type(structure.get("version")) is not int:
        raise source.fail("the structure is damaged: it has no version")
    if structure["version"] != VERSION:
        raise source.fail(f"it has version {structure['version']} of the format, this norch reads {VERSION}: upgrade")
    return structure


def _foreign(source: Source, locations: Locations, mapped: bool) -> dict[str, Tensor]:
    found = {}
    for name in sorted(source.entries, key=lambda n: source.entries[n].begin):
        device = locations.device(CPU, name)
        tensor = source.map(name) if mapped and device is CPU else source.read(name, device)
        found[name] = locations.finish(tensor, CPU, name)
    source.finish()
    return {name: found[name] for name in source.entries}


class _Reader:
    """Puts an object together again. Everything that the structure says is checked against the file."""

    def __init__(self, source: Source, structure: dict[str, Any], locations: Locations, mapped: bool) -> None:
        self._source, self._locations, self._mapped = source, locations, mapped
        self._tree, self._metadata = structure.get("object"), structure.get("metadata", [])
        self._records: list[Any] = self._expect(structure, "tensors", list)
        self._arrays: list[Any] = self._expect(structure, "arrays", list)
        self._data: dict[str, Any] = self._expect(structure, "data", dict)
        self._memory: dict[str, Tensor] = {}

    def _expect(self, structure: dict[str, Any], key: str, kind: type) -> Any:
        value = structure.get(key)
        if type(value) is not kind:
            raise self._source.fail(f"the structure is damaged: {key} is {value!r:.40}")
        return value

    def object(self) -> Any:
        source = self._source
        if set(self._data) != set(source.entries):
            raise source.fail("the structure is damaged: it names other tensors than the file holds")
        arrays = set()
        for name in self._arrays:
            if not isinstance(name, str) or name not in self._data:
                raise source.fail(f"the structure is damaged: there is no array {name!r:.80}")
            arrays.add(name)
        held: dict[str, Any] = {}
        for name in sorted(source.entries, key=lambda n: source.entries[n].begin):
            checksum, device = self._place(name)
            held[name] = source.read_array(name, checksum) if name in arrays else self._read(name, checksum, device)
        self._memory = {name: value for name, value in held.items() if name not in arrays}
        source.finish()
        tensors = [self._tensor(number, record) for number, record in enumerate(self._records)]
        decoder = Decoder(tensors, [held[name] for name in self._arrays], source.fail)
        obj = decoder.decode(self._tree)
        decoder.set_metadata(self._metadata)
        return obj

    def _place(self, name: str) -> tuple[str, Device]:
        place = self._data[name]
        if not isinstance(place, list) or not 1 <= len(place) <= 2 or not all(type(p) is str for p in place):
            raise self._source.fail(f"the structure is damaged: {name!r:.80} is at {place!r:.80}")
        try:
            return place[0], device_named(place[1]) if len(place) == 2 else CPU
        except ValueError as error:
            raise self._source.fail(f"the structure is damaged: {error}") from None

    def _read(self, name: str, checksum: str, saved: Device) -> Tensor:
        device = self._locations.device(saved, name)
        if self._mapped and device is CPU:
            tensor = self._source.map(name)
        else:
            tensor = self._source.read(name, device, checksum)
        return self._locations.finish(tensor, saved, name)

    def _tensor(self, number: int, record: Any) -> Tensor:
        """A tensor on the memory that was read for it."""
        try:
            return self._view(record)
        except (KeyError, TypeError, ValueError) as error:
            raise self._source.fail(f"the structure is damaged at tensor {number}, {record!r:.80}: {error}") from None

    def _view(self, record: Any) -> Tensor:
        if not isinstance(record, dict) or set(record) - {"data", "shape", "strides", "offset", "requires_grad"}:
            raise ValueError("it has other fields than a tensor's")
        memory = self._memory[record["data"]]
        shape, strides = _sizes(record.get("shape")), _sizes(record.get("strides"))
        offset = record.get("offset", 0)
        if type(offset) is not int or offset < 0:
            raise ValueError("its offset is not a size")
        if shape is None:
            shape = tuple(memory.spec.shape)
        if strides is not None and len(strides) != len(shape):
            raise ValueError("it has not as many strides as dims")
        spec = Spec(shape, strides, memory.spec.dtype, memory.spec.device)
        if spec.numel >= 2**60 or offset + span(shape, spec.strides) > memory.spec.numel:
            raise ValueError(f"it reaches beyond {record['data']!r:.80}")
        out = make_tensor(spec, memory.buffer, memory.offset + offset)
        grad = record.get("requires_grad", False)
        if type(grad) is not bool or (grad and not spec.dtype.is_floating_point):
            raise ValueError("it cannot require a gradient")
        return out.requires_grad_() if grad else out


def _sizes(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not header.are_sizes(value) or len(value) > header.MAX_DIMS:
        raise ValueError("its shape or strides are not sizes")
    return tuple(value)
