"""Whole objects (modules, dataclasses), pickled: `save` does where a state cannot hold them, `load` unpickles them only
with `weights_only=False`, since a pickle can run any code.

The file is a zip archive as PyTorch's, whose `data.pkl` has numbers in place of tensors; `tensors.pkl` lists these.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .. import shown
from ..memory_formats import strided
from ..tensor import Tensor
from .attributes import attributes
from .memory import blocks
from .pytorch.names import FUNCTIONS, KNOWN
from .pytorch.writer import Pickle, storage_members
from .pytorch.zipped import Member

_ROOT = __name__.partition(".")[0]
_OURS = {"torch": "norch", "torchvision": "norch.vision"}


class _Apart(pickle.Pickler if TYPE_CHECKING else object):  # type: ignore[misc]
    """The part of a pickler that leaves tensors out, before a class that pickles the rest."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 4)
        self.tensors: list[tuple[str, Tensor]] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not Tensor or attributes(obj):
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append((str(number), obj))
        return ("tensor", number)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType) and obj.__module__.partition(".")[0] == _ROOT:
            home = _home(obj)
            if home not in (None, obj.__module__):
                return find, (home, obj.__name__)
        if isinstance(obj, Enum) and type(obj).__reduce_ex__ is Enum.__reduce_ex__:
            return type(obj), (obj.value,)  # by getattr in Python 3.11 before 3.11.4, which files may not name
        if not isinstance(obj, Tensor) or obj.layout is not strided or obj.left_to is not None:
            theirs = getattr(super(), "reducer_override", None)
            return NotImplemented if theirs is None else theirs(obj)
        return make_subclass, (type(obj), obj.detach().as_subclass(Tensor), obj.requires_grad), attributes(obj) or None


def _home(function: Any) -> str | None:
    """The module of norch under whose name a function is reached: where it was defined it may stand undecorated."""
    name = function.__name__
    if vars(sys.modules[function.__module__]).get(name) is function:
        return function.__module__
    homes = [key for key in sys.modules if key.partition(".")[0] == _ROOT]
    return min((key for key in homes if vars(sys.modules[key]).get(name) is function), key=len, default=None)


def find(module: str, name: str) -> Any:
    """A function of norch, in a pickle."""
    if module.partition(".")[0] != _ROOT:
        raise pickle.UnpicklingError(f"{module} is no module of {_ROOT}")
    return getattr(import_module(module), name)


def make_subclass(kind: type[Tensor], data: Tensor, requires_grad: bool) -> Tensor:
    """A parameter, or another tensor of a class or with attributes of its own."""
    out: Tensor = data.as_subclass(kind)
    return out.requires_grad_() if requires_grad else out


@cache
def _before(part: type, kind: type) -> type:
    """A class of pickle's, or of a module like it, with a part of norch's before it."""
    return type(kind.__name__, (part, kind), {})


def members(obj: Any, module: Any = pickle) -> list[Member]:
    """The members of an archive of any object that `module`, pickle or one like it, takes. Raises what that raises."""
    file = io.BytesIO()
    pickler = _before(_Apart, module.Pickler)(file)
    pickler.dump(obj)
    memory = blocks(pickler.tensors)
    tensors = [tensor for _, tensor in pickler.tensors]
    listed = Pickle(memory, tensors)
    listed.write(tensors)
    return [("data.pkl", file.getvalue()), ("tensors.pkl", listed.done()), *storage_members(memory)]


class _Trusting:
    """Stands for the machine in calls that rebuild tensors: nothing is bounded."""

    def __init__(self, fail: Callable[[str], Exception], storages_follow: bool) -> None:
        self.fail, self.storages_follow = fail, storages_follow

    def spend(self, size: int) -> None:
        pass

    def check_keys(self, keys: Any) -> None:
        pass


class _Joined(pickle.Unpickler if TYPE_CHECKING else object):  # type: ignore[misc]
    """The part of an unpickler that knows tensors and names of PyTorch, before a class that finds the other names."""

    def __init__(
        self, data: bytes, stored: Callable[[Any], Any], fail: Callable[[str], Exception], storages_follow: bool
    ) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._stored, self._fail = stored, fail
        # Whether another module's Unpickler may say which classes there are.
        self._finds = type(self).__mro__[2] is not pickle.Unpickler
        self._machine = _Trusting(fail, storages_follow)

    def persistent_load(self, pid: Any) -> Any:
        try:
            return pid[1] if pid[0] == "module" else self._stored(pid)  # a class, its source behind it
        except (TypeError, ValueError, IndexError) as error:
            raise self._fail(f"its pickle is damaged: {error}") from error

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        root, _, rest = module.partition(".")
        if root in _OURS:
            if full in FUNCTIONS:
                return partial(FUNCTIONS[full], self._machine)
            if full in KNOWN:
                return KNOWN[full][0]
            if self._finds and shown.root == "torch":
                return super().find_class(module, name)
            return self._ours(_OURS[root] + (rest and f".{rest}"), name, full)
        if self._finds and root == _ROOT:
            if module == __name__ and name in ("find", "make_subclass"):
                return globals()[name]
            module = shown.root + module[len(_ROOT) :]
        try:
            found = super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            raise self._fail(
                f"it holds {full}, which is not found here ({error}); define or import it where it was when the file "
                "was saved"
            ) from None
        _refuse_theirs(found, full, self._fail)
        return found

    def _ours(self, module: str, name: str, full: str) -> Any:
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            raise self._fail(
                f"it holds {full}, which norch lacks; where PyTorch is installed, save the model's state_dict() and "
                "load that into a model of norch"
            ) from None
        return found


def _refuse_theirs(found: Any, full: str, fail: Callable[[str], Exception]) -> None:
    """A class that stands on PyTorch's own cannot have norch's tensors."""
    theirs = sys.modules.get("torch")
    if theirs is None or theirs is sys.modules[_ROOT] or not isinstance(found, type):
        return
    if any(base.__module__.partition(".")[0] == "torch" for base in found.__mro__):
        raise fail(
            f"it holds {full}, a class of PyTorch itself here; import norch in place of torch where it is defined"
        )


def load(
    data: bytes,
    stored: Callable[[Any], Any],
    fail: Callable[[str], Exception],
    storages_follow: bool = False,
    module: Any = pickle,
) -> Any:
    """The object of a pickle that the user trusts. `stored(key)` gives what is outside of it, whose values come only
    then where `storages_follow`. module: pickle, or what is used in its place."""
    try:
        return _before(_Joined, getattr(module, "Unpickler", pickle.Unpickler))(
            data, stored, fail, storages_follow
        ).load()
    except (pickle.UnpicklingError, EOFError) as error:
        raise fail(f"its pickle is damaged: {error}") from error
