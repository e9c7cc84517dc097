"""Pickles read without running what they say: a machine for the opcodes, and a table of the names that it knows.

The parsing is pickletools'. What a pickle can cost is bounded by its length: no opcode allocates more than it holds, a
call may copy no more than was read before it (`spend`), and keys whose hash takes long are refused.
"""

from __future__ import annotations

import io
import pickletools
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from ...errors import CheckpointError, DeviceError, DTypeError, OutOfMemoryError
from ..header import MAX_CONTAINERS

SLACK = 1 << 16
MAX_ODD_KEYS = 10_000
"""Keys and members of sets whose hashes a file can choose, so that all collide."""

_LEAVES = (str, bytes, bool, type(None))
_VALUES = frozenset(
    """INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8""".split()
)
_STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_SKIPPED = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_MAPPINGS = (dict, OrderedDict, Counter, defaultdict)


class Names(Protocol):
    """What the names in a pickle stand for."""

    def find(self, machine: Machine, module: str, name: str) -> Any:
        """What is put on the stack for a global; raises what refuses it."""

    def call(self, machine: Machine, function: Any, args: tuple[Any, ...], new: bool) -> Any:
        """What `function(*args)` or, with `new`, `function.__new__(function, *args)` gives."""

    def build(self, machine: Machine, instance: Any, state: Any) -> None:
        """Sets the state of an instance."""

    def persistent(self, machine: Machine, key: Any) -> Any:
        """What stands outside of the pickle under this key."""


class Machine:
    """`run(pickle)` gives the object. Raises `fail(...)` for a damaged one, and what `names` raises."""

    storages_follow = False
    """Whether the storages are filled only when the pickle has been read."""

    def __init__(self, names: Names, fail: Callable[[str], Exception]) -> None:
        self._names = names
        self.fail = fail
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._made = self._spent = self._odd = self._at = 0

    def run(self, data: bytes) -> Any:
        ops = {name.removeprefix("_op_"): getattr(self, name) for name in dir(type(self)) if name.startswith("_op_")}
        memo = self._memo
        try:
            for opcode, arg, at in pickletools.genops(io.BytesIO(data)):
                name, stack = opcode.name, self._stack
                if name in _VALUES:
                    stack.append(arg)
                elif name in _PUTS:
                    memo[arg] = stack[-1]  # type: ignore[index]
                elif name == "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                elif name in _GETS:
                    stack.append(memo[arg])  # type: ignore[index]
                elif name in _CONSTANTS:
                    stack.append(_CONSTANTS[name])
                elif name in _STRINGS:
                    stack.append(_text(arg))
                elif name in ops:
                    self._at = at or 0
                    self._made += 1
                    if self._made > MAX_CONTAINERS:
                        raise self.fail(f"it holds more than {MAX_CONTAINERS:,} containers and tensors")
                    if name == "GLOBAL":
                        ops[name](*str(arg).split(" ", 1))
                    elif name == "PERSID":
                        ops[name](arg)
                    else:
                        ops[name]()
                elif name in _EMPTY:
                    self._made += 1
                    stack.append(_EMPTY[name]())
                elif name not in _SKIPPED:
                    raise self.fail(f"its pickle uses {name}, which no file of weights does")
            if len(self._stack) != 1 or self._marked:
                raise ValueError("it does not end with one object")
            return self._stack[0]
        except (CheckpointError, DTypeError, DeviceError, OutOfMemoryError):
            raise
        except MemoryError:
            raise self.fail("there is not the memory to read it") from None
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise self.fail(f"its pickle is damaged: {str(error)[:200] or type(error).__name__}") from error

    def spend(self, size: int) -> None:
        """Says that a call copies `size` bytes or objects."""
        self._spent += size
        if self._spent > self._at + SLACK:
            self._too_much()

    def _too_much(self) -> NoReturn:
        raise self.fail("its pickle asks for far more memory than it takes itself")

    def check_keys(self, keys: Any) -> None:
        """Refuses keys that take long to hash, and very many whose hashes may all be equal."""
        for key in keys:
            if type(key) in _LEAVES or (type(key) is int and -(2**60) < key < 2**60):
                continue
            self._odd += 1
            if self._odd > MAX_ODD_KEYS:
                raise self.fail(f"it has more than {MAX_ODD_KEYS:,} keys that are neither text nor small numbers")
            self._check_key(key, [100])

    def _check_key(self, key: Any, left: list[int], depth: int = 0) -> None:
        left[0] -= 1
        if depth > 10 or left[0] < 0:
            raise self.fail("it has a key of too many parts")
        if isinstance(key, tuple | frozenset):
            for part in key:
                self._check_key(part, left, depth + 1)

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marked.pop()
        return items

    # --- Opcodes --------------------------------------------------------------------------------------------------

    def _op_MARK(self) -> None:
        self._marked.append(self._stack)
        self._stack = []

    def _op_POP(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _op_POP_MARK(self) -> None:
        self._pop_mark()

    def _op_DUP(self) -> None:
        self._stack.append(self._stack[-1])

    def _op_TUPLE(self) -> None:
        items = self._pop_mark()
        self._stack.append(tuple(items))

    def _last(self, count: int) -> None:
        if len(self._stack) < count:
            raise ValueError("the stack is empty")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _op_TUPLE1(self) -> None:
        self._last(1)

    def _op_TUPLE2(self) -> None:
        self._last(2)

    def _op_TUPLE3(self) -> None:
        self._last(3)

    def _op_LIST(self) -> None:
        items = self._pop_mark()
        self._stack.append(items)

    def _op_DICT(self) -> None:
        items = self._pop_mark()
        self._stack.append({})
        self._set(items)

    def _op_FROZENSET(self) -> None:
        items = self._pop_mark()
        self.check_keys(items)
        self._stack.append(frozenset(items))

    def _op_APPEND(self) -> None:
        self._extend([self._stack.pop()])

    def _op_APPENDS(self) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise ValueError(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def _op_ADDITEMS(self) -> None:
        items = self._pop_mark()
        self.check_keys(items)
        if type(self._stack[-1]) is not set:
            raise ValueError(f"it adds to a {type(self._stack[-1]).__name__}")
        self._stack[-1].update(items)

    def _op_SETITEM(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def _op_SETITEMS(self) -> None:
        self._set(self._pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) not in _MAPPINGS or len(items) % 2:
            raise ValueError(f"it sets items of a {type(target).__name__}")
        self.check_keys(items[::2])
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[key] = value

    def _op_GLOBAL(self, module: str, name: str) -> None:
        self._stack.append(self._names.find(self, _OLD_MODULES.get(module, module), name))

    def _op_STACK_GLOBAL(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a name is no text")
        self._op_GLOBAL(module, name)

    def _call(self, args: Any, new: bool) -> None:
        if type(args) is not tuple:
            raise ValueError("arguments are no tuple")
        self._stack.append(self._names.call(self, self._stack.pop(), args, new))

    def _op_REDUCE(self) -> None:
        self._call(self._stack.pop(), False)

    def _op_NEWOBJ(self) -> None:
        self._call(self._stack.pop(), True)

    def _op_BUILD(self) -> None:
        state = self._stack.pop()
        self._names.build(self, self._stack[-1], state)

    def _op_BINPERSID(self) -> None:
        self._stack.append(self._names.persistent(self, self._stack.pop()))

    def _op_PERSID(self, key: str) -> None:
        self._stack.append(self._names.persistent(self, key))


def _text(value: Any) -> Any:
    """A string that Python 2 wrote: text where it is UTF-8, else bytes."""
    data = value.encode("latin-1")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data
