"""Files as PyTorch writes them, made without it: pickles that name its classes, zip archives and the older format."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple


class Name(NamedTuple):
    """A class or function that need not exist here."""

    module: str
    name: str

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)


class Call:
    """What a function gives, and the state that is set on it."""

    def __init__(self, function: Name, args: tuple[Any, ...], state: Any = None) -> None:
        self.function, self.args, self.state = function, args, state


class Storage(NamedTuple):
    kind: Name
    key: str
    count: int
    location: str = "cpu"


class _Writer(pickle._Pickler):  # type: ignore[name-defined]  # the one in Python, which can be told what to write
    legacy = False

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Storage):
            return None
        return ("storage", obj.kind, obj.key, obj.location, obj.count, *([None] if self.legacy else []))

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, Name):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Call):
            known = self.memo.get(id(obj))
            if known is not None:
                self.write(self.get(known[0]))
                return
            self.save(obj.function)
            self.save(obj.args)
            self.write(b"R")
            self.memoize(obj)
            if obj.state is not None:
                self.save(obj.state)
                self.write(b"b")
        else:
            super().save(obj, save_persistent_id)


def pickled(obj: Any, legacy: bool = False) -> bytes:
    file = io.BytesIO()
    writer = _Writer(file, 2)
    writer.legacy = legacy
    writer.dump(obj)
    return file.getvalue()


def torch(name: str) -> Name:
    return Name("torch", name)


def tensor(
    key: str, count: int, shape: tuple[int, ...], stride: tuple[int, ...] | None = None, offset: int = 0,
    kind: str = "FloatStorage", grad: bool = False, location: str = "cpu",
) -> Call:  # fmt: skip
    if stride is None:
        stride = tuple(_product(shape[i + 1 :]) for i in range(len(shape)))
    storage = Storage(torch(kind), key, count, location)
    return Name("torch._utils", "_rebuild_tensor_v2")(storage, offset, shape, stride, grad, OrderedDict())


def _product(sizes: tuple[int, ...]) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


def zipped(
    obj: Any, storages: dict[str, bytes] | None = None, members: dict[str, bytes] | None = None, method: int = 0
) -> bytes:
    """What torch.save writes. obj: an object, or the bytes of a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("m/data.pkl", obj if isinstance(obj, bytes) else pickled(obj))
        for key, data in (storages or {}).items():
            archive.writestr(f"m/data/{key}", data)
        for name, data in {"version": b"3\n", **(members or {})}.items():
            archive.writestr(f"m/{name}", data)
    return file.getvalue()


MAGIC = 0x1950A86A20F9469CFC6C


def legacy(obj: Any, storages: dict[str, tuple[int, bytes]] | None = None, little: bool = True) -> bytes:
    """What it wrote before 1.6. storages: each with its number of elements."""
    storages = storages or {}
    system = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    parts = [pickle.dumps(MAGIC, 2), pickle.dumps(1001, 2), pickle.dumps(system, 2)]
    parts += [obj if isinstance(obj, bytes) else pickled(obj, legacy=True), pickle.dumps(list(storages), 2)]
    return b"".join(parts + [struct.pack("<q", count) + data for count, data in storages.values()])


def repickled(content: bytes, damage: Callable[[bytes], bytes]) -> bytes:
    """An archive whose pickle was changed by someone who knows how to zip it again."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name.removeprefix("m/"): archive.read(name) for name in archive.namelist()}
    return zipped(damage(members.pop("data.pkl")), {}, members)


def unpickled(data: bytes, chance: random.Random) -> bytes:
    """A pickle of which some opcodes are gone, come twice, come elsewhere or have other arguments."""
    ends = [at for _, _, at in pickletools.genops(data)][1:] + [len(data)]
    parts = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(len(parts)), chance.randrange(len(parts))
        kind = chance.randrange(6)
        if kind == 0:
            parts[at] = b""
        elif kind == 1:
            parts[at] += parts[other]
        elif kind == 2:
            parts[at], parts[other] = parts[other], parts[at]
        elif kind == 3:
            parts[at] = chance.choice(STRANGE_OPS)
        elif kind == 4:
            parts[at] = parts[at][:1000] * chance.choice((2, 100, 10_000))
        else:
            piece = bytearray(parts[at] or b"N")
            piece[chance.randrange(len(piece))] = chance.randrange(256)
            parts[at] = bytes(piece)
    return b"".join(parts)


STRANGE_OPS = [
    *b"N ] } ) ( \x8f 0 1 2 e u t \x85 \x86 R \x81 b Q a s".split(), b"K\0", b"J\xff\xff\xff\xff", b"h\1", b"\x8c\2f8",
    b"\x8a\x09" + b"\xff" * 8 + b"\x7f", b"G\x7f\xf8\0\0\0\0\0\0", b"r\xff\xff\xff\x7f", b"X\xff\xff\xff\xff",
    *(f"c{name}\n".encode() for name in (
        "os\nsystem", "__builtin__\nset", "torch\nTensor", "torch\nSize", "torch\nLongStorage", "torch\nfloat64",
        "collections\nOrderedDict", "_codecs\nencode", "numpy\ndtype", "numpy\nndarray",
        "torch._utils\n_rebuild_parameter",
    )),
]  # fmt: skip


def floats(*values: float, order: str = "<") -> bytes:
    return struct.pack(f"{order}{len(values)}f", *values)


def state(kind: str = "zip") -> bytes:
    """A checkpoint of a bit of everything."""
    shared = tensor("0", 6, (2, 3), grad=True)
    tree = {
        "model": OrderedDict([("fc.weight", shared), ("fc.t", tensor("0", 6, (3, 2), (1, 3))), ("tied", shared)]),
        "step": 3,
        "half": tensor("1", 3, (3,), kind="BFloat16Storage"),
        "more": [None, 1.5, "text", (1, 2), torch("float16"), torch("Size")((2, 3)), b"\0\xff", {4, 5}, 2**70],
    }
    data = {"0": floats(0, 1, 2, 3, 4, 5), "1": b"\x80\x3f\0\x40\x40\x40"}
    if kind == "zip":
        return zipped(tree, data)
    return legacy(tree, {"0": (6, data["0"]), "1": (3, data["1"])})
