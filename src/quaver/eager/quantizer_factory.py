"""The quantizer factory of `quaver.QAT`: what each layer of a live model computes with."""

from typing import Any

import torch
from torch import nn

from quaver.config.options import shared_options
from quaver.config.qat_config import QATConfig
from quaver.eager.layers_by_name import Named
from quaver.eager.quantized_layers import LOWEST, WEIGHTED
from quaver.graph.nodes import Op
from quaver.nn import Add
from quaver.passes import QuantizationTransformPass
from quaver.quantizers import Quantizer
from quaver.quantizers.make import make, make_for_weight


class QuantizerFactory:
    """Makes quantizers as the graph path would: from one config, with the same options."""

    def __init__(self, config: QATConfig, **functions: Any) -> None:
        self.options = QuantizationTransformPass(
            **shared_options(config, QuantizationTransformPass),
            quantize_activations=not config.quant_weight_only,
            **functions,
        )

    def quantizers(self, named: Named, kind: type[nn.Module]) -> dict[str, nn.Module | None]:
        """What a layer will compute with, by its names there, where its weight is and in the mode it is in."""
        layer: Any = named.layer
        op = Op(named.name, op_type(layer), named.name, "")
        made: dict[str, nn.Module | None]
        if kind in WEIGHTED:
            activation = self.of_input(op, "input") if self.options.quantize_activations else None
            made = {"input_quantizer": activation, "weight_quantizer": self.of_weight(op, layer)}
        elif kind is Add:
            made = {"input_quantizers": nn.ModuleList([self.of_input(op, "input0"), self.of_input(op, "input1")])}
        else:
            made = {"input_quantizer": self.of_input(op, "input")}
        tensor = next(layer.parameters(recurse=False), None)
        for quantizer in made.values():
            if quantizer is not None:
                quantizer.train(layer.training)
                quantizer.to(None if tensor is None else tensor.device)
        return made

    def of_input(self, op: Op, role: str) -> Quantizer:
        """For an input: signed, until the first forward shows otherwise."""
        options = self.options.input_options(op) | {"signed": True, "narrow": False}
        quantizer = make(f"{op.name}.{role}".lstrip("."), options)
        quantizer.register_buffer(LOWEST, torch.zeros(()), persistent=False)
        return quantizer

    def of_weight(self, op: Op, layer: Any) -> Quantizer:
        """For a weight, with its channel axis and its range."""
        name, groups = f"{op.name}.weight".lstrip("."), getattr(layer, "groups", 1)
        return make_for_weight(name, self.options.weight_options(op), layer.weight, op.type, groups)


def op_type(layer: Any) -> str:
    """What a layer's op is called in a graph."""
    if isinstance(layer, nn.Conv2d):
        return "depthwise_conv2d" if layer.groups > 1 and layer.weight.shape[1] == 1 else "conv2d"
    kinds = {nn.Conv1d: "conv1d", nn.ConvTranspose2d: "conv2d_transpose", nn.Linear: "mul", Add: "elementwise_add"}
    return next((name for kind, name in kinds.items() if isinstance(layer, kind)), "pool2d")
