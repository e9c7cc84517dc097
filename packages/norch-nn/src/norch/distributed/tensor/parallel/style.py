"""The plan by which a model is cut: what happens to which of its modules."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from norch import nn

from ...device_mesh import DeviceMesh
from ...world import get_world_size
from .. import Placement, Replicate, Shard
from . import regions
from .attention import HeadAttention
from .layers import ColumnEmbedding, ColumnLinear, CutLayer, Cutter, RowEmbedding, RowLinear

Layouts = Placement | tuple[Placement | None, ...] | None


class ParallelStyle(ABC):
    """What is done to a module. Subclass it for others."""

    @abstractmethod
    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        """The module that takes its place, cut by `cutter`. Raises TypeError for a module that the style is not for."""


class ColwiseParallel(ParallelStyle):
    """Cuts a Linear by its outputs, or an Embedding by its columns.

    input_layouts: how its input lies, Replicate() or, of a cut sequence, Shard(dim). output_layouts: Shard(-1), or
    Replicate() to join the outputs. parts: of how many matrices the weight is made, each of which is cut: 3 where one
    Linear makes queries, keys and values, so that each process has whole heads. use_local_output: True;
    NotImplementedError for False.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
        parts: int = 1,
    ) -> None:
        _local("ColwiseParallel", use_local_output)
        self.given, self.gives, self.parts = input_layouts or Replicate(), output_layouts or Shard(-1), parts

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        if isinstance(module, nn.Linear):
            return ColumnLinear(module, cutter, self.given, self.gives, self.parts)
        if isinstance(module, nn.Embedding):
            return ColumnEmbedding(module, cutter, self.gives)
        raise TypeError(_refused("ColwiseParallel", module))


class RowwiseParallel(ParallelStyle):
    """Cuts a Linear by its inputs, or an Embedding by its rows: parts of a sum.

    input_layouts: how a Linear's input lies, Shard(-1), as a ColwiseParallel before it leaves it, or Replicate().
    output_layouts: Replicate(), or Shard(dim) for a cut sequence. use_local_output: True; NotImplementedError for
    False.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _local("RowwiseParallel", use_local_output)
        self.given, self.gives = input_layouts or Shard(-1), output_layouts or Replicate()

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        if isinstance(module, nn.Linear):
            return RowLinear(module, cutter, self.given, self.gives)
        if isinstance(module, nn.Embedding):
            return RowEmbedding(module, cutter, self.gives)
        raise TypeError(_refused("RowwiseParallel", module))


class HeadwiseParallel(ParallelStyle):
    """Cuts a MultiheadAttention by its heads. PyTorch has none.

    input_layouts: how what it is given lies, Replicate() or, of a cut sequence, Shard(dim); output_layouts alike.
    """

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None) -> None:
        self.given, self.gives = input_layouts or Replicate(), output_layouts or Replicate()

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        if not isinstance(module, nn.MultiheadAttention):
            raise TypeError(f"HeadwiseParallel cuts MultiheadAttention, got {type(module).__name__}")
        return HeadAttention(module, cutter, self.given, self.gives)


class SequenceParallel(ParallelStyle):
    """For a module that works on each position alone (LayerNorm): it gets a sequence cut along `sequence_dim`
    (Korthikanti et al., 2022).

    Its parameters are replicated, and their gradients summed over the processes. use_local_output: True;
    NotImplementedError for False.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_dim = sequence_dim

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        for parameter in module.parameters():
            cutter.replicated(parameter)
        module.__dict__["_sequence_group"] = cutter.group
        module.__class__ = type(f"Sequence{type(module).__name__}", (_OfSequence, type(module)), {})
        return module


class _OfSequence:
    """What `SequenceParallel` makes of a module's class: each process has the gradient of other positions."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        places = [(part.__dict__, name) for part in self.modules() for name in part._parameter_names]
        before = [own[name] for own, name in places]
        try:
            for (own, name), parameter in zip(places, before, strict=True):
                if parameter is not None:
                    own[name] = regions.enter(parameter, self._sequence_group)
            return super().forward(*args, **kwargs)  # type: ignore[misc]
        finally:
            for (own, name), parameter in zip(places, before, strict=True):
                own[name] = parameter


class _Prepare(ParallelStyle):
    """By position, how tensors lie and how they are wanted; None for what is left as it is."""

    def __init__(self, lie: Layouts, wanted: Layouts) -> None:
        self.lie, self.wanted = _layouts(lie), _layouts(wanted)
        if len(self.lie) != len(self.wanted):
            raise ValueError(f"{type(self).__name__}: {len(self.lie)} layouts and {len(self.wanted)} desired ones")

    def laid(self, values: tuple[Any, ...], group: Any) -> tuple[Any, ...]:
        """The tensors of `values`, each laid as is desired. Raises ValueError unless there is a layout for each."""
        if len(values) != len(self.lie):
            raise ValueError(f"{type(self).__name__}: {len(values)} values and {len(self.lie)} layouts")
        return tuple(_laid(*each, group) for each in zip(values, self.lie, self.wanted, strict=True))


class PrepareModuleInput(_Prepare):
    """Brings what a module is given by position from `input_layouts` to `desired_input_layouts`, and by name from
    `input_kwarg_layouts` to `desired_input_kwarg_layouts`: Replicate(), Shard(dim), or None for what stays as it is.

    use_local_output: True; NotImplementedError for False.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_output: bool = True,
    ) -> None:
        _local("PrepareModuleInput", use_local_output)
        super().__init__(input_layouts, desired_input_layouts)
        self.named, self.wanted_named = dict(input_kwarg_layouts or {}), dict(desired_input_kwarg_layouts or {})

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        def lay(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            named = {
                name: _laid(value, self.named.get(name), self.wanted_named.get(name), cutter.group)
                for name, value in kwargs.items()
            }
            return (self.laid(args, cutter.group) if self.lie else args), named

        module.register_forward_pre_hook(lay, with_kwargs=True)
        return module


class PrepareModuleOutput(_Prepare):
    """Brings what a module returns from `output_layouts` to `desired_output_layouts`.

    use_local_output: True; NotImplementedError for False.
    """

    def __init__(
        self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True
    ) -> None:
        _local("PrepareModuleOutput", use_local_output)
        super().__init__(output_layouts, desired_output_layouts)

    def apply(self, module: nn.Module, cutter: Cutter) -> nn.Module:
        def lay(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            if isinstance(output, tuple):
                return self.laid(output, cutter.group)
            return self.laid((output,), cutter.group)[0]

        module.register_forward_hook(lay)
        return module


def _layouts(given: Layouts) -> tuple[Placement | None, ...]:
    return () if given is None else given if isinstance(given, tuple) else (given,)


def _laid(value: Any, lies: Placement | None, wanted: Placement | None, group: Any) -> Any:
    if lies is None or wanted is None or lies == wanted:
        return value
    if isinstance(lies, Shard):
        value = regions.join(value, lies.dim, group)
    return regions.part(value, wanted.dim, group) if isinstance(wanted, Shard) else value


def _local(style: str, use_local_output: bool) -> None:
    if not use_local_output:
        raise NotImplementedError(
            f"{style}(use_local_output=False): norch has no DTensor; a module gets its part as a tensor, and must "
            "read off its shape how many heads that has"
        )


def _refused(style: str, module: nn.Module) -> str:
    hint = ""
    if isinstance(module, nn.MultiheadAttention):
        hint = "; HeadwiseParallel cuts that"
    return f"{style} cuts Linear and Embedding, got {type(module).__name__}{hint}"


def parallelize_module(
    module: nn.Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> nn.Module:
    """Cuts `module` over `device_mesh`, a mesh of one dim (all processes by default), in place, and returns it.

    parallelize_plan: a style for the module itself, or by the names of modules in it, where `*` stands for any name
    between two dots. src_data_rank: the process of the mesh, from 0, whose weights are cut; None where all have the
    same. Parameters of modules that are not in the plan must be the same everywhere: seed alike. One that modules share
    must be cut in all of them alike.

    Warns of names that no module has. Raises TypeError for a module that a style does not know, ShapeError for a size
    that the number of processes does not divide, ValueError for a shared parameter that is cut in one module only.
    """
    group = None
    if device_mesh is not None:
        if device_mesh.ndim != 1:
            raise ValueError(
                f"parallelize_module(): expected a mesh of one dim, such as mesh['tp'], got {device_mesh!r}"
            )
        group = device_mesh.get_group()
    if parallelize_plan is None:
        raise ValueError("parallelize_module(): expected a parallelize_plan")
    cutter = Cutter(group, src_data_rank)
    if isinstance(parallelize_plan, ParallelStyle):
        return _placed(parallelize_plan.apply(module, cutter), module)
    for pattern, style in parallelize_plan.items():
        names = [name for name, _ in module.named_modules(remove_duplicate=False) if name and _matches(name, pattern)]
        if not names:
            warnings.warn(f"parallelize_module(): no module is called {pattern!r}", stacklevel=2)
        for name in names:
            old = module.get_submodule(name)
            if not isinstance(old, CutLayer):
                module.set_submodule(name, _placed(style.apply(old, cutter), old))
    _check_shared(module, cutter)
    return module


def _placed(new: nn.Module, old: nn.Module) -> nn.Module:
    return new.train(old.training)


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _check_shared(module: nn.Module, cutter: Cutter) -> None:
    whole = {key for key, (_, _, cut) in cutter.done.items() if get_world_size(cut.group) > 1}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) in whole:
            raise ValueError(
                f"parallelize_module(): {name} is shared with a module that was cut, but its own is not in the plan"
            )
