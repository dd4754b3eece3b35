"""OpenVINO's CPU plugin (oneDNN), 2026.4."""

from typing import Any

from quaver.engines.engine import Engine
from quaver.machine.cpu import LIMITS, cpu


class OpenVINO(Engine):
    """``model.xml`` and ``model.bin``. It adds a shortcut inside the convolution in front of it."""

    name = "openvino"
    package = "openvino"
    title = "OpenVINO"
    requirement = "openvino"
    suffix = ".xml"
    reads = (".xml", ".onnx")
    op_types = (
        *("conv2d", "depthwise_conv2d", "conv1d", "conv3d", "conv2d_transpose", "mul", "matmul"),
        *("elementwise_add", "elementwise_mul"),
        *("pool2d", "mean", "concat", "interpolate", "flatten", "reshape", "transpose", "slice", "split", "assign"),
        "pixel_shuffle",
    )
    fuses_add = True
    asymmetric = True
    takes_bytes = True
    scales_images = True
    saturates = True
    packs_weights = True
    shows_inside = True
    tells_layers = True
    weights = "{stem}.bin"
    script = (
        "import openvino",
        'model = openvino.Core().compile_model(path, "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})',
        "outputs = list(model(batch).values())",
    )
    remedy = (
        f"Set {LIMITS[0]} in the environment, to AVX512_CORE_VNNI or, if that does not help, to AVX2; or export "
        "for another engine (onnx)."
    )

    def saturates_here(self) -> bool:
        """Whether oneDNN has no VNNI here, or was told to do without."""
        return cpu().saturates(onednn=True)

    def is_exact_here(self, origin: dict[str, Any]) -> bool:
        """Not with AMX, for a file that was written for speed there."""
        return "AMX" not in cpu().abilities or bool(origin.get("same_on_amx", True))


ENGINE = OpenVINO()
