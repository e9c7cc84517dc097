"""`GradientEdge`: where in the graph a tensor came to be, which a backward pass may begin or end at without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import AutogradError
from .graph import Leaf, Node, Output, resolve

if TYPE_CHECKING:
    from ..spec import Spec
    from ..tensor import Tensor


class GradientEdge(NamedTuple):
    """A result of a recorded op, or a leaf, in place of which `backward` and `grad` take it.

    node: as of `grad_fn`. output_nr: which of its results. ownership_token: taken for PyTorch's sake.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None

    def place(self) -> Node:
        """The node of that result."""
        several = type(self.node) not in (Leaf, Output) and self.node.output_count > 1
        return Output(self.node, self.output_nr) if several else self.node

    def spec(self) -> Spec:
        """The spec of the result. Raises AutogradError for a leaf that is gone."""
        node: Any = self.node.edges[0] if type(self.node) is Output else self.node
        if type(node) is not Leaf:
            return (node.plan.outputs if node.plan is not None else node.specs)[self.output_nr]  # type: ignore[no-any-return]
        return self.leaf().spec

    def leaf(self) -> Tensor:
        """The leaf that it is of. Raises AutogradError where it is of none, or that is gone."""
        found = self.node.tensor() if type(self.node) is Leaf else None
        if found is None:
            raise AutogradError("GradientEdge: the node is not that of a leaf, or the leaf is gone")
        return found


def get_gradient_edge(tensor: Tensor | GradientEdge) -> GradientEdge:
    """The edge of a tensor, which does not keep the tensor itself. Raises AutogradError where it requires no grad."""
    if isinstance(tensor, GradientEdge):
        return tensor
    node = resolve(tensor)
    if node is None:
        raise AutogradError("get_gradient_edge(): the tensor does not require grad, so that it has no edge")
    return GradientEdge(node, tensor.output_nr)
