"""Every integer and threshold of ``golden/fake_quant_reference.npz``, which the reference system's own kernels produced."""

from pathlib import Path

import numpy as np
import pytest
import torch

from quaver.quantizers import AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, Quantizer, RangeAbsMax

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "fake_quant_reference.npz")

SINGLE = {
    "abs_max_8bit": lambda: AbsMax(bits=8),
    "abs_max_4bit": lambda: AbsMax(bits=4),
    "channel_wise_abs_max_axis0_8bit": lambda: ChannelWiseAbsMax(bits=8, axis=0),
    "channel_wise_abs_max_axis0_4bit": lambda: ChannelWiseAbsMax(bits=4, axis=0),
    "channel_wise_abs_max_axis1_8bit": lambda: ChannelWiseAbsMax(bits=8, axis=1),
    "channel_wise_abs_max_axis1_4bit": lambda: ChannelWiseAbsMax(bits=4, axis=1),
}
SEQUENCES = {
    "moving_average_abs_max_rate0.9": lambda: MovingAverageAbsMax(moving_rate=0.9),
    "range_abs_max_window5": lambda: RangeAbsMax(window_size=5),
}


def case(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(torch.from_numpy(GOLDEN[f"{name}/{part}"]) for part in ("x", "integers", "scale"))


def assert_reproduces(quantizer: Quantizer, x: torch.Tensor, integers: torch.Tensor, threshold: torch.Tensor) -> None:
    """Observe ``x`` as training does, then compare integers exactly and thresholds to float32 rounding."""
    rounded = quantizer(x)
    whole, scale = quantizer.integers(x)
    assert torch.equal(whole, integers.float())
    assert torch.equal(rounded, whole * quantizer.per_channel(scale, x))
    # a few roundings of 2^-24 each: the moving average adds and multiplies twice a step
    torch.testing.assert_close(quantizer.threshold.reshape(threshold.shape), threshold, rtol=5e-7, atol=0)


def test_no_golden_case_is_left_out():
    assert {key.split("/")[0] for key in GOLDEN} == SINGLE.keys() | SEQUENCES.keys()


@pytest.mark.parametrize("name", SINGLE)
def test_integers_and_thresholds_of_one_tensor_are_the_references(name):
    x, integers, threshold = case(name)

    assert_reproduces(SINGLE[name](), x, integers, threshold)


@pytest.mark.parametrize("name", SEQUENCES)
def test_integers_and_thresholds_are_the_references_after_every_step(name):
    x, integers, threshold = case(name)
    quantizer = SEQUENCES[name]()

    for step in range(len(x)):
        assert_reproduces(quantizer, x[step], integers[step], threshold[step])
