"""Try a program that was read from a file, on tensors without memory: do its ops fit together, and how large do they get?"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from quaver.operators import NO_WEIGHT, OPS, UNKNOWN, packets_of
from quaver.program.views import reads_module
from quaver.quantizers import Quantizer

LARGEST = 1 << 32  # bytes of a tensor, for a batch of two
MOST_PIECES = 1 << 20  # that a tensor is cut into
_ORDERED = frozenset(name for name in packets_of("clamp", "activation") if not OPS[name].takes_complex)
_FLOAT = ("weight", "bias", "running_mean", "running_var")
_META = torch.device("meta")
_BITS = 64  # of a number: no size lies beyond


def try_out(graph: fx.Graph, read: Callable[[str], Any], shapes: Iterable[tuple[list[int], torch.dtype]]) -> list[Any]:
    """What a graph gives back for inputs of these shapes, as tensors without memory; an error of any kind where it fails.

    An op whose result depends on the values ends the trial, with nothing given back: only a run shows the rest.
    """
    inputs = iter([_empty(shape, dtype) for shape, dtype in shapes])
    values: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in graph.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[arg-type]
            if node.op == "output":
                return list(args[0])
            if node.op == "placeholder":
                values[node] = next(inputs)
            elif reads_module(node):
                value = read(str(node.target))
                values[node] = _without_memory(value) if node.op == "get_attr" else _rounded(value, *args, **kwargs)
            elif torch.Tag.data_dependent_output in getattr(node.target, "tags", ()):  # a number read from a tensor
                return []
            else:
                try:
                    values[node] = _called(node.target, args, kwargs)
                except NotImplementedError:
                    if any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in pytree.tree_leaves((args, kwargs))):
                        raise  # not for want of values
                    return []
            _refuse_large(node, values[node])
    raise ValueError("a graph has no output")


def _empty(shape: list[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)


def _without_memory(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)


def _rounded(quantizer: Quantizer, x: Tensor, tensor: int | None = 0) -> Tensor:
    """What a quantizer gives back for a tensor: one like it."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError("a quantizer is given something other than a float tensor")
    if tensor is not None and not (type(tensor) is int and 0 <= tensor < quantizer.tensors):
        raise ValueError(f"a quantizer of {quantizer.tensors} tensors is given number {tensor!r}")
    for axis in (quantizer.axis, quantizer.saturation_axis):
        if axis is not None and not -x.dim() <= axis < x.dim():
            raise ValueError(f"a quantizer works along axis {axis}, of a tensor with {x.dim()}")
    step = getattr(quantizer, "step", None)
    if quantizer.axis is not None and isinstance(step, Tensor) and step.numel() not in (0, x.shape[quantizer.axis]):
        raise ValueError(f"a quantizer has {step.numel()} steps for a tensor of shape {tuple(x.shape)}")
    return x


def _called(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not isinstance(target, torch._ops.OpOverload):
        _refuse_endless(target, args)
        return target(*args, **kwargs)
    args, kwargs = pytree.tree_map_only(torch.device, lambda _: _META, (args, kwargs))
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    schema = target._schema
    if any(returned.type.kind() == "ListType" for returned in schema.returns):
        longest = max((side for tensor in tensors for side in tensor.shape), default=0)
        if longest > MOST_PIECES:
            raise ValueError(f"{target} may cut a tensor into {longest} pieces")
    if not tensors and any(argument.name == "device" for argument in schema.arguments[len(args) :]):
        kwargs = kwargs | {"device": _META}
    result = target(*args, **kwargs)
    names = [argument.name for argument in schema.arguments]
    _refuse_misfits(schema.name.partition("::")[2], dict(zip(names, args, strict=False)) | kwargs, result)
    return result


def _refuse_misfits(name: str, given: dict[str, Any], result: Any) -> None:
    """Shapes that only an op's own code looks at, or the integer arithmetic that takes its place."""
    op = OPS.get(name, UNKNOWN)
    bias, weight, scales = given.get("bias"), given.get("weight"), given.get("scales", given.get("scale"))
    odd = [key for key in _FLOAT if isinstance(given.get(key), Tensor) and not given[key].is_floating_point()]
    if (op.weight is not NO_WEIGHT or name.endswith("_norm")) and odd:
        raise TypeError(f"{name} has a {odd[0]} of {given[odd[0]].dtype}")
    if name.rstrip("_") in _ORDERED and any(isinstance(value, Tensor) and value.is_complex() for value in given.values()):
        raise TypeError(f"{name} of complex numbers, which have no order")
    if weight is not None and op.weight.rank not in (None, weight.dim()):
        raise ValueError(f"{name} has a weight of shape {tuple(weight.shape)}")
    if op.is_layer and bias is not None and bias.shape != (result.shape[op.weight.output_axis],):
        raise ValueError(f"{name} has a bias of shape {tuple(bias.shape)}")
    if name.startswith(("quantize_per_", "dequantize_per_")) and isinstance(scales, Tensor):
        expected = (given["input"].shape[given["axis"]],) if "axis" in given else ()
        if scales.shape != expected or not scales.is_floating_point():
            raise ValueError(f"{name} has steps of shape {tuple(scales.shape)} and {scales.dtype}")


def _refuse_endless(function: Any, args: tuple[Any, ...]) -> None:
    """Of plain numbers, a power can take memory without end; of a text or a list, so can a product."""
    if function is operator.pow and len(args) == 2 and isinstance(args[1], int) and abs(args[1]) >= _BITS:
        raise ValueError(f"a power of {args[1]}")
    if function is not operator.getitem and any(isinstance(value, str | list | tuple) for value in args):
        raise TypeError(f"{function.__name__} of a text or a list")


def _refuse_large(node: fx.Node, value: Any) -> None:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor) and leaf.numel() * leaf.element_size() > LARGEST:
            raise ValueError(f"{node.name!r} has shape {tuple(leaf.shape)}, too large for memory")
        if isinstance(leaf, int) and leaf.bit_length() > _BITS:
            raise ValueError(f"{node.name!r} is a number of {leaf.bit_length()} bits")
