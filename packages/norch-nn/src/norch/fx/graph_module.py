"""GraphModule: a module whose `forward` is the code of a Graph."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Self, cast

import norch
from norch import nn

from .codegen import PythonCode
from .graph import Graph

_numbers = itertools.count()


def _forward_from_src(src: str, globals: dict[str, Any]) -> Any:
    """The function `forward` of the code, whose lines tracebacks, inspect and pdb show."""
    file = f"<norch.fx {next(_numbers)}>"
    linecache.cache[file] = (len(src), None, src.splitlines(keepends=True), file)  # None: it has no file to look at
    names = dict(globals)
    exec(compile(src, file, "exec"), names)
    return names["forward"]


def _place(module: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that has the last part of a path, made where it is not there, and that part."""
    *above, name = path.split(".")
    for part in above:
        if getattr(module, part, None) is None:
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    return module, name


def _assign_attr(value: Any, to_module: nn.Module, target: str) -> None:
    """Makes `value` the attribute of `to_module` at a dotted path: a buffer where it is a plain tensor."""
    module, name = _place(to_module, target)
    if isinstance(value, norch.Tensor) and not isinstance(value, nn.Parameter):
        if name in vars(module):
            delattr(module, name)
        module.register_buffer(name, value)
    elif isinstance(value, nn.Module) and not name.isidentifier():
        module.add_module(name, value) if name not in vars(module) else setattr(module, name, value)
    else:
        setattr(module, name, value)


def _copy_attr(from_module: Any, to_module: nn.Module, target: str) -> None:
    """Makes what `from_module` has at a dotted path the attribute of `to_module` there, unless it is that already."""
    value = attrgetter(target)(from_module)
    module, name = _place(to_module, target)
    if vars(module).get(name, _ABSENT) is not value:
        _assign_attr(value, to_module, target)


_ABSENT = object()


_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(nn.Module):
    """A module with those attributes, which copies are made of."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


class GraphModule(nn.Module):
    """A module that computes what a Graph says, with the parameters, buffers and modules that it names.

    Each has a class of its own, whose `forward` is compiled of `code`.
    """

    _graph: Graph

    def __new__(cls, root: Any = None, graph: Any = None, *_others: Any, **_named: Any) -> Self:
        kind = vars(cls).get("_made_of", cls)
        names = {"_made_of": kind, "__module__": kind.__module__, "__doc__": kind.__doc__}
        names["__qualname__"] = "GraphModule.__new__.<locals>.GraphModuleImpl"  # by which programs know such a class
        return cast("Self", object.__new__(type(kind)(cls.__name__, (kind,), names)))

    def __init__(self, root: nn.Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        """root: what nodes name: a module that has it, or a dict of it by dotted path. graph: which becomes this
        module's. class_name: how it shows itself. Raises RuntimeError where the dict does not have what a node names.
        """
        super().__init__()
        type(self).__name__ = class_name
        targets = {node.target: None for node in graph.nodes if node.op in ("get_attr", "call_module")}
        if isinstance(root, nn.Module):
            if hasattr(root, "training"):
                self.training = root.training
            for target in targets:
                _copy_attr(root, self, target)
        else:
            missing = [target for target in targets if target not in root]
            if missing:
                raise RuntimeError(f"the graph names {', '.join(missing)}, which root does not have")
            for target in sorted(targets, key=lambda target: target.count(".")):
                _assign_attr(root[target], self, target)
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {}))
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph. Where it is assigned, `forward` is compiled of it; after changes of it, `recompile` does that."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"graph must be a Graph, got {type(graph)}")
        object.__setattr__(self, "_graph", graph)
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The code of `forward`."""
        return str(self._code)

    def recompile(self) -> PythonCode:
        """Compiles `forward` of the graph as it is now. Returns its code."""
        code = self._graph.python_code(root_module="self")
        object.__setattr__(self, "_code", code.src)
        type(self).forward = _forward_from_src(code.src, code.globals)  # type: ignore[method-assign]
        norch.switches.replaced(self, "forward")
        return code

    # --- Modules below it -------------------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        """Adds a module `m` at the dotted path `target`, with empty modules above it where there are none.

        Returns whether it could: False where what is above is no module.
        """
        *above, name = target.split(".")
        module: Any = self
        for part in above:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
            if not isinstance(module, nn.Module):
                return False
        module.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes the module at the dotted path `target`. Returns whether there was one."""
        path, _, name = target.rpartition(".")
        try:
            parent = self.get_submodule(path)
            is_module = isinstance(getattr(parent, name), nn.Module)
        except AttributeError:
            return False
        if is_module:
            delattr(parent, name)
        return is_module

    def delete_all_unused_submodules(self) -> None:
        """Removes the modules that no node names, and no node's module has."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                if node.op == "call_module":
                    used.update(f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules())
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # --- Copies -----------------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        state = {key: value for key, value in super().__getstate__().items() if key not in ("_graph", "_code")}
        return _rebuilt, (type(self)._made_of, type(self).__name__, state, self._graph)  # type: ignore[attr-defined]

    def _deepcopy_init(self) -> Any:
        return GraphModule.__init__

    def __copy__(self) -> GraphModule:
        made, (kind, name, state, graph) = self.__reduce__()
        return cast("GraphModule", made(kind, name, dict(state), graph.__deepcopy__()))

    # --- Showing it -------------------------------------------------------------------------------------------------

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The code as that of a class, which is printed unless `print_output=False`. options: are PyTorch's."""
        body = "\n".join([f"    {line}".rstrip() for line in self.code.strip("\n").split("\n")])
        found = f"class {type(self).__name__}(norch.nn.Module):\n{body}\n"
        if print_output:
            print(found)
        return found

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self.code}"


def _rebuilt(kind: type[GraphModule], name: str, state: dict[str, Any], graph: Graph) -> GraphModule:
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    module.__setstate__(state)
    type(module).__name__ = name
    module.graph = graph
    return module
