"""What norch's own optimisers share: checked options, and steps of all parameters at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any, ClassVar, dataclass_transform

import norch
from norch.nn.fields import add_constructor

from .optimizer import Optimizer, Params, State
from .replay import StepReplay

# Options of optimisers: where they are given to one that does not know them, something is not as its author thinks. But
# rho and alpha are in the groups that SAM and the like share with the optimiser which they wrap.
_OPTIONS = frozenset(
    """
    lr betas eps weight_decay amsgrad maximize momentum dampening nesterov centered lr_decay etas step_sizes
    initial_accumulator_value momentum_decay decoupled_weight_decay lambd t0 max_iter max_eval tolerance_grad
    tolerance_change history_size line_search_fn
    """.split()
)

late: dict[int, int] = {}
"""By the id of a parameter whose gradient a device is still to receive: its place among them. Steps begin with all
others. DistributedDataParallel writes it, a step takes out what it has done."""

NOT_NEGATIVE = (lambda value: value >= 0, "it must not be negative")

_PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}
"""Options that ops take as two arguments."""


@dataclass_transform()
class _Table:
    """Says to type checkers that annotated names are arguments of the constructor."""


_DENSE = {norch.Tensor}


class MultiTensorOptimizer(_Table, Optimizer):
    """Base of optimisers whose step is one call of an op for all parameters of a group. A subclass is a table.

    Its annotated names are the options, which the constructor takes after `params`, as that of a dataclass. Keys of a
    group that are no option of any optimiser are kept for the user.
    """

    params: Params
    _op: ClassVar[Callable[..., None]]
    """Takes parameters, gradients, a list for each of `_states` and `_optional_states`, and `_scalars` as keywords."""
    _states: ClassVar[dict[str, Any]] = {}
    """The tensors of a parameter's state, and what they are filled with at first: a number or the option that is it."""
    _optional_states: ClassVar[dict[str, str]] = {}
    """Tensors that start at 0, and the option that asks for them."""
    _numbers: ClassVar[dict[str, Any]] = {"step": 0}
    _scalars: ClassVar[tuple[str, ...]] = ()
    """The options that the op takes; "step" is the number of the step, from 1."""
    _arguments_of: ClassVar[Any]
    _recorded_options: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")
    """Options that may be tensors through which gradients go, where steps are differentiable."""
    _key: ClassVar[Any] = itemgetter("step")
    """What parameters that step together have in common; None: anything goes."""
    _varying: ClassVar[Any] = None
    """What of the op's numbers changes from step to step, if just the last ones do: a function of its arguments."""
    _plain_count: ClassVar[bool] = True
    """Whether a step counts itself and changes no other number of a state."""
    _ranges: ClassVar[dict[str, tuple[Callable[[Any], bool], str]]] = {
        **dict.fromkeys(("lr", "lr_decay", "eps", "weight_decay", "momentum", "momentum_decay"), NOT_NEGATIVE),
        "initial_accumulator_value": NOT_NEGATIVE,
        "rho": (lambda rho: 0 <= rho <= 1, "it must be in [0, 1]"),
        "betas": (
            lambda betas: len(betas) == 2 and all(0 <= b < 1 for b in betas),
            "they must be two numbers in [0, 1)",
        ),
        "etas": (
            lambda etas: len(etas) == 2 and 0 < min(etas) < 1 < max(etas) and etas[0] < 1,
            "they must be in (0, 1) and above 1",
        ),
    }
    """Of options: whether a value is allowed, and what an error says."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._plain_count = cls._next_numbers is MultiTensorOptimizer._next_numbers
        if "_scalars" in vars(cls):
            cls._arguments_of = staticmethod(_arguments_function(cls))
        of_norch = getattr(cls, "__module__", "").startswith("norch.optim.")  # not those of users
        if of_norch and inspect.get_annotations(cls):
            add_constructor(cls, _initialise)

    def _check(self, group: dict[str, Any]) -> None:
        title = type(self).__name__
        unknown = [k for k in group if k in _OPTIONS and k not in self.defaults]
        if unknown:
            raise ValueError(f"{title} has no option {unknown[0]!r}; it has {', '.join(self.defaults)}")
        lr = group.get("lr")
        if isinstance(lr, norch.Tensor) and lr.numel() != 1:
            raise ValueError(f"{title}: lr as a tensor must have one element, got shape {tuple(lr.shape)}")
        if group.get("differentiable"):
            for name in group.keys() & _OPTIONS - set(self._recorded_options):
                if getattr(group[name], "requires_grad", False):
                    raise NotImplementedError(f"{title}: no gradient goes through {name}; give a number")
        if group.get("foreach") and group.get("fused"):
            raise RuntimeError(f"{title}: `fused` and `foreach` cannot be True together")
        for name, (is_allowed, expected) in self._ranges.items():
            if name in group and not is_allowed(group[name]):
                name_in_words = "learning rate" if name == "lr" else name
                raise ValueError(f"{title}: invalid {name_in_words} {group[name]}: {expected}")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes the parameters by their gradients. `closure` computes the loss again, and its result is returned."""
        loss = None if closure is None else self._evaluate(closure)
        groups: Any = self.param_groups
        if self._repeats:
            groups = [part for group in groups for part in _each_once(group)]
        for group in _by_arrival(groups) if late else groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        """A step of the group's parameters that have a gradient: at once, where they have taken equally many."""
        params, grads = self._with_gradient(group)
        if not params:
            return
        states: list[Any] = list(map(self.state.get, params))
        if not all(states):
            states = [s or self._begin(param, group) for param, s in zip(params, states, strict=True)]
        keys = [0] if self._key is None else list(map(self._key, states))
        if keys.count(keys[0]) == len(keys):
            self._step_together(group, params, grads, states)
        else:  # some had no gradient in an earlier step
            rows: dict[Any, list[Any]] = {}
            for key, *row in zip(keys, params, grads, states, strict=True):
                rows.setdefault(key, []).append(row)
            for part in rows.values():
                self._step_together(group, *map(list, zip(*part, strict=True)))  # type: ignore[arg-type]

    def _begin(self, param: norch.Tensor, group: dict[str, Any]) -> State:
        """Makes the state of a parameter before its first step."""
        state = self.state[param]
        for name, initial in self._numbers.items():
            state[name] = float(group[initial]) if isinstance(initial, str) else initial
        for name, initial in self._states.items():
            value = float(group[initial]) if isinstance(initial, str) else initial
            state[name] = norch.full_like(param, value, requires_grad=False)
        return state

    def _step_together(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor], states: list[State]
    ) -> None:
        """A step of parameters whose states have equal numbers."""
        tensors: list[Any] = [[s[name] for s in states] for name in self._states]
        for name, option in self._optional_states.items():
            tensors.append(state_tensors(params, states, name) if group[option] else None)
        arguments = self._arguments(group, states[0])
        if group.get("differentiable"):
            tensors = [renewed(states, name) for name in self._state_names(group)]
        self._op(params, grads, *tensors, **arguments)
        if self._key is None:
            for s in states:
                s["step"] += 1
        else:
            for name, value in self._next_numbers(group, arguments, states[0]["step"] + 1).items():
                for s in states:
                    s[name] = value

    def _arguments(self, group: dict[str, Any], state: State) -> dict[str, Any]:
        """What the op is called with beside tensors, for parameters with this state."""
        found: dict[str, Any] = self._arguments_of(group, state)
        if group.get("differentiable"):
            found["differentiable"] = True
            found |= {name: group[name] for name in self._recorded_options if isinstance(group.get(name), norch.Tensor)}
        return found

    def _state_names(self, group: dict[str, Any]) -> list[str | None]:
        """The states that the op takes after parameters and gradients; None for those that are not asked for."""
        return [*self._states, *(name if group[option] else None for name, option in self._optional_states.items())]

    def _step_replay(self, given: set[int], ask: Any) -> StepReplay | None:
        """How replays of norch.capture make the step that has just been made; None: as it is."""
        if self._repeats or any(
            group.get("differentiable") or any(isinstance(v, norch.Tensor) for v in group.values())
            for group in self.param_groups
        ):
            return None
        return StepReplay(self, given, ask)

    def _next_numbers(self, group: dict[str, Any], arguments: dict[str, Any], step: int) -> State:
        """The numbers of a state after step number `step`."""
        return {"step": step}

    def _with_gradient(self, group: dict[str, Any]) -> tuple[list[norch.Tensor], list[norch.Tensor]]:
        """The parameters of a group that have a gradient, and those gradients."""
        params = group["params"]
        gradients = [param.grad for param in params]
        grads = [grad for grad in gradients if grad is not None]
        if len(grads) < len(params):
            params = [param for param, grad in zip(params, gradients, strict=True) if grad is not None]
        return self._without_sparse(group, params, grads) if set(map(type, grads)) - _DENSE else (params, grads)

    def _without_sparse(
        self, group: dict[str, Any], params: list[norch.Tensor], grads: list[norch.Tensor]
    ) -> tuple[list[norch.Tensor], list[norch.Tensor]]:
        """Steps by sparse gradients of rows where the optimiser can, and gives what is left, all gradients dense."""
        left: list[tuple[norch.Tensor, Any]] = []
        for param, grad in zip(params, grads, strict=True):
            if not grad.is_sparse:
                left.append((param, grad))
            elif grad.sparse_dim() != 1 or group.get("differentiable") or not self._step_rows(group, param, grad):
                left.append((param, grad.to_dense()))
        return [param for param, _ in left], [grad for _, grad in left]

    def _step_rows(self, group: dict[str, Any], param: norch.Tensor, grad: Any) -> bool:
        """The step by a sparse gradient that leaves the rows alone that it does not have; whether it was made."""
        return False


def _by_arrival(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups as several whose gradients come after each other."""
    parts: dict[tuple[int, int], list[norch.Tensor]] = {}
    for i, group in enumerate(groups):
        for param in group["params"]:
            parts.setdefault((late.pop(id(param), 0), i), []).append(param)
    return [{**groups[i], "params": params} for (_, i), params in sorted(parts.items(), key=lambda item: item[0])]


def _each_once(group: dict[str, Any]) -> list[dict[str, Any]]:
    """A group whose parameters may come twice as groups in which they do not."""
    rounds: list[dict[int, norch.Tensor]] = []
    for param in group["params"]:
        free = next((r for r in rounds if id(param) not in r), None)
        if free is None:
            rounds.append(free := {})
        free[id(param)] = param
    return [{**group, "params": list(r.values())} for r in rounds]


def _arguments_function(cls: type[MultiTensorOptimizer]) -> Any:
    """What an optimiser's `_scalars` are in a group and a state, as one expression: each step asks for it."""
    flags = {name for base in cls.__mro__ for name, note in inspect.get_annotations(base).items() if note == "bool"}
    items = []
    for name in cls._scalars:
        if name in _PAIRS:
            items += [f"{part!r}: float(group[{name!r}][{i}])" for i, part in enumerate(_PAIRS[name])]
        elif name == "step":
            items.append("'step': state['step'] + 1")
        elif name == "decoupled_weight_decay":
            items.append(f"'decoupled': bool(group[{name!r}])")
        else:
            items.append(f"{name!r}: {'bool' if name in flags else 'float'}(group[{name!r}])")
    return eval(f"lambda group, state: {{{', '.join(items)}}}", {})


def _initialise(self: Any, values: dict[str, Any]) -> None:
    Optimizer.__init__(self, values.pop("params"), values)


add_constructor(MultiTensorOptimizer, _initialise)


def renewed(states: list[State], name: str | None) -> list[norch.Tensor] | None:
    """The states of that name, each as a copy that takes its place: what a recorded step keeps stays as it was."""
    if name is None:
        return None
    for s in states:
        s[name] = s[name].clone()
    return [s[name] for s in states]


def state_tensors(params: list[norch.Tensor], states: list[State], name: str) -> list[norch.Tensor]:
    """The states of that name; zeros for parameters that have none, such as where an option was switched on later."""
    tensors: list[Any] = [s.get(name) for s in states]
    for i in [i for i, tensor in enumerate(tensors) if tensor is None]:
        tensors[i] = states[i][name] = norch.zeros_like(params[i], requires_grad=False)
    return tensors
