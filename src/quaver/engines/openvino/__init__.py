"""OpenVINO's CPU plugin (oneDNN), 2026.4."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.engines.engine import Engine, Options
from quaver.machine.cpu import LIMITS, cpu

if TYPE_CHECKING:
    from torch import fx

    from quaver.engines.inspection import Profile, Revealed
    from quaver.graph.rewriter import Lowering
    from quaver.program import Program
    from quaver.runtime.runner import Runner


class OpenVINO(Engine):
    """``model.xml`` and ``model.bin``. It adds a shortcut inside the convolution in front of it."""

    name = "openvino"
    package = "openvino"
    title = "OpenVINO"
    requirement = "openvino"
    suffix = ".xml"
    reads = (".xml", ".onnx")
    op_types = (
        "conv2d",
        "depthwise_conv2d",
        "conv2d_transpose",
        "mul",
        "matmul",
        "elementwise_add",
        "elementwise_mul",
        "pool2d",
        "mean",
        "concat",
        "interpolate",
        "flatten",
        "reshape",
        "transpose",
        "slice",
        "split",
        "assign",
        "pixel_shuffle",
    )
    fuses_add = True
    saturates = True
    tells_layers = True
    remedy = (
        f"Set {LIMITS[0]} in the environment, to AVX512_CORE_VNNI or, if that does not help, to AVX2; or export "
        "for another engine (onnx)."
    )

    def saturates_here(self) -> bool:
        """Whether oneDNN has no VNNI here, or was told to do without."""
        return cpu().saturates(onednn=True)

    def lowering(self) -> "Lowering":
        """Integers convolved and rescaled once; what is added to a convolution is added before it is rounded."""
        from quaver.engines.openvino.lowering import OpenVINOLowering

        return OpenVINOLowering()

    def computes_exactly(self, node: "fx.Node") -> bool:
        """Products of integers, and what only moves, compares or adds once."""
        from quaver.engines.openvino.exactness import computes_exactly

        return computes_exactly(node)

    def is_exact_here(self, origin: dict[str, Any]) -> bool:
        """Not with AMX, for a file that was written for speed there."""
        return "AMX" not in cpu().abilities or bool(origin.get("same_on_amx", True))

    def write(self, program: "Program", file: Path, origin: dict[str, Any], options: Options) -> None:
        """Read from the program's ONNX form."""
        from quaver.engines.openvino.writer import write

        write(program, file, origin, options)

    def weights_beside(self, file: Path) -> Path | None:
        """``model.bin``."""
        return file.with_suffix(".bin")

    def load(self, file: Path, threads: int) -> "Runner":
        """On the CPU plugin."""
        from quaver.engines.openvino.runner import load

        return load(file, threads)

    def reveal(self, file: Path, tensors: list[str], threads: int, apart: Collection[str]) -> "Revealed":
        """Tensors as further outputs; shortcuts, each of a model that ends there."""
        from quaver.engines.openvino.inspection import reveal

        return reveal(file, tensors, threads, apart)

    def profile(self, file: Path, threads: int, batch: int, rounds: int) -> "Profile":
        """From the plugin's counters."""
        from quaver.engines.openvino.inspection import profile

        return profile(file, threads, batch, rounds)


ENGINE = OpenVINO()
