"""Whatever a runner is given: OpenVINO and ONNX Runtime give the same, or refuse with the same error."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import quaver
from quaver.errors import InputError, QuaverError

pytestmark = pytest.mark.slow

TARGETS = ["openvino", "onnx"]
ROOM = 1e-4  # float32 sums in another order, over outputs of about 1


class Two(nn.Module):
    """Two inputs, and outputs that have the batch in places of their own, or not at all."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image, scale):
        x = nn.functional.avg_pool2d(self.conv(image).relu(), 2)
        x = x.view(x.shape[0], -1) * scale
        return x, x.transpose(0, 1), (scale[:, 0] > 0).long(), torch.arange(3)


class Mixed(nn.Module):
    """Every output is of all images together."""

    def forward(self, image):
        return image.mean((0, 2, 3))


def runners(net, shapes, folder):
    program = quaver.capture(net, tuple(torch.zeros(shape) for shape in shapes)).eval()
    return program, [quaver.runtime.load(quaver.export(program, folder.mktemp(target), target=target)) for target in TARGETS]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    torch.manual_seed(0)
    return runners(Two(), [(2, 3, 6, 6), (2, 1)], tmp_path_factory)


class Stubborn:
    """An object that does not want to be an array, as a tensor on another device."""

    def __array__(self, *_, **__):
        raise RuntimeError("copy me to the host first")


def swapped(x):
    return x.astype(x.dtype.newbyteorder())


def locked(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x):
    place = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    place[...] = x
    return place


SAME = {  # other ways to say the same
    "as it is": lambda x: x,
    "Fortran's order": np.asfortranarray,
    "backwards in memory": lambda x: x[..., ::-1].copy()[..., ::-1],
    "every second": lambda x: np.repeat(x, 2, 0)[::2],
    "bytes swapped": swapped,
    "read-only": locked,
    "unaligned": unaligned,
    "double": np.float64,
    "lists": np.ndarray.tolist,
    "a tensor": torch.from_numpy,
}
OTHER = {  # the same or an error, but never anything else
    "half": np.float16,
    "whole numbers": lambda x: x.astype(np.int64),
    "bytes": lambda x: x.astype(np.uint8),
    "truths": lambda x: x > 0,
    "none": lambda x: x[:0],
    "objects": lambda x: x.astype(object),
    "words": lambda x: x.astype(str),
    "complex": np.complex64,
    "dates": lambda x: x.astype("datetime64[s]"),
    "records": lambda x: x.view([("value", x.dtype)]),
    "one image": lambda x: x[:1],
    "no axis": lambda _: np.float32(1),
    "an axis too many": lambda x: x[None],
    "an axis too few": lambda x: x[0],
    "cut": lambda x: x[..., :-1],
    "ragged": lambda x: [*x.tolist(), [1]],
    "nothing": lambda _: None,
    "no array": lambda _: Stubborn(),
    "too many": lambda x: np.broadcast_to(x[:1], (1 << 44, *x.shape[1:])),
}


def answer(run, arguments):
    try:
        return run(*arguments)
    except QuaverError as error:
        return type(error)


ways = st.sampled_from(sorted(SAME | OTHER))


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(image=ways, scale=ways, size=st.integers(1, 5))
def test_both_engines_give_the_same_or_refuse_alike(two, image, scale, size):
    generator = np.random.default_rng(size)
    x = generator.uniform(0, 3, (size, 3, 6, 6)).astype(np.float32), generator.uniform(1, 3, (size, 1)).astype(np.float32)
    arguments = [(SAME | OTHER)[way](one) for way, one in zip((image, scale), x, strict=True)]

    first, second = (answer(run, arguments) for run in two[1])

    if isinstance(first, type) or isinstance(second, type):
        assert first is second is InputError
        return
    for one, other in zip(first, second, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=ROOM, atol=ROOM)
    if {image, scale} <= set(SAME):
        for run, given in zip(two[1], (first, second), strict=True):
            for one, plain in zip(given, run(*x), strict=True):
                np.testing.assert_array_equal(one, plain)


@pytest.mark.parametrize("way", ["objects", "ragged", "nothing", "no array", "too many", "cut"])
def test_what_is_wrong_with_an_input_is_said_with_its_name(two, way):
    x = np.ones((2, 3, 6, 6), np.float32)
    for run in two[1]:
        with pytest.raises(InputError, match=f"input '{run.inputs[0].name}': .*\\.$"):
            run(OTHER[way](x), np.ones((2, 1), np.float32))


def test_inputs_with_batches_of_different_sizes_are_refused(two):
    for run in two[1]:
        with pytest.raises(InputError, match="batches of different sizes: 1, 3"):
            run(np.ones((3, 3, 6, 6), np.float32), np.ones((1, 1), np.float32))


def test_no_image_gives_no_result_in_the_program_and_on_every_engine(two):
    program, engines = two
    nothing = np.zeros((0, 3, 6, 6), np.float32), np.zeros((0, 1), np.float32)
    expected = [(0, 16), (16, 0), (0,), (3,)]

    results = [run(*nothing) for run in engines] + [program(*map(torch.from_numpy, nothing))]

    for result in results:
        assert [tuple(output.shape) for output in result] == expected
        assert [str(output.dtype).removeprefix("torch.") for output in result] == ["float32"] * 2 + ["int64"] * 2
        np.testing.assert_array_equal(result[3], [0, 1, 2])


def test_an_output_of_all_images_together_has_no_value_for_none(tmp_path_factory):
    for run in runners(Mixed(), [(2, 3, 4, 4)], tmp_path_factory)[1]:
        with pytest.raises(InputError, match="the batch is empty, and an output of the model mixes the images"):
            run(np.zeros((0, 3, 4, 4), np.float32))


class Fixed(nn.Module):
    """Takes batches of two, and says so."""

    def forward(self, image):
        return image.reshape(2, 12)


def test_a_program_of_one_batch_size_refuses_none(tmp_path_factory):
    program, engines = runners(Fixed(), [(2, 3, 2, 2)], tmp_path_factory)

    for run in engines:
        with pytest.raises(InputError, match=r"shape \(0, 3, 2, 2\) does not fit"):
            run(np.zeros((0, 3, 2, 2), np.float32))
    with pytest.raises(InputError, match=r"shape \(0, 3, 2, 2\) does not fit"):
        program(torch.zeros(0, 3, 2, 2))


def test_inputs_are_given_by_position_by_name_or_as_a_dict(two):
    _, runs = two
    image, scale = np.ones((2, 3, 6, 6), np.float32), np.full((2, 1), 2.0, np.float32)

    for run in runs:
        expected = run(image, scale)
        for outputs in (run(scale=scale, image=image), run({"scale": scale, "image": image}), run(image, scale=scale)):
            assert all(np.array_equal(got, want) for got, want in zip(outputs, expected, strict=True))


@pytest.mark.parametrize(
    ("by_name", "message"),
    [
        ({"image": 0, "scala": 0}, r"'scala'\. Did you mean 'scale'"),
        ({"image": 0}, "takes 2 inputs .* was given 1"),
    ],
)
def test_names_that_do_not_fit_are_refused_with_those_that_do(two, by_name, message):
    with pytest.raises(InputError, match=message):
        two[1][0](by_name)


def test_an_input_is_not_given_twice(two):
    with pytest.raises(InputError, match="'image' twice"):
        two[1][0](np.ones((2, 3, 6, 6), np.float32), image=np.ones((2, 3, 6, 6), np.float32))


def test_outputs_come_by_the_keys_that_the_model_gives_them(tmp_path_factory):
    class Keys(nn.Module):
        def forward(self, image):
            return {"logits": image.mean((2, 3)), "map": image * 2}

    _, runs = runners(Keys(), [(2, 3, 4, 4)], tmp_path_factory)
    image = np.ones((2, 3, 4, 4), np.float32)

    for run in runs:
        outputs = run.named(image)
        assert list(outputs) == list(run.outputs) == ["logits", "map"]
        assert np.array_equal(outputs["map"], run(image)[1])


def test_outputs_of_a_file_that_does_not_name_them_are_numbered(two):
    _, (run, _) = two
    names, run.outputs = run.outputs, ()
    try:
        assert list(run.named(np.ones((1, 3, 6, 6), np.float32), np.ones((1, 1), np.float32))) == ["0", "1", "2", "3"]
    finally:
        run.outputs = names
