"""A toy engine: ONNX's reference evaluator, which quantizes and dequantizes literally. One folder, as any engine is."""

from quaver.engines.engine import Engine


class Toy(Engine):
    name = "toy"
    package = "onnx"
    title = "Toy"
    requirement = "onnx"
    suffix = ".toy"
    reads = (".toy",)
    op_types = ("conv2d", "mul", "elementwise_add", "pool2d", "flatten")


ENGINE = Toy()
