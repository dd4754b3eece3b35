"""Pools, means and resizing."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from quaver.engines.litert.flatbuffer import FileTensor, QParams
from quaver.engines.litert.padding import SAME, VALID, Window, around, window_of
from quaver.engines.litert.translator import Translation, Translator, Value, as_given, channels_last, first_shape, size
from quaver.errors import EngineError
from quaver.graph.nodes import argument, packet
from quaver.graph.patterns import two

LEAST = -128
LOWEST = float(np.finfo(np.float32).min)


def max_pool2d(t: Translator, node: fx.Node) -> Value:
    """A max pool, on integers where it is given some; what lies outside is never the largest."""
    if two(argument(node, "dilation")) != [1, 1]:
        raise EngineError(f"LiteRT: {t.title(node)!r}: a max pool with dilation has no form in a .tflite file.")
    x = t.ordered(t.values[node.args[0]], channels_last(4))  # type: ignore[index]
    window = reaching(node, x)
    if window.is_same():
        return pooled(t, "MAX_POOL_2D", x, node, window, SAME)
    return pooled(t, "MAX_POOL_2D", surrounded(t, x, window.sides), node, window, VALID)


def max_pool2d_with_indices(t: Translator, node: fx.Node) -> list[Value]:
    """A max pool; nobody gets the indices."""
    return [max_pool2d(t, node)]


def reaching(node: fx.Node, x: Value) -> Window:
    """The window of a pool, with as much padding behind as it reaches into: ceil_mode may want more than in front."""
    window = window_of(node, two(argument(node, "kernel_size")), x.shape[2:])
    counts = list(first_shape(node)[2:])
    return window._replace(after=[window.missing(axis, count) for axis, count in enumerate(counts)])


def surrounded(t: Translator, x: Value, sides: list[tuple[int, int]]) -> Value:
    """Images with the least number around them."""
    if x.grid is None:
        return around(t, x, sides, LOWEST)
    return around(t, x, sides, None if x.grid.zero_point == LEAST else LEAST)  # XNNPACK pads with zero only


def pooled(t: Translator, op: str, x: Value, node: fx.Node, window: Window, padding: int) -> Value:
    """A pool of images that are padded as it needs them."""
    like = t.like(node, channels_last(4))
    return t.emit(op, [x], like, t.title(node), x.grid, padding=padding, **window.pool_options())


def avg_pool2d(t: Translator, node: fx.Node) -> Value:
    """An average pool in float: zeros around the images, and at the border a factor for those that do not count."""
    x = t.ordered(t.operand(node.args[0]), channels_last(4))
    window = reaching(node, x)
    result = pooled(t, "AVERAGE_POOL_2D", around(t, x, window.sides), node, window, VALID)
    shares = shares_counted(node, window)
    if bool((shares == 1).all()):
        return result
    factors = t.ordered(t.constant(shares.numpy()), channels_last(4))
    return t.emit("MUL", [result, factors], result, f"{t.title(node)}.counted")


def shares_counted(node: fx.Node, window: Window) -> Tensor:
    """By what the pool's average differs from one over all that the window lies on, zeros around the images included."""
    ones = torch.ones(1, 1, *window.sizes)
    names = ("padding", "ceil_mode", "count_include_pad", "divisor_override")
    counted = F.avg_pool2d(ones, window.kernel, window.stride, *(argument(node, name) for name in names))
    (top, bottom), (left, right) = window.sides
    return counted / F.avg_pool2d(F.pad(ones, (left, right, top, bottom)), window.kernel, window.stride)


def adaptive_avg_pool2d(t: Translator, node: fx.Node) -> Value:
    """An average over whole images, or over parts of them that are alike."""
    grid = t.grid_of(node)
    wanted = [int(size) for size in node.meta["val"].shape[2:]]
    if wanted == [1, 1]:
        x = t.ordered(t.operand(node.args[0], grid), channels_last(4))
        return t.emit("MEAN", [x, t.integers([1, 2])], t.like(node, channels_last(4)), t.title(node), grid, keepDims=True)
    x = t.ordered(t.operand(node.args[0]), channels_last(4))
    height, width = (shares_of(have, want) for have, want in zip(x.shape[2:], wanted, strict=True))
    return t.ordered(by_matrices(t, x, node, height, width), channels_last(4))


def by_matrices(t: Translator, x: Value, node: fx.Node, height: Any, width: Any) -> Value:
    """Pixels as sums of others: a product with a matrix (wanted by had) of their shares for each direction."""
    x = t.ordered(x, (0, 1, 2, 3))
    like = Value(FileTensor(-1, (*x.shape[:3], len(width)), np.dtype(np.float32)), as_given(4))
    rows = t.emit("BATCH_MATMUL", [x, t.constant(width.T)], like, f"{t.title(node)}.across", adjX=False, adjY=False)
    turned = t.ordered(rows, (0, 1, 3, 2))
    like = Value(FileTensor(-1, (*x.shape[:2], len(width), len(height)), np.dtype(np.float32)), (0, 1, 3, 2))
    return t.emit("BATCH_MATMUL", [turned, t.constant(height.T)], like, t.title(node), adjX=False, adjY=False)


def shares_of(have: int, want: int) -> Any:
    """What each of ``have`` pixels adds to each of ``want`` averages, a row for each of these."""
    return F.adaptive_avg_pool1d(torch.eye(have)[None], want)[0].T.numpy()


def adaptive_max_pool2d(t: Translator, node: fx.Node) -> list[Value]:
    """The largest of whole images."""
    x = t.ordered(t.values[node.args[0]], channels_last(4))  # type: ignore[index]
    shape = [int(size) for size in node.meta["val"][0].shape]
    if any(have % want for have, want in zip(x.shape[2:], shape[2:], strict=True)):
        raise EngineError(
            f"LiteRT: {t.title(node)!r}: a max pool over parts of different size has no form in a .tflite file."
        )
    kernel = [have // want for have, want in zip(x.shape[2:], shape[2:], strict=True)]
    like = Value(FileTensor(-1, (shape[0], *shape[2:], shape[1]), x.stored.dtype), channels_last(4))
    options = {"strideH": kernel[0], "strideW": kernel[1], "filterHeight": kernel[0], "filterWidth": kernel[1]}
    return [t.emit("MAX_POOL_2D", [x], like, t.title(node), x.grid, padding=VALID, **options)]


def reduced(op: str) -> Translation:
    """A mean, sum or maximum over dimensions."""

    def translation(t: Translator, node: fx.Node) -> Value:
        x: Value = t.values[node.args[0]]  # type: ignore[index]
        dims = reduced_dims(node, x)
        on_images = op == "MEAN" and x.rank == 4 and dims == [2, 3]
        grid = t.grid_of(node) if on_images else None
        x = t.operand(node.args[0], grid)
        x = t.ordered(x, channels_last(4)) if on_images else x
        return along(t, op, x, dims, node, grid)

    return translation


def reduced_dims(node: fx.Node, x: Value) -> list[int]:
    """The dimensions that an op goes along; all where it is given none."""
    given = argument(node, "dim")
    return sorted(dim % x.rank for dim in (as_given(x.rank) if given in (None, []) else two_or_one(given)))


def along(t: Translator, op: str, x: Value, dims: list[int], node: fx.Node, grid: QParams | None = None) -> Value:
    """An op along dimensions, which stay with size 1 if the node keeps them."""
    result = kept(t, op, x, dims, t.title(node), grid)
    if argument(node, "keepdim"):
        return result
    left = [dim for dim in x.order if dim not in dims]
    order = tuple(sorted(left).index(dim) for dim in left)
    return t.reshaped(result, tuple(x.shape[dim] for dim in left), order)


def kept(t: Translator, op: str, x: Value, dims: list[int], name: str, grid: QParams | None = None) -> Value:
    """An op along dimensions, which stay with size 1."""
    axes = sorted(x.place(dim) for dim in dims)
    shape = tuple(1 if place in axes else size for place, size in enumerate(x.stored.shape))
    like = Value(FileTensor(-1, shape, x.stored.dtype), x.order)
    return t.emit(op, [x, t.integers(axes)], like, name, grid, keepDims=True)


def variance(t: Translator, node: fx.Node) -> Value:
    """The mean square of what is left without the mean; the sum of squares by one less, or as many as are wanted."""
    x, name = t.operand(node.args[0]), t.title(node)
    dims = reduced_dims(node, x)
    count = size([x.shape[dim] for dim in dims])
    correction = argument(node, "correction", int(bool(argument(node, "unbiased", True))))
    centred = t.emit("SUB", [x, kept(t, "MEAN", x, dims, f"{name}.mean")], x, f"{name}.centred")
    squares = t.emit("MUL", [centred, centred], x, f"{name}.squares")
    factor = t.constant(np.array(count / (count - (1 if correction is None else correction)), np.float32))
    mean = along(t, "MEAN", squares, dims, node)
    return t.emit("MUL", [mean, factor], mean, name)


def deviation(t: Translator, node: fx.Node) -> Value:
    """The root of the variance."""
    squared = variance(t, node)
    return t.emit("SQRT", [squared], squared, t.title(node))


def variance_and_mean(t: Translator, node: fx.Node) -> list[Value]:
    """Both of the same dimensions."""
    x = t.operand(node.args[0])
    return [variance(t, node), along(t, "MEAN", x, reduced_dims(node, x), node)]


def vector_norm(t: Translator, node: fx.Node) -> Value:
    """The root of the sum of squares."""
    if argument(node, "ord") != 2:
        raise EngineError(f"LiteRT: {t.title(node)!r}: of norms, only that of order 2 has a form in a .tflite file.")
    x = t.operand(node.args[0])
    total = along(t, "SUM", t.emit("MUL", [x, x], x, f"{t.title(node)}.squares"), reduced_dims(node, x), node)
    return t.emit("SQRT", [total], total, t.title(node))


def cumsum(t: Translator, node: fx.Node) -> Value:
    """Sums from the start of a dimension on."""
    x = t.operand(node.args[0])
    place = t.constant(np.array(x.place(argument(node, "dim")), np.int32))
    return t.emit("CUMSUM", [x, place], x, t.title(node))


def two_or_one(dims: Any) -> list[int]:
    """Dimensions, which may be given as one number."""
    return [dims] if isinstance(dims, int) else list(dims)


def upsample_nearest2d(t: Translator, node: fx.Node) -> Value:
    """The nearest pixel."""
    return resized(t, node, t.values[node.args[0]], "RESIZE_NEAREST_NEIGHBOR", False, False)  # type: ignore[index]


def upsample_nearest_exact2d(t: Translator, node: fx.Node) -> Value:
    """The nearest pixel, by the pixels' middles."""
    return resized(t, node, t.values[node.args[0]], "RESIZE_NEAREST_NEIGHBOR", False, True)  # type: ignore[index]


def upsample_bilinear2d(t: Translator, node: fx.Node) -> Value:
    """Between pixels, in float."""
    corners = bool(argument(node, "align_corners"))
    return resized(t, node, t.operand(node.args[0]), "RESIZE_BILINEAR", corners, not corners)


def resampled(t: Translator, node: fx.Node) -> Value:
    """Pixels from several, weighed: what the op makes of one pixel alone is a column of the matrix for its direction."""
    x = t.operand(node.args[0])
    wanted = [int(size) for size in node.meta["val"].shape[2:]]
    corners = bool(argument(node, "align_corners"))
    given = argument(node, "scale_factors") or [argument(node, name) for name in ("scales_h", "scales_w")]
    op = getattr(torch.ops.aten, packet(node)).default

    def shares(have: int, want: int, scale: float | None) -> Any:
        return op(torch.eye(have)[None, None], [want, have], corners, scale, None)[0, 0].numpy()

    height, width = (shares(*sizes) for sizes in zip(x.shape[2:], wanted, given, strict=True))
    return t.ordered(by_matrices(t, x, node, height, width), channels_last(4))


def resized(t: Translator, node: fx.Node, x: Value, op: str, corners: bool, centers: bool) -> Value:
    """Images of another size."""
    x = t.ordered(x, channels_last(4))
    size = t.integers([int(size) for size in node.meta["val"].shape[2:]])
    like = t.like(node, channels_last(4))
    return t.emit(op, [x, size], like, t.title(node), x.grid, alignCorners=corners, halfPixelCenters=centers)


TRANSLATIONS: dict[str, Translation] = {
    "max_pool2d": max_pool2d,
    "max_pool2d_with_indices": max_pool2d_with_indices,
    "avg_pool2d": avg_pool2d,
    "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "adaptive_max_pool2d": adaptive_max_pool2d,
    "mean": reduced("MEAN"),
    "sum": reduced("SUM"),
    "amax": reduced("REDUCE_MAX"),
    "amin": reduced("REDUCE_MIN"),
    "var": variance,
    "std": deviation,
    "var_mean": variance_and_mean,
    "linalg_vector_norm": vector_norm,
    "cumsum": cumsum,
    "upsample_nearest2d": upsample_nearest2d,
    "_upsample_nearest_exact2d": upsample_nearest_exact2d,
    "upsample_bilinear2d": upsample_bilinear2d,
    **dict.fromkeys(("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa"), resampled),
}
