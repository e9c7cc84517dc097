"""What a machine can find wrong with docstrings: python tests/docstrings.py [a rule, or how a name begins]

`public()` walks the names that users import, `findings` tries the rules below on each. A text may refer to another
("as of `conv2d`", "See BatchNorm1d"): what that one says counts. What arguments mean everywhere is said once, in the
docstring of the namespace. Whether a text is true, or well said, no rule knows: numbers in it are tried by tests of the
function.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import MagicMock

import norch

NAMESPACES = (
    "norch", "norch.Tensor", "norch.accelerator", "norch.amp", "norch.autograd", "norch.autograd.functional",
    "norch.backend", "norch.backends", "norch.cpu", "norch.cuda", "norch.distributions",
    "norch.distributions.constraints", "norch.distributions.transforms", "norch.fft", "norch.func", "norch.library",
    "norch.linalg", "norch.memory", "norch.profiler", "norch.profiler.legacy", "norch.profiler.nvidia",
    "norch.profiler.nvtx",
    "norch.serialization", "norch.signal.windows", "norch.sparse", "norch.special", "norch.testing",
    "norch.nn", "norch.nn.attention", "norch.nn.attention.flex_attention", "norch.nn.functional",
    "norch.nn.grad", "norch.nn.init", "norch.nn.parallel", "norch.nn.utils", "norch.nn.utils.parametrizations",
    "norch.nn.utils.parametrize", "norch.nn.utils.prune", "norch.nn.utils.rnn", "norch.nn.utils.stateless",
    "norch.fx", "norch.optim", "norch.optim.lr_scheduler", "norch.optim.swa_utils", "norch.utils.checkpoint",
    "norch.utils.data", "norch.utils.tensorboard", "norch.vision.datasets", "norch.vision.io", "norch.vision.models",
    "norch.vision.models.detection", "norch.vision.models.segmentation", "norch.vision.ops",
    "norch.vision.transforms", "norch.vision.transforms.v2", "norch.vision.transforms.v2.functional",
    "norch.vision.utils",
    "norch.distributed", "norch.distributed.checkpoint", "norch.distributed.fsdp", "norch.distributed.nn.functional",
    "norch.distributed.optim", "norch.distributed.pipelining", "norch.distributed.tensor.parallel",
    "norch_cpu.module", "norch_cuda.module",
)  # fmt: skip

# By namespace: families of which each member rests on a published algorithm, and names it with its year.
NEEDS_SOURCE = {
    "norch.optim": r"(?!Optimizer$)",
    "norch.optim.lr_scheduler": r"CosineAnnealing|OneCycle|CyclicLR",
    "norch.optim.swa_utils": r"(?!get_|update_bn)",
    "norch.nn.init": r"kaiming|xavier|orthogonal|trunc_normal|sparse",
    "norch.nn": r"\w*(Norm|RNN(?!CellBase)|LSTM|GRU|Attention|Transformer|Dropout|CTC|GELU|SELU|CELU|SiLU|Mish|PReLU)"
    r"|RReLU|Hardswish|ELU|GLU|Triplet|PixelShuffle|AdaptiveLogSoftmax|LocalResponse",
    "norch.nn.functional": r"\w*(_norm$|dropout|attention|gelu|selu|celu|silu|mish|prelu|ctc|triplet|pixel_shuffle)"
    r"|elu$|glu$|rrelu|hardswish|gumbel|grid_sample",
    "norch.nn.utils": r"weight_norm|spectral_norm|clip_grad_norm",
    "norch.vision.models": r"(?!get_|list_)[a-z]",
    "norch.vision.models.segmentation": r"[a-z]",
    "norch.vision.ops": r"nms|StochasticDepth|stochastic_depth|roi",
    "norch.vision.transforms": r"AutoAugment|RandAugment|TrivialAugment|RandomErasing",
    "norch.special": r"bessel|i0|i1|digamma|gammaln|polygamma|zeta|ndtri|log_ndtr|erfinv",
    "norch.amp": r"GradScaler",
    "norch.distributed.optim": r"ZeroRedundancyOptimizer",
    "norch.distributed.fsdp": r"fully_shard|FullyShardedDataParallel",
    "norch.utils.checkpoint": r"checkpoint",
}  # fmt: skip

SHAPE = re.compile(
    r"\b(?:shapes?|elementwise|dims?|elements?|scalars?|broadcast|matri(?:x|ces)|vectors?|rows?|itself|in place)\b"
    r"|\b[0-9n]-D\b|`steps` values|\((?:[*\w./ -]+, )*(?:\w|\*|\.\.\.|[a-z_]+)(?:, [\w.*/ +-]+)*,?\)",
    re.IGNORECASE,
)
ERROR = re.compile(r"[Rr]aises|\b\w*Error\b|[Rr]efuse")
YEAR = re.compile(r"\b1[789]\d\d\b|\b20[012]\d\b|DLMF")
REFERENCE = re.compile(
    r"`([A-Za-z_][\w.]*)`?|\b(?:[Ss]ee|[Aa]s|as of|as by|like|of|with|in|than|for|and) (?:functional\.)?([A-Za-z_]\w+)"
)


@dataclass
class Entry:
    """A public callable: where it is found, and the class that it belongs to."""

    namespace: str
    name: str
    value: Any
    owner: type | None = None

    def __str__(self) -> str:
        return f"{self.namespace}.{f'{self.owner.__name__}.' if self.owner else ''}{self.name}"

    @cached_property
    def function(self) -> Any:
        """The function whose body does the work; of a class its constructor."""
        found = self.value
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, type):
            found = vars(found).get("__init__") or vars(found).get("__post_init__")
        found = getattr(found, "__func__", found)
        return inspect.unwrap(found) if callable(found) else found

    @cached_property
    def text(self) -> str:
        return inspect.getdoc(self.value) or ""

    @cached_property
    def whole(self) -> str:
        """The docstring, those that it refers to, the class's, and those of what its class inherits it from."""
        texts = [self.text, *(inspect.getdoc(other) or "" for other in self._relatives())]
        referred_to = [text for own in texts for text in self._referred(own)]
        return "\n".join([*texts, *referred_to, *(text for own in referred_to for text in self._referred(own))])

    def _relatives(self) -> Iterator[Any]:
        owner = self.owner or (self.value if isinstance(self.value, type) else None)
        if self.owner:
            yield self.owner
        for base in owner.__mro__ if owner else ():
            if base.__module__.startswith("norch") and base is not owner:
                yield vars(base).get(self.name) if self.owner else base
        if isinstance(self.value, type):
            yield vars(self.value).get("__init__")
            yield vars(self.value).get("forward")

    def _referred(self, text: str) -> Iterator[str]:
        for quoted, plain in REFERENCE.findall(text):
            other = referred(quoted or plain, self.namespace, self.owner)
            if other is not None and other is not self.value:
                yield inspect.getdoc(other) or ""

    @cached_property
    def signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.value)
        except (TypeError, ValueError):
            return None

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        found = self.signature.parameters if self.signature and not isinstance(self.value, property) else {}
        return {name: p for name, p in found.items() if name != "self" and not name.startswith("_")}


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", None)).startswith("norch")


@cache
def referred(name: str, namespace: str, owner: type | None) -> Any:
    """What a docstring means by a name: of its class, its namespace, or those that all others are made of."""
    path = name.removeprefix("norch.").split(".")
    first = SHARED if name.startswith("norch.") else (namespace, *SHARED)
    for place in (owner, *(places()[n] for n in first)):
        found: Any = place
        for part in path:
            found = getattr(found, part, None) if part in names_of(found) else None
        if callable(found) and _is_ours(found):
            return found
    return None


@cache
def names_of(place: Any) -> frozenset[str]:
    return frozenset([*dir(place), *getattr(place, "__all__", ())])


SHARED = ("norch", "norch.nn.functional", "norch.nn", "norch.linalg", "norch.vision.transforms", "norch.Tensor")


@cache
def places() -> dict[str, Any]:
    """What the names of NAMESPACES are; norch_cpu, which adds to `norch.cpu`, where it is installed."""
    special: dict[str, Callable[[], Any]] = {"norch.Tensor": lambda: norch.Tensor, "norch_cuda.module": module_of_cuda}
    names = [n for n in NAMESPACES if n != "norch_cpu.module" or find_spec("norch_cpu")]
    return {n: special[n]() if n in special else import_module(n) for n in names}


def module_of_cuda() -> ModuleType:
    """What norch-cuda adds to `norch.cuda`, without its compiled part: texts are all that is looked at."""
    source = str(Path(__file__).parents[1] / "packages" / "norch-cuda" / "src")
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "norch_cuda"}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, source)
    sys.modules["norch_cuda._ext"] = MagicMock()
    try:
        return import_module("norch_cuda.module")
    finally:
        sys.path.remove(source)
        for name in [name for name in sys.modules if name.partition(".")[0] == "norch_cuda"]:
            del sys.modules[name]
        sys.modules.update(before)


def exported(module: ModuleType) -> dict[str, Any]:
    """The public names of a module: `__all__`, or what is written in it, and what it imports `as` the same name."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = dir(module)
        if module is not norch and isinstance(getattr(module, "__file__", None), str):
            names = written(inspect.getsource(module))
    values = {n: getattr(module, n) for n in names if not n.startswith("_") and hasattr(module, n)}
    return {n: v for n, v in values.items() if callable(v) and _is_ours(v)}


def written(source: str) -> list[str]:
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [a.name for a in node.names if a.asname == a.name]
        elif isinstance(node, ast.Assign):
            names += [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return names


def members(title: str, owner: type) -> list[Entry]:
    """The public methods and properties of a class, but for those of its bases outside of norch."""
    kinds = (FunctionType, staticmethod, classmethod, property)
    own: dict[str, Entry] = {}
    for base in owner.__mro__:
        for n, v in vars(base).items():
            if _is_ours(base) and isinstance(v, kinds) and not n.startswith("_") and n not in own:
                known = base if getattr(places()[title], base.__name__, None) is base else owner
                own[n] = Entry(title, n, v if isinstance(v, property) else getattr(base, n), known)
    return list(own.values())


@cache
def public() -> list[Entry]:
    found: list[Entry] = []
    seen: set[int] = set()

    def add(entries: list[Entry]) -> None:
        found.extend(entry for entry in entries if id(entry.value) not in seen)
        seen.update(id(entry.value) for entry in entries)

    for title, place in places().items():
        if not isinstance(place, ModuleType):
            add(members(title, place if isinstance(place, type) else type(place)))
            continue
        for name, value in exported(place).items():
            if id(value) not in seen and value is not norch.Tensor:
                add([Entry(title, name, value)])
                if isinstance(value, type) and not issubclass(value, BaseException):
                    add(members(title, value))
    return found


# --- Rules ----------------------------------------------------------------------------------------------------------
# Each gives what is missing, or None.


def docstring(entry: Entry) -> str | None:
    """There is one, whose first sentence ends and is more than the name."""
    first = " ".join(entry.text.partition("\n\n")[0].split())
    if not first:
        return "no docstring"
    if not first.endswith((".", ":", "?")) or len(re.findall(r"\w+|[-+*/<>=~&|^%]+", first)) < 2:
        return f"no sentence: {first!r}"
    return None


def signature(entry: Entry) -> str | None:
    """What `help` shows has the parameters' names."""
    if isinstance(entry.value, property) or (
        isinstance(entry.value, type) and issubclass(entry.value, Exception | int)
    ):
        return None
    if entry.signature is None:
        return "no signature"
    given = list(entry.parameters)
    code = getattr(entry.function, "__code__", None)
    honest = code is not None and set(given) <= set(code.co_varnames) and "call" != code.co_name != "_unwritten"
    return "(*args, **kwargs)" if given == ["args", "kwargs"] and not honest and not _refuses(entry) else None


def _refuses(entry: Entry) -> bool:
    return entry.text.startswith(("Raises", "Not supported", "Not there"))


def parameters(entry: Entry) -> str | None:
    """Each is named by the text, by what that refers to, or by its namespace's docstring for all."""
    if _refuses(entry) or (isinstance(entry.value, type) and issubclass(entry.value, Enum)):
        return None
    shared = {name for place in above(entry.namespace) for name in conventions(place)}
    said = {*re.findall(r"\w+", entry.whole), *shared}
    lacks = [n for n, p in entry.parameters.items() if n not in said and p.kind not in _VARIABLE]
    return ", ".join(lacks) or None


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def above(namespace: str) -> list[str]:
    """norch, norch.nn, norch.nn.functional."""
    parts = namespace.split(".")
    return list(dict.fromkeys(["norch", *[".".join(parts[: i + 1]) for i in range(len(parts))]]))


@cache
def conventions(namespace: str) -> dict[str, str]:
    """The arguments that a namespace explains for all it has, after a line "Arguments that mean the same ...:"."""
    if namespace in ("norch.Tensor", "norch_cpu", "norch_cuda"):
        return {}
    text = inspect.getdoc(places().get(namespace) or import_module(namespace)) or ""
    _, _, listed = text.partition("\nArguments that mean the same in every ")
    parts = re.split(r"(?:^    |\. )((?:[a-z_]+, )*[a-z_]+): ", listed, flags=re.MULTILINE)
    return {name: said for names, said in zip(parts[1::2], parts[2::2]) for name in names.split(", ")}


def shape(entry: Entry) -> str | None:
    """What takes or gives tensors says of which shape."""
    if isinstance(entry.value, type) or entry.signature is None:
        return None
    notes = [str(p.annotation) for p in entry.signature.parameters.values()]
    gives = str(entry.signature.return_annotation)
    tensors = any(re.search(r"\bTensor\b", note) for note in (*notes, gives)) and gives not in ("bool", "int", "str")
    shared = conventions(entry.namespace) if entry.namespace != "norch" else {}
    if any(SHAPE.search(shared.get(name, "")) for name in entry.parameters):
        return None
    return "no shape" if tensors and not _refuses(entry) and not SHAPE.search(entry.whole) else None


def raises(entry: Entry) -> str | None:
    """The exceptions that its body raises are named; where a helper of its raises, the text says that it raises."""
    made = isinstance(entry.value, type) and entry.function and entry.function.__module__ != entry.value.__module__
    if (
        not isinstance(entry.function, FunctionType) or made or _refuses(entry)
    ):  # a constructor that was made of a table of fields
        return None
    own = raised(entry.function)
    lacks = [e for e in own if not _is_named(e, entry.whole)]
    if lacks:
        return ", ".join(lacks)
    helpers = [f.__name__ for f in called(entry.function) if raised(f)]
    shared = [conventions(entry.namespace).get(name, "") for name in entry.parameters]
    named = ERROR.search("\n".join([entry.whole, *shared]))
    return f"by {', '.join(helpers)}" if helpers and not named else None


def _is_named(error: str, text: str) -> bool:
    kind = getattr(norch, error, None) or getattr(builtins, error, None)
    names = [c.__name__ for c in kind.__mro__ if c not in (Exception, BaseException, object)] if kind else [error]
    return any(re.search(rf"\b{name}\b", text) for name in names)


@cache
def body(function: FunctionType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What a function does itself: without functions written in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from own_nodes(child)


@cache
def raised(function: FunctionType) -> list[str]:
    """The classes of exceptions in its `raise` statements; none where it is abstract."""
    tree = body(function)
    made = (
        [n.exc.func for n in own_nodes(tree) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)]
        if tree
        else []
    )
    return sorted({f.id for f in made if isinstance(f, ast.Name) and f.id[:1].isupper()})


def called(function: FunctionType) -> list[FunctionType]:
    """The private functions of norch that it calls by name."""
    tree = body(function)
    names = (
        {n.func.id for n in own_nodes(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)} if tree else ()
    )
    names = {n for n in names if n.startswith(("_", "check"))}
    found = [inspect.unwrap(function.__globals__[n]) for n in names if callable(function.__globals__.get(n))]
    return [f for f in found if isinstance(f, FunctionType) and _is_ours(f)]


def source(entry: Entry) -> str | None:
    """A family that rests on a published algorithm names it."""
    pattern = NEEDS_SOURCE.get(entry.namespace)
    if pattern is None or entry.owner is not None or not re.match(pattern, entry.name):
        return None
    return None if YEAR.search(entry.whole) else "no source"


RULES: tuple[Callable[[Entry], str | None], ...] = (docstring, signature, parameters, shape, raises, source)


def findings(rule: Callable[[Entry], str | None]) -> dict[str, str]:
    """By name: what the rule misses."""
    found = {str(entry): rule(entry) for entry in public()}
    return {name: lacks for name, lacks in found.items() if lacks}


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for rule in RULES:
        lacking = findings(rule)
        print(f"{rule.__name__}: {len(lacking)} of {len(public())}")
        for name, lacks in lacking.items():
            if wanted in (rule.__name__, name[: len(wanted)]) and wanted:
                print(f"    {name}: {lacks}")


if __name__ == "__main__":
    main()
