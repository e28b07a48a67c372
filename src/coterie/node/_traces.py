"""Traced gradients without the steps that do nothing: same numbers, bit for bit, in about half the operations."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_leaves

from coterie.datasets import Inputs

aten = torch.ops.aten
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
IGNORED = -100
"""The label of what does not count."""
NARROW, WIDE = 16, 16
"""Fewer classes than this fill no vector register; so many samples fill a whole one."""
DIRECT: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: torch.add,
    aten.bmm.default: torch.bmm,
    aten.mul.Tensor: torch.mul,
    aten.relu.default: torch.relu,
    aten.scatter.value: torch.scatter,
    aten.sum.dim_IntList: torch.sum,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.view.default: Tensor.view,
}
"""The same operators by a way that costs a third of the time to get there."""


class Replay:
    """Gradients of a stack as a list of operators, traced once from a function of (parameters, samples, labels, …)."""

    def __init__(
        self,
        gradient: Callable[..., Any],
        params: dict[str, Tensor],
        x: Inputs,
        others: Sequence[Tensor],
        all_count: bool,
    ) -> None:
        """`all_count`: no label says that its sample is to be ignored."""
        traced = make_fx(gradient)(params, x, *others)
        placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
        labels = placeholders[len(tree_leaves((params, x)))] if all_count else None
        tidy(traced, labels)
        traced.graph.set_codegen(CodeGen())  # no trees are folded up and unfolded
        traced.recompile()
        self._run: Callable[..., list[Tensor]] = traced.forward

    def __call__(self, params: dict[str, Tensor], x: Inputs, *others: Tensor) -> list[Tensor]:
        """The gradient of each parameter."""
        leaves = (x,) if isinstance(x, Tensor) else tree_leaves(x)
        return self._run(*params.values(), *leaves, *others)


def tidy(traced: GraphModule, labels: Node | None = None) -> GraphModule:
    """Drop reshapes to the same shape, transposes that undo each other, products with one, and what nobody uses.

    The loss itself is among the latter. Of `labels` it is known that none is to be ignored, so nothing is chosen by
    that. The softmax of few classes goes by columns, which fill vector registers, as its rows do not.
    """
    graph = traced.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and (same := _equal(node, labels)) is not None:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
    for node in list(graph.nodes):
        if node.target is aten.ones_like.default:
            _constant(graph, node)
        elif node.target in (aten._log_softmax.default, aten._log_softmax_backward_data.default):
            _turn(graph, node)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        node.target = DIRECT.get(node.target, node.target)
    traced.recompile()
    return traced


def _equal(node: Node, labels: Node | None) -> Node | None:
    """An earlier node with the very same values, if there is one."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node):
        return None
    if node.target in RESHAPES:
        return source if _shape(node) is not None and _shape(node) == _shape(source) else None
    if node.target is aten.transpose.int and source.target is aten.transpose.int:
        before = source.args[0]
        return before if set(node.args[1:]) == set(source.args[1:]) and isinstance(before, Node) else None
    if node.target in (aten.mul.Scalar, aten.mul.Tensor):
        other = node.args[1]
        if other == 1:
            return source
        if isinstance(other, Node) and _ones(source) and _shape(node) == _shape(other) and _type(node) == _type(other):
            return other
        return None
    if node.target is aten.where.self and _counts(source, labels):
        kept = node.args[1]
        return kept if isinstance(kept, Node) and _shape(kept) == _shape(node) else None
    return None


def _ones(node: Node) -> bool:
    """Whether all numbers of a node are one."""
    while node.target in RESHAPES and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.target is aten.ones_like.default


def _counts(node: Node, labels: Node | None) -> bool:
    """Whether a node asks of which labels are not to be ignored."""
    if labels is None or node.target is not aten.ne.Scalar or node.args[1] != IGNORED:
        return False
    of = node.args[0]
    while isinstance(of, Node) and of.target in (*RESHAPES, aten.unsqueeze.default):
        of = of.args[0]
    return of is labels


def _constant(graph: Graph, node: Node) -> None:
    """Ones are ones: what has only lent its shape need not be computed."""
    meta = node.meta["tensor_meta"]
    with graph.inserting_before(node):
        ones = graph.call_function(torch.ones, (tuple(meta.shape),), {"dtype": meta.dtype, "device": _device(node)})
    ones.meta = dict(node.meta)
    node.replace_all_uses_with(ones)
    graph.erase_node(node)


def _turn(graph: Graph, node: Node) -> None:
    """Let the softmax over few classes, the last dimension of three, go over the middle one of its transpose."""
    shape, tensors = _shape(node), [a for a in node.args if isinstance(a, Node)]
    if shape is None or len(shape) != 3 or shape[2] >= NARROW or shape[1] % WIDE or len(tensors) + 2 != len(node.args):
        return
    if node.args[len(tensors)] not in (2, -1) or _device(node).type != "cpu" or _type(node) != torch.float32:
        return
    with graph.inserting_before(node):
        turned = [graph.call_function(_across, (tensor,)) for tensor in tensors]
        over: Any = node.target
        found = graph.call_function(over, (*turned, 1, node.args[-1]))
        back = graph.call_function(_across, (found,))
    back.meta = dict(node.meta)
    node.replace_all_uses_with(back)
    graph.erase_node(node)


def _across(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2).contiguous()


def _shape(node: Node) -> Any:
    meta = node.meta.get("tensor_meta")
    return None if meta is None else tuple(meta.shape)


def _type(node: Node) -> Any:
    meta = node.meta.get("tensor_meta")
    return None if meta is None else meta.dtype


def _device(node: Node) -> torch.device:
    device: torch.device = node.meta["val"].device
    return device
