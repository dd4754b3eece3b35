"""Data sets. What ships with the package needs no download, and nothing else is downloaded either."""

from quaver.data.by_name import open_dataset
from quaver.data.dataset import FileImages, ImageData, MemoryImages
from quaver.data.digits import load_digits
from quaver.data.loader import Loader
from quaver.data.shapes import write_shapes
from quaver.data.voc import Target, VocImages

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
