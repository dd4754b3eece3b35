"""Files that were changed behind Quaver's back: small edits of an exported model, the same ones for OpenVINO and for ONNX.

`TAMPERINGS` maps what was done, in words, to a function of an `OpenVINOFile` or an `ONNXFile`. Checksums are mended
afterwards: to `quaver.runtime` the file is a good one.
"""

import hashlib
import json
import shutil
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn

import quaver
from quaver.engines import ENGINES
from quaver.runtime.artefact import checksum

SHAPE = (3, 10, 10)
NUMBERS = {"stem": 0, "deep": 1, "point": 2, "left": 3, "last": 4, "head": 5}
"""Layers with weights, by their place in the file."""


class Net(nn.Module):
    """ReLU6, depthwise, a shortcut, a max pool, a concatenation of signed and unsigned, hardswish, an average, a head."""

    def __init__(self):
        super().__init__()

        def conv(inputs, outputs, size=3, **options):
            layer = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options)
            return nn.Sequential(layer, nn.BatchNorm2d(outputs))

        self.stem, self.deep, self.point = conv(3, 8), conv(8, 8, groups=8), conv(8, 8, 1)
        self.left, self.last, self.head = conv(8, 6), conv(14, 6), nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu6(self.stem(x))
        x = F.relu(self.point(F.relu(self.deep(x))) + x)
        x = F.max_pool2d(x, 2)
        x = F.hardswish(self.last(torch.cat([self.left(x), x], 1)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def frozen(target):
    """The net, quantized for an engine, with ranges from a few batches."""
    torch.manual_seed(0)
    net = Net()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 2)
            nn.init.uniform_(layer.bias, -0.5, 1)
    qat = quaver.quant_aware(net, {"target": target}, example_inputs=(torch.zeros(2, *SHAPE),)).train()
    for _ in range(3):
        qat(torch.randn(8, *SHAPE))
    return quaver.convert(qat)


def images():
    return torch.randn(96, *SHAPE, generator=torch.Generator().manual_seed(7))


class OpenVINOFile:
    """``model.xml`` and ``model.bin``, to be edited."""

    def __init__(self, path):
        self.path = path
        self.tree = ET.parse(path)
        self.layers = {layer.get("name"): layer for layer in self.tree.iter("layer")}
        self.ids = {layer.get("id"): layer for layer in self.layers.values()}
        self.edges = self.tree.getroot().find("edges")
        self.content = path.with_suffix(".bin").read_bytes()

    def save(self):
        self.tree.write(self.path)
        self.path.with_suffix(".bin").write_bytes(self.content)

    # what both kinds of file have

    def weight(self, layer):
        return self.read(self.layers[f"module.{layer}.weight" if layer == "head" else f"module.{layer}.0.weight"])

    def set_weight(self, layer, value):
        self.put(self.layers[f"module.{layer}.weight" if layer == "head" else f"module.{layer}.0.weight"], value)

    def steps(self, layer):
        return self.read(self.source(self.dequantized(layer), 1)).ravel()

    def set_steps(self, layer, value):
        self.put(self.source(self.dequantized(layer), 1), value)

    def bias(self, layer):
        return self.read(self.source(self.product(layer, biased=True), 1)).ravel()

    def set_bias(self, layer, value):
        self.put(self.source(self.product(layer, biased=True), 1), value)

    def set_float_weight(self, layer, value):
        multiply = self.layers[self.dequantized(layer)]
        constant = self.source(self.dequantized(layer), 1)
        self.put(constant, value, shape=value.shape)
        constant.find("output/port").clear()
        port = constant.find("output/port")
        port.set("id", "0")
        port.set("precision", "FP32")
        for size in value.shape:
            ET.SubElement(port, "dim").text = str(size)
        for edge in self.edges:
            if edge.get("from-layer") == multiply.get("id"):
                edge.set("from-layer", constant.get("id"))
                edge.set("from-port", "0")

    def scale_grid(self, tensor, factor, *, only_rounding=False):
        rounding, *shift = self.rounding(tensor)
        ends = [(rounding, port) for port in ((1, 2) if only_rounding else (1, 2, 3, 4))]
        for place in ends if only_rounding else [*ends, *((name, 1) for name in shift)]:
            constant = self.source(*place)
            self.put(constant, self.read(constant) * np.float32(factor))

    def shift_grid(self, tensor, integers):
        rounding, *shift = self.rounding(tensor)
        low, high = (self.read(self.source(rounding, port)) for port in (3, 4))
        by = np.float32(integers) * (high - low) / 255
        for place in [(name, 1) for name in shift] or [(rounding, 3), (rounding, 4)]:
            constant = self.source(*place)
            self.put(constant, self.read(constant) + (-by if shift else by))  # what is subtracted is less

    def drop_quantizer(self, tensor):
        for name in self.rounding(tensor):
            self.bypass(name)

    def set_convolution(self, layer, **options):
        data = self.layers[self.product(layer)].find("data")
        for key, value in options.items():
            if key == "pads":
                data.set("pads_begin", f"{value[0]}, {value[1]}")
                data.set("pads_end", f"{value[2]}, {value[3]}")
            else:
                data.set(key, ", ".join(map(str, value)))

    def set_pool(self, kernel):
        self.layers["MaxPool:max_pool2d"].find("data").set("kernel", f"{kernel}, {kernel}")

    def drop(self, kind):
        self.bypass({"relu": "Relu:relu_1", "hardswish": "HardSwish:hardswish"}[kind])

    def replace(self, kind, other):
        names = {"hardswish": "HardSwish:hardswish", "mean": "ReduceMean:mean"}
        layer = self.layers[names[kind]]
        layer.set("type", {"relu": "ReLU", "max": "ReduceMax"}[other])
        if other == "relu":
            layer.set("version", "opset1")

    def add_instead(self, tensor):
        """Another shortcut."""
        (add,) = (name for name in self.layers if name.startswith("Add:add"))
        edge = self.edge(add, 1)
        edge.set("from-layer", self.layers[f"DequantizeLinear:{tensor}.rounded"].get("id"))
        edge.set("from-port", self.layers[f"DequantizeLinear:{tensor}.rounded"].find("output/port").get("id"))

    def drop_shortcut(self):
        (add,) = (name for name in self.layers if name.startswith("Add:add"))
        self.bypass(add)

    def turn_concat(self):
        first, second = (self.edge("Concat:cat", port) for port in (0, 1))
        for key in ("from-layer", "from-port"):
            one, other = first.get(key), second.get(key)
            first.set(key, other)
            second.set(key, one)

    # how

    def rounding(self, tensor):
        """The op that rounds a tensor, and, where it is signed and stored from zero, the one that subtracts 128 steps."""
        name = f"DequantizeLinear:{tensor}.rounded"
        return [f"{name}.from_zero", name] if f"{name}.from_zero" in self.layers else [name]

    def dequantized(self, layer):
        number = NUMBERS[layer]
        return f"DequantizeLinear:dequantize_per_channel{f'_{number}' if number else ''}"

    def product(self, layer, biased=False):
        number = NUMBERS[layer]
        name = "Gemm:output" if layer == "head" else f"Conv:conv2d{f'_{number}' if number else ''}"
        if biased:
            return "output" if layer == "head" else name
        return f"{name}/WithoutBiases"

    def edge(self, name, port):
        """What leads to an input, by its place."""
        layer = self.layers[name]
        wanted = layer.findall("input/port")[port].get("id")
        (edge,) = (edge for edge in self.edges if (edge.get("to-layer"), edge.get("to-port")) == (layer.get("id"), wanted))
        return edge

    def source(self, name, port):
        return self.ids[self.edge(name, port).get("from-layer")]

    def bypass(self, name):
        """Let its readers read what it reads."""
        into, layer = self.edge(name, 0), self.layers[name]
        for edge in self.edges:
            if edge.get("from-layer") == layer.get("id"):
                edge.set("from-layer", into.get("from-layer"))
                edge.set("from-port", into.get("from-port"))

    def read(self, layer):
        data = layer.find("data")
        dtype = {"f32": np.float32, "i8": np.int8, "i64": np.int64}[data.get("element_type")]
        start, size = int(data.get("offset")), int(data.get("size"))
        shape = [int(size) for size in data.get("shape").split(",") if size.strip()]
        return np.frombuffer(self.content[start : start + size], dtype).reshape(shape).copy()

    def put(self, layer, value, shape=None):
        """At the end of the file: a constant may share its place with others."""
        data, old = layer.find("data"), self.read(layer)
        value = np.asarray(value, old.dtype).reshape(old.shape if shape is None else shape)
        self.content += bytes(-len(self.content) % 64)
        data.set("offset", str(len(self.content)))
        data.set("size", str(value.nbytes))
        data.set("shape", ", ".join(map(str, value.shape)))
        self.content += value.tobytes()


class ONNXFile:
    """``model.onnx``, to be edited."""

    def __init__(self, path):
        self.path = path
        self.model = onnx.load(path)
        self.graph = self.model.graph
        del self.graph.value_info[:]
        self.makers = {name: node for node in self.graph.node for name in node.output}

    def save(self):
        onnx.save(self.model, self.path)

    def weight(self, layer):
        return self.read(self.dequantized(layer).input[0])

    def set_weight(self, layer, value):
        self.put(self.dequantized(layer), 0, value)

    def steps(self, layer):
        return self.read(self.dequantized(layer).input[1])

    def set_steps(self, layer, value):
        self.put(self.dequantized(layer), 1, value)

    def bias(self, layer):
        return self.read(self.product(layer).input[2])

    def set_bias(self, layer, value):
        self.put(self.product(layer), 2, value)

    def set_float_weight(self, layer, value):
        self.put(self.product(layer), 1, value, dtype=np.float32)

    def scale_grid(self, tensor, factor, *, only_rounding=False):
        ends = [self.makers[f"{tensor}.integers"], self.makers[f"{tensor}.rounded"]]
        for node in ends[:1] if only_rounding else ends:
            self.put(node, 1, self.read(node.input[1]) * np.float32(factor))

    def shift_grid(self, tensor, integers):
        node = self.makers[f"{tensor}.rounded"]
        self.put(node, 2, self.read(node.input[2]).astype(int) - integers)

    def drop_quantizer(self, tensor):
        self.reroute(f"{tensor}.rounded", self.makers[f"{tensor}.integers"].input[0])

    def set_convolution(self, layer, **options):
        self.set(self.product(layer), **options)

    def set_pool(self, kernel):
        self.set(self.makers["max_pool2d"], kernel_shape=[kernel, kernel])

    def drop(self, kind):
        name = {"relu": "relu_1", "hardswish": "hardswish"}[kind]
        self.reroute(name, self.makers[name].input[0])

    def replace(self, kind, other):
        node = self.makers[{"hardswish": "hardswish", "mean": "mean"}[kind]]
        node.op_type = {"relu": "Relu", "max": "ReduceMax"}[other]

    def add_instead(self, tensor):
        self.sum().input[1] = f"{tensor}.rounded"

    def drop_shortcut(self):
        self.reroute(self.sum().output[0], self.sum().input[0])

    def turn_concat(self):
        node = self.makers["cat"]
        node.input[:] = [node.input[1], node.input[0]]

    def sum(self):
        (node,) = (node for node in self.graph.node if node.op_type == "Add")
        return node

    def dequantized(self, layer):
        return self.makers[self.product(layer).input[1]]

    def product(self, layer):
        number = NUMBERS[layer]
        return self.makers["output" if layer == "head" else f"conv2d{f'_{number}' if number else ''}"]

    def read(self, name):
        (tensor,) = (tensor for tensor in self.graph.initializer if tensor.name == name)
        return numpy_helper.to_array(tensor).copy()

    def put(self, node, place, value, dtype=None):
        """As a constant of its own: the old one may have other readers."""
        if dtype is None:
            old = self.read(node.input[place])
            value = np.asarray(value).astype(old.dtype).reshape(old.shape)
        name = f"tampered_{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype or value.dtype), name))
        node.input[place] = name

    def set(self, node, **options):
        for name, value in options.items():
            kept = [attribute for attribute in node.attribute if attribute.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    def reroute(self, name, source):
        for node in self.graph.node:
            node.input[:] = [source if given == name else given for given in node.input]


FILES = {"openvino": OpenVINOFile, "onnx": ONNXFile}

# the edits


def a_weight_one_step_off(layer, file):
    """Of the largest weights of all channels, the one whose step moves the outputs farthest: some move hardly any."""
    weight, before = file.weight(layer), outputs(file)

    def off(channel):
        changed = weight.copy()
        place = (channel, *np.unravel_index(np.abs(weight[channel].astype(int)).argmax(), weight.shape[1:]))
        changed[place] -= np.sign(changed[place])
        return changed

    def moved(changed):
        file.set_weight(layer, changed)
        file.save()
        return np.abs(outputs(file) - before).mean()

    file.set_weight(layer, max(map(off, range(len(weight))), key=moved))


def outputs(file):
    """What the engine computes from a file as it is, whatever its checksums say."""
    engine = ENGINES["openvino" if isinstance(file, OpenVINOFile) else "onnx"]
    return engine.load(file.path, threads=1)(images().numpy())


def a_step_off(layer, channel, factor, file):
    steps = file.steps(layer)
    steps[channel] *= np.float32(factor)
    file.set_steps(layer, steps)


def a_bias_off(layer, value, file):
    bias = file.bias(layer)
    bias[0] = bias[0] + np.float32(value)
    file.set_bias(layer, bias)


def channels_swapped(layer, file):
    for read, write in ((file.weight, file.set_weight), (file.steps, file.set_steps), (file.bias, file.set_bias)):
        values = read(layer)
        values[[0, 1]] = values[[1, 0]]
        write(layer, values)


def a_channel_zeroed(layer, file):
    for read, write in ((file.weight, file.set_weight), (file.bias, file.set_bias)):
        values = read(layer)
        values[0] = 0
        write(layer, values)


def weights_changed(layer, change, file):
    file.set_weight(layer, change(file.weight(layer)))


def in_float(layer, file):
    """With weights that the rounding had changed by up to 0.4 steps."""
    weight = file.weight(layer).astype(np.float32)
    weight += np.random.default_rng(0).uniform(-0.4, 0.4, weight.shape).astype(np.float32)
    file.set_float_weight(layer, weight * file.steps(layer).reshape(-1, *[1] * (weight.ndim - 1)))


def call(method, *args, **options):
    """An edit that is a method of the file."""
    return lambda file: getattr(file, method)(*args, **options)


TAMPERINGS = {
    **{f"step of {tensor} {way}": call("scale_grid", tensor, factor)
       for tensor in ("x", "relu6", "relu", "relu_1", "hard_swish", "flatten")
       for way, factor in (("1 % up", 1.01), ("1 % down", 0.99))},
    **{f"{tensor} rounded 2 % finer than it is read": call("scale_grid", tensor, 0.98, only_rounding=True)
       for tensor in ("x", "relu6", "relu_1")},
    **{f"zero point of {tensor} off by {by}": call("shift_grid", tensor, by)
       for tensor, by in (("x", 1), ("x", 128), ("relu_1", 1), ("hard_swish", -1), ("flatten", 1))},
    **{f"{tensor} not rounded": call("drop_quantizer", tensor) for tensor in ("x", "relu6", "relu", "hard_swish")},
    **{f"a weight of {layer} one step off": partial(a_weight_one_step_off, layer) for layer in NUMBERS},
    **{f"a step of {layer}'s weights 1 % off": partial(a_step_off, layer, 1, 1.01) for layer in NUMBERS},
    "all steps of left's weights 1 % off": partial(a_step_off, "left", slice(None), 1.01),
    **{f"a bias of {layer} off": partial(a_bias_off, layer, 0.02) for layer in NUMBERS},
    **{f"NaN in a bias of {layer}": partial(a_bias_off, layer, np.nan) for layer in ("stem", "last", "head")},
    "Inf in a bias of head": partial(a_bias_off, "head", np.inf),
    "NaN in a step of last's weights": partial(a_step_off, "last", 0, np.nan),
    "deep without biases": lambda file: file.set_bias("deep", file.bias("deep") * 0),
    **{f"two channels of {layer} swapped": partial(channels_swapped, layer) for layer in NUMBERS},
    **{f"a channel of {layer} zeroed": partial(a_channel_zeroed, layer) for layer in NUMBERS},
    "inputs of stem in another order": partial(weights_changed, "stem", lambda weight: weight[:, ::-1]),
    "inputs of point swapped": partial(weights_changed, "point", lambda weight: weight[:, [1, 0, *range(2, 8)]]),
    "left negated": partial(weights_changed, "left", np.negative),
    "filters of last mirrored": partial(weights_changed, "last", lambda weight: weight[..., ::-1]),
    "last with a stride": call("set_convolution", "last", strides=[2, 2]),
    "last without padding": call("set_convolution", "last", pads=[0, 0, 0, 0]),
    "last padded on one side": call("set_convolution", "last", pads=[2, 2, 0, 0]),
    "last dilated": call("set_convolution", "last", dilations=[2, 2], pads=[2, 2, 2, 2]),
    "the pool with a smaller window": call("set_pool", 1),
    "without the ReLU behind the sum": call("drop", "relu"),
    "without the hardswish": call("drop", "hardswish"),
    "a ReLU for the hardswish": call("replace", "hardswish", "relu"),
    "the largest for the average": call("replace", "mean", "max"),
    "another shortcut": call("add_instead", "relu"),
    "no shortcut": call("drop_shortcut"),
    "the concatenation in another order": call("turn_concat"),
    "outputs in another order": partial(weights_changed, "head", lambda weight: weight[::-1]),
    **{f"{layer} in float": partial(in_float, layer) for layer in ("stem", "last", "head")},
}  # fmt: skip


def tampered(file: Path, folder: Path, edit):
    """A copy of an artefact with the edit, its checksums mended."""
    shutil.copytree(file.parent, folder, dirs_exist_ok=True)
    target = "openvino" if file.suffix == ".xml" else "onnx"
    copy = FILES[target](folder / file.name)
    edit(copy)
    copy.save()
    beside = folder / f"{file.name}.json"
    record = json.loads(beside.read_text())
    del record["checksum"]
    record["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in record["files"]}
    beside.write_text(json.dumps(record | {"checksum": checksum(record)}))
    return folder / file.name
