"""Ops that LiteRT has no form of, in the smaller ones that PyTorch itself defines them by; these run in float."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map_only

from quaver.graph.nodes import facts, packet
from quaver.program.views import read

aten = torch.ops.aten
AS_THEY_ARE = ("quantize", "dequantize", "shape", "quantizer")


def decompose(module: fx.GraphModule, translated: Collection[str]) -> None:
    """Write every op whose packet is not ``translated`` in others; one that PyTorch has no definition of stays as it is.

    Nodes know the tensors that they give (``meta["val"]``), but for those that depend on no input.
    """
    constant: set[fx.Node] = set()  # what a translation computes here and now
    known_shapes = (node.meta.get("val") for node in module.graph.nodes)
    mode = next(value.fake_mode for value in known_shapes if isinstance(value, FakeTensor))
    for node in list(module.graph.nodes):
        if node.op == "get_attr" or (node.op == "call_function" and constant.issuperset(node.all_input_nodes)):
            constant.add(node)
        elif is_definable(node) and packet(node) not in translated:
            tensors = [source for source in node.all_input_nodes if isinstance(given_by(source, module, mode), Tensor)]
            replace(module, node, defined(node, tensors), tensors)
    module.graph.eliminate_dead_code()
    module.recompile()


def given_by(node: fx.Node, module: fx.GraphModule, mode: FakeTensorMode) -> Any:
    """What a node gives, as far as shapes go; noted for what depends on no input."""
    if "val" not in node.meta:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: given_by(source, module, mode))
        value: Any = read(module, str(node.target)) if node.op == "get_attr" else node.target(*args, **kwargs)  # type: ignore
        stays = isinstance(value, FakeTensor) or not isinstance(value, Tensor)
        node.meta["val"] = value if stays else mode.from_tensor(value)
    return node.meta["val"]


def inline_autocast(module: fx.GraphModule) -> None:
    """Put what is computed with autocast switched off, a graph of its own, among the other nodes."""
    for node in list(module.graph.nodes):
        if node.target is torch.ops.higher_order.wrap_with_autocast and not node.args[2]:
            inner: Any = module.get_submodule(node.args[4].target)
            replace(module, node, inner, node.args[5:])
    module.graph.eliminate_dead_code()
    module.recompile()


def is_definable(node: fx.Node) -> bool:
    """Whether a node is an op of PyTorch that gives new tensors."""
    op = node.target
    return isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable and facts(node).kind not in AS_THEY_ARE


def replace(module: fx.GraphModule, node: fx.Node, traced: fx.GraphModule, sources: Sequence[fx.Node]) -> None:
    """Put another graph, of the same ``sources``, in a node's place; its parts have the node's name."""
    given = [part for part in traced.graph.nodes if part.op == "placeholder"]
    parts: dict[fx.Node, Any] = dict(zip(given, sources, strict=True))
    with module.graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op == "get_attr":
                name = f"{node.name}_{part.target}"
                module.register_buffer(name, getattr(traced, part.target).detach())
                parts[part] = module.graph.get_attr(name)
            elif part.op == "call_function":
                parts[part] = module.graph.node_copy(part, parts.__getitem__)
                parts[part].target = not_in_place(part.target)
            if part in parts and part not in given:
                parts[part].meta = node.meta | {"val": of_one_kind(part.meta.get("val"), node.meta.get("val"))}
    results = fx.map_arg(traced.graph.output_node().args[0], parts.__getitem__)
    if isinstance(results, fx.Node):
        node.replace_all_uses_with(results)
    for reader in list(node.users):  # each takes one of several results
        reader.replace_all_uses_with(results[reader.args[1]])  # type: ignore[index,call-overload,arg-type]
        module.graph.erase_node(reader)
    module.graph.erase_node(node)  # one with dropout, as an LSTM, would stay


def of_one_kind(value: Any, like: Any) -> Any:
    """The shapes of tensors as others of the graph know theirs: a definition makes constants of a kind of its own."""
    mode = next((known.fake_mode for known in tree_leaves(like) if isinstance(known, FakeTensor)), None)

    def alike(tensor: FakeTensor) -> Tensor:
        if mode is None or tensor.fake_mode is mode:
            return tensor
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    return tree_map_only(FakeTensor, alike, value)


def not_in_place(op: Any) -> Any:
    """An op that gives a new tensor; who traced one in place has later readers read what it gave."""
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.is_mutable:
        return op
    pure = getattr(aten, op._schema.name.split("::")[1].removesuffix("_"))
    known = pure.overloads()
    return getattr(
        pure, op._overloadname if op._overloadname in known else known[0]
    )  # transpose_ has one name, transpose two


def defined(node: fx.Node, tensors: list[fx.Node]) -> fx.GraphModule:
    """An op as PyTorch defines it, for tensors of these shapes."""

    def run(*values: Tensor) -> Any:
        value_of = dict(zip(tensors, values, strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: value_of.get(source, source.meta["val"]))
        return node.target(*args, **kwargs)  # type: ignore[operator]

    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):  # else LSTMs are ops of oneDNN
        return make_fx(run, definitions())(*(source.meta["val"] for source in tensors))  # type: ignore[no-any-return]


@cache
def definitions() -> dict[Any, Any]:
    """How PyTorch defines its ops by others, among them some that it counts as its core."""
    more = (
        aten.addmm,
        aten.native_batch_norm,
        aten.native_layer_norm,
        aten.native_group_norm,
        aten._log_softmax,
        aten.lstm,
        aten.gru,
    )
    return {**core_aten_decompositions(), **get_decompositions(more)}
