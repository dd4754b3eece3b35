"""Small ONNX files for tests of what engines execute: built by hand, named as the exporter names its nodes."""

import json

import numpy as np
import pytest

from quaver.runtime.artefact import checksum

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def signed(record):
    """A provenance record as the exporter writes it."""
    return record | {"checksum": checksum(record)}


CONVOLUTIONS = ("first", "middle", "last")


class Net:
    """Three convolutions of 8 channels, each behind a ReLU; those in ``in_float`` have float weights and rounded nothing.

    ``between`` is an op that stands behind the middle convolution's ReLU, ``batch`` the batch size ("N": any).
    """

    def __init__(self, in_float=(), between=None, batch="N", quantized=True):
        self.nodes, self.constants = [], []
        x = "x"
        for index, name in enumerate(CONVOLUTIONS):
            in_int8 = quantized and name not in in_float
            source = self.rounded(x) if in_int8 else x
            weight = self.int8_weight(name) if in_int8 else self.float_weight(name)
            self.node("Conv", [source, weight], name, pads=[1, 1, 1, 1])
            x = self.node("Relu", [name], f"{name}_relu") if index < 2 else name
            if between and name == "middle":
                x = self.node(between, [x], between.lower())
        self.node("Identity", [self.rounded(x) if quantized else x], "output")
        shape = [batch, 8, 6, 6]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, shape)],
            self.constants,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(self.model)

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}:{output}", **attributes))
        return output

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def rounded(self, x):
        scale = self.constant(f"{x}.scale", np.float32(0.03))
        zero = self.constant(f"{x}.zero", np.uint8(0 if x.endswith("relu") else 128))
        self.node("QuantizeLinear", [x, scale, zero], f"{x}.integers")
        return self.node("DequantizeLinear", [f"{x}.integers", scale, zero], f"{x}.rounded")

    def int8_weight(self, name):
        weight = self.constant(f"module.{name}.weight", _weights().integers(-60, 60, (8, 8, 3, 3)).astype(np.int8))
        scale = self.constant(f"{name}.weight_scale", np.full(8, 0.004, np.float32))
        zero = self.constant(f"{name}.weight_zero", np.zeros(8, np.int8))
        return self.node("DequantizeLinear", [weight, scale, zero], f"{name}.weight", axis=0)

    def float_weight(self, name):
        return self.constant(f"module.{name}.weight", _weights().standard_normal((8, 8, 3, 3), np.float32) / 9)

    def save(self, path, ops=(), **origin):
        """Write the file, and its provenance if there are ``ops``: dictionaries over what an int8 convolution has."""
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(self.model, path)
        if ops or origin:
            usual = {"type": "conv2d", "quantized": True, "reason": "", "source": "", "thresholds": {}}
            records = [usual | {"scope": op["name"]} | op for op in ops]
            path.with_name(f"{path.name}.json").write_text(json.dumps(signed({"files": {}, "ops": records} | origin)))
        return path


def _weights():
    return np.random.default_rng(0)
