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

    def lowering(self):
        from toy.lowering import ToyLowering

        return ToyLowering()

    def write(self, program, file, origin, options):
        from quaver.onnx.model import checked_proto, shared_model

        file.write_bytes(checked_proto(shared_model(program, options.shared), origin).SerializeToString())

    def load(self, file, threads):
        from toy.runner import ToyRunner

        return ToyRunner(file)


ENGINE = Toy()
