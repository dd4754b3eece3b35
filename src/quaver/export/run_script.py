"""A few lines of Python that run a file on an image, with the engine's own package and none of ours."""

from pathlib import Path
from typing import Any

from quaver.engines import Engine

_HEAD = '''\
"""Runs {name} on an image with {title} alone: python {name}.py IMAGE"""

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from PIL import Image

path = Path(__file__).with_suffix("")
about = json.loads(Path(f"{{path}}.json").read_text())["preprocessing"]
image = Image.open(sys.argv[1]).convert("{mode}")
(height, width), sampling = about["size"], Image.Resampling[about["filter"].upper()]
'''
_MIDDLE = """\
scale = about["resize"] / min(image.size)
image = image.resize([round(side * scale) for side in image.size], sampling)
left, top = round((image.width - width) / 2), round((image.height - height) / 2)
image = image.crop((left, top, left + width, top + height))
"""
_WHOLE = """\
image = image.resize((width, height), sampling)
"""
_PIXELS = """\
pixels = np.asarray(image).reshape(1, height, width, -1)
"""
_FLOATS = """\
mean, std = np.float32(about["mean"]), np.float32(about["std"])
pixels = (pixels / np.float32(about["unit"]) - mean) / std
"""
_END = """\
if outputs[0].ndim == 2:
    best = int(outputs[0][0].argmax())
    print(best, about["labels"][best] if about["labels"] else "")
else:
    print(*(output.shape for output in outputs))
"""


def run_script(name: str, engine: Engine, origin: dict[str, Any]) -> str:
    """The text of ``<file>.py``; the numbers come from the JSON beside it."""
    about, ((given, *_),) = origin["preprocessing"], origin["inputs"]
    lines = [line.format(input=given) for line in engine.script]
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    mode = "L" if len(about["mean"]) == 1 else "RGB"
    swapped = "[..., ::-1]" if about["color"] == "BGR" else ""
    turned = ".transpose(0, 3, 1, 2)" if about["layout"] == "NCHW" else ""
    parts = [
        _HEAD.format(name=name, title=engine.title, imports="\n".join(imports), mode=mode),
        _MIDDLE if about["crop"] == "center" else _WHOLE,
        _PIXELS,
        _FLOATS if about["dtype"] == "float32" else "",
        f"batch = np.ascontiguousarray(pixels{swapped}{turned})\n",
        *(f"{line}\n" for line in lines if line not in imports),
        _END,
    ]
    return "".join(parts)


def remove_run_script(script: Path) -> None:
    """Remove the lines beside a file that was written anew without them: they are of another. What is not ours stays."""
    ours = _HEAD[: _HEAD.index("{title}")].format(name=script.stem).encode()
    if script.is_file() and script.read_bytes().startswith(ours):
        script.unlink()
