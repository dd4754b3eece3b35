"""Images of other sizes than the captured one: in training, in the program, in its files."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.errors import CaptureError, InputError
from quaver.program.signature import Side


class Halving(nn.Module):
    """Two halvings, the second of which is undone beside the first: sizes have to be multiples of four."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.down, self.head = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        wide = self.norm(self.stem(x)).relu()
        return self.head(torch.cat([wide, F.interpolate(self.down(wide).relu(), scale_factor=2)], 1))


class Positions(nn.Module):
    """What it has learned belongs to one size."""

    def __init__(self):
        super().__init__()
        self.stem, self.positions = nn.Conv2d(3, 4, 4, 4), nn.Parameter(torch.zeros(4, 4, 4))

    def forward(self, x):
        return self.stem(x) + self.positions


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    torch.manual_seed(0)
    program = quaver.quant_aware(Halving(), example_inputs=(torch.zeros(1, 3, 16, 16),), dynamic=True).train()
    for height, width in ((16, 16), (24, 32), (8, 20)):
        program(torch.randn(2, 3, height, width)).square().mean().backward()
    return quaver.load(quaver.save(quaver.convert(program.eval()), tmp_path_factory.mktemp("saved") / "program"))


def test_the_sizes_that_the_graphs_hold_for_are_known(frozen):
    assert frozen.signature.tensors[0].sides == (Side(16, 4, 8), Side(16, 4, 8))


@pytest.mark.parametrize("size", [(18, 16), (16, 4)])
def test_another_size_is_refused_in_words(frozen, size):
    with pytest.raises(InputError, match=r"any multiple of 4 from 8 on and any multiple of 4 from 8 on; at others"):
        frozen(torch.zeros(1, 3, *size))


def test_a_model_without_dynamic_says_how_to_have_it():
    program = quaver.capture(nn.Conv2d(3, 4, 3), (torch.zeros(1, 3, 8, 8),))

    with pytest.raises(InputError, match="or with dynamic=True for images of many sizes"):
        program(torch.zeros(1, 3, 9, 8))


def test_a_model_of_one_size_is_refused():
    with pytest.raises(CaptureError, match=r"Positions: dynamic=True: its graph is that of images of 16 x 16 alone"):
        quaver.capture(Positions(), (torch.zeros(1, 3, 16, 16),), dynamic=True)


def test_without_images_there_is_no_size():
    with pytest.raises(InputError, match=r"none of example_inputs is a batch of images"):
        quaver.capture(nn.Linear(3, 4), (torch.zeros(2, 3),), dynamic=True)


@pytest.mark.slow
def test_the_file_gives_the_programs_bits_at_every_size(frozen, tmp_path):
    file = quaver.export(frozen, tmp_path)
    run = quaver.runtime.load(file)
    torch.manual_seed(1)

    for size in ((16, 16), (40, 28)):
        images = torch.randn(3, 3, *size)
        np.testing.assert_array_equal(run(images.numpy()), frozen(images).numpy())
        assert quaver.verify(frozen, file, [images]).passed


@pytest.mark.slow
def test_an_onnx_file_names_its_free_sizes(frozen, tmp_path):
    file = quaver.export(frozen, tmp_path, target="onnx")

    (taken,) = onnx.load(file).graph.input
    sizes = [size.dim_param or size.dim_value for size in taken.type.tensor_type.shape.dim]
    assert sizes == ["batch", 3, "height", "width"]
    assert quaver.runtime.load(file)(np.zeros((2, 3, 24, 8), np.float32)).shape == (2, 4, 12, 4)


@pytest.mark.slow
def test_a_file_of_one_size_has_that_of_capture(frozen, tmp_path):
    pytest.importorskip("ai_edge_litert")

    run = quaver.runtime.load(quaver.export(frozen, tmp_path, target="litert"))

    assert run.inputs[0].shape == (None, 3, 16, 16)
