"""XNNPACK's arithmetic beside LiteRT's own kernels, next to ties. Skipped where LiteRT is not installed."""

import numpy as np
import pytest
import torch

from needs import need_litert
from quaver.engines.litert.flatbuffer import File, QParams
from quaver.engines.litert.runner import engine, without_notes
from quaver.int8.requantize import Output
from quaver.xnnpack import arithmetic

need_litert()


def near_ties(scale, zeros, output_scale, count):
    """Sums of so many integers whose mean lies next to a tie of the output's grid."""
    ties = (np.arange(-128, 127) - zeros[1] + 0.5) * output_scale / scale * count
    sums = np.unique(np.rint(ties)[:, None] + np.arange(-1, 2)).astype(int)
    return sums[((-128 - zeros[0]) * count <= sums) & (sums <= (127 - zeros[0]) * count)]


def with_sums(sums, height, width):
    """Images whose channels have these sums, each as even as can be."""
    base, more = np.divmod(sums, height * width)
    return (base + (np.arange(height * width)[:, None] < more)).reshape(1, height, width, -1)


def mean_on_litert(stored, scale, zeros, output_scale):
    file, (_, *_, channels) = File(), stored.shape
    x = file.tensor("x", stored.shape, np.int8, QParams.of(scale, zeros[0]))
    y = file.tensor("y", (1, 1, 1, channels), np.int8, QParams.of(output_scale, zeros[1]))
    file.op("MEAN", [x, file.constant("axes", np.array([1, 2], np.int32))], y, keepDims=True)
    with without_notes():
        run = engine().Interpreter(model_content=file.finished({"x": x}, {"y": y}), num_threads=1)
        run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], stored.astype(np.int8))
    run.invoke()
    return run.get_tensor(run.get_output_details()[0]["index"]).reshape(-1)


@pytest.mark.parametrize("zeros", [(-128, -128), (0, 0), (-128, 17), (-100, -128)])
@pytest.mark.parametrize("sides", [(2, 2), (7, 7), (14, 14), (28, 30)])
def test_a_mean_is_the_kernels_next_to_every_tie(zeros, sides):
    generator = np.random.default_rng(0)
    for _ in range(8):
        scale, output_scale = (float(np.float32(generator.uniform(*ends))) for ends in ((0.01, 0.05), (0.0015, 0.05)))
        whole = with_sums(near_ties(scale, zeros, output_scale, sides[0] * sides[1]), *sides)
        output = Output(output_scale, -128 - zeros[1], 127 - zeros[1])

        ours = arithmetic.mean(
            torch.from_numpy(whole).permute(0, 3, 1, 2).float(), scale, zeros, [2, 3], False, output
        ).numpy()

        theirs = mean_on_litert(whole + zeros[0], scale, zeros, output_scale)
        assert np.array_equal(ours[0] + zeros[1], theirs)
