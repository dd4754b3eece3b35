"""Data sets. What ships with the package needs no download, and nothing else is downloaded either."""

from typing import TYPE_CHECKING

from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver.data.by_name import open_dataset
    from quaver.data.dataset import FileImages, ImageData, MemoryImages
    from quaver.data.digits import load_digits
    from quaver.data.loader import Loader
    from quaver.data.shapes import write_shapes
    from quaver.data.voc import Target, VocImages

on_demand(
    __name__,
    {
        "by_name": "open_dataset",
        "dataset": "FileImages ImageData MemoryImages",
        "digits": "load_digits",
        "loader": "Loader",
        "shapes": "write_shapes",
        "voc": "Target VocImages",
    },
)

__all__ = [
    "FileImages",
    "ImageData",
    "Loader",
    "MemoryImages",
    "Target",
    "VocImages",
    "load_digits",
    "open_dataset",
    "write_shapes",
]
