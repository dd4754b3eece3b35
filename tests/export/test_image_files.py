"""Files that take a camera's bytes give what the program gives for what the bytes stand for."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from needs import need_executorch, need_litert
from quaver.engines import ENGINES
from quaver.errors import ConfigError, EngineError, InputError
from quaver.export import form_for

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
pytestmark = pytest.mark.slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 8, 10, 3)).astype(np.uint8)
TARGETS = ["openvino", "onnx"]
NEEDS = {"executorch": need_executorch, "litert": need_litert}


class Twice(nn.Module):
    """Two convolutions read the image, one of them depthwise."""

    def __init__(self):
        super().__init__()
        self.whole, self.apart, self.head = nn.Conv2d(3, 6, 3), nn.Conv2d(3, 6, 3, groups=3), nn.Linear(6 * 48, 4)

    def forward(self, x):
        return self.head((torch.relu(self.whole(x)) + torch.relu(self.apart(x))).flatten(1))


def plain():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 48, 4))


def frozen(net, image, target, images=IMAGES, batch=2):
    torch.manual_seed(0)
    qat = quaver.quant_aware(net, {"target": target}, example_inputs=(torch.zeros(batch, 3, 8, 10),)).train()
    qat(torch.from_numpy(image.prepared(images)))
    return quaver.convert(qat)


def as_given(image):
    images = IMAGES if image.color == "RGB" else IMAGES[..., ::-1]
    return np.ascontiguousarray(images if image.layout == "NHWC" else images.transpose(0, 3, 1, 2))


def compared(program, image, target, folder):
    """Export, verify, and the largest difference of the file's outputs from the program's, in its engine's form."""
    file = quaver.export(program, folder, target=target, image=image)
    result = quaver.verify(program, file, [as_given(image)])
    assert result.passed, result.failures
    assert result.integers_equal == 1
    run = quaver.runtime.load(file)
    assert run.image == image
    expected = form_for(program, ENGINES[target])(torch.from_numpy(image.prepared(as_given(image)))).detach().numpy()
    return np.abs(run(as_given(image)) - expected).max()


@pytest.mark.parametrize(
    ("net", "target", "layout", "color"),
    [
        (plain, "openvino", "NHWC", "RGB"),
        (plain, "openvino", "NCHW", "BGR"),
        (plain, "onnx", "NHWC", "BGR"),
        (Twice, "openvino", "NHWC", "BGR"),
        (Twice, "onnx", "NHWC", "BGR"),
        (plain, "litert", "NCHW", "BGR"),
        (plain, "executorch", "NHWC", "BGR"),
    ],
)
def test_a_file_computes_from_bytes_what_the_program_computes(net, target, layout, color, tmp_path):
    NEEDS.get(target, lambda: None)()
    image = quaver.ImageInput(MEAN, STD, layout=layout, color=color)
    program = frozen(net(), quaver.ImageInput(MEAN, STD), target)

    assert compared(program, image, target, tmp_path) < (1e-30 if target == "openvino" and net is plain else 1e-5)


@pytest.mark.parametrize(
    ("target", "layout", "color"), [("openvino", "NHWC", "BGR"), ("openvino", "NCHW", "RGB"), ("onnx", "NHWC", "RGB")]
)
def test_a_file_scales_images_as_numpy_does(target, layout, color, tmp_path):
    image = quaver.ImageInput(MEAN, STD, layout=layout, color=color, size=(11, 7))
    program = frozen(plain(), quaver.ImageInput(MEAN, STD), target)
    images = np.random.default_rng(0).integers(0, 256, image.shape((3, 3, 8, 10))).astype(np.uint8)

    file = quaver.export(program, tmp_path, target=target, image=image)

    result = quaver.verify(program, file, [images])
    assert (result.passed, result.integers_equal) == (True, 1), result.failures
    expected = form_for(program, ENGINES[target])(torch.from_numpy(image.prepared(images, (8, 10)))).detach().numpy()
    assert np.abs(quaver.runtime.load(file)(images) - expected).max() <= 1e-6  # sums of floats in the last layer


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_on_ties_are_looked_up_in_a_table(target, tmp_path):
    image = quaver.ImageInput((0,) * 3, (1,) * 3, unit=1)
    program = frozen(plain(), image, target, np.minimum(IMAGES, 254))  # the input reaches 254 = 127 steps of 2

    compared(program, image, target, tmp_path)


def test_a_file_without_tables_refuses_bytes_on_ties(tmp_path):
    need_litert()
    image = quaver.ImageInput((0,) * 3, (1,) * 3, unit=1)
    program = frozen(plain(), image, "litert", np.minimum(IMAGES, 254))

    with pytest.raises(EngineError, match=r"LiteRT: image=.*needs a table.*Export without image="):
        quaver.export(program, tmp_path, target="litert", image=image)


def test_an_input_that_is_not_rounded_first_is_given_exact_floats(tmp_path):
    image = quaver.ImageInput(MEAN, STD)
    program = frozen(nn.Sequential(nn.LeakyReLU(0.1), *plain()), image, "openvino")

    compared(program, image, "openvino", tmp_path)


def test_a_float_program_takes_bytes_too(tmp_path):
    image = quaver.ImageInput(MEAN, STD, color="BGR")
    program = quaver.capture(plain().eval(), (torch.zeros(2, 3, 8, 10),)).eval()
    expected = program(torch.from_numpy(image.prepared(IMAGES))).detach().numpy()

    run = quaver.runtime.load(quaver.export(program, tmp_path, target="onnx", image=image))

    assert np.allclose(run(IMAGES), expected, atol=1e-5)


def test_fewer_bits_and_a_fixed_batch(tmp_path):
    image = quaver.ImageInput(MEAN, STD)
    torch.manual_seed(0)
    qat = quaver.quant_aware(
        plain(), {"activation_bits": 4, "weight_bits": 4}, example_inputs=(torch.zeros(1, 3, 8, 10),)
    ).train()
    qat(torch.from_numpy(image.prepared(IMAGES)))
    program = quaver.convert(qat)

    file = quaver.export(program, tmp_path, image=image)

    assert quaver.verify(program, file, [IMAGES]).passed


def test_what_the_file_takes_is_said_when_it_is_given_something_else(tmp_path):
    image = quaver.ImageInput(MEAN, STD, color="BGR")
    program = frozen(plain(), image, "openvino")
    run = quaver.runtime.load(quaver.export(program, tmp_path, image=image))

    for wrong in (image.prepared(IMAGES), IMAGES.astype(np.uint16), IMAGES.transpose(0, 3, 1, 2)):
        with pytest.raises(InputError, match=r"'input'.*The file takes uint8 images .*BGR, NHWC"):
            run(wrong)
    with pytest.raises(InputError, match="takes uint8 images"):
        quaver.verify(program, tmp_path, [image.prepared(IMAGES)])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "litert"}, EngineError, "litert.*take float tensors.*openvino, onnx"),
        (
            {"image": quaver.ImageInput(MEAN, STD, size=(16, 20)), "target": "executorch"},
            EngineError,
            r"size=\(16, 20\)\).*ExecuTorch do not scale images.*openvino, onnx",
        ),
        ({"image": (MEAN, STD)}, ConfigError, "takes a quaver.ImageInput"),
        ({"image": quaver.ImageInput((0.5,), (0.5,))}, ConfigError, r"1 channels.*'input' \(None, 3, 8, 10\)"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(options, error, message, tmp_path, monkeypatch):
    monkeypatch.setattr(type(ENGINES["litert"]), "takes_bytes", False)
    program = frozen(plain(), quaver.ImageInput(MEAN, STD), "openvino")

    with pytest.raises(error, match=message):
        quaver.export(program, tmp_path, **{"image": quaver.ImageInput(MEAN, STD)} | options)
    assert not list(tmp_path.iterdir())
