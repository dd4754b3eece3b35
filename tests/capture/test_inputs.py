"""What a program takes and gives: any batch, nested structures, keywords and constants, as the model had them."""

import copy
import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import InputError


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Nested(nn.Module):
    """Takes and gives tensors inside dicts, lists and tuples."""

    def forward(self, batch, *, scale, flip=False):
        image, (left, right) = batch["image"], batch["sides"]
        joined = torch.cat([left, image, right], dim=1) * scale
        return {"joined": joined.flip(1) if flip else joined, "parts": [left - right, (image.mean(1), None)], "count": 3}


def nested_batch(size: int) -> dict:
    return {
        "image": torch.randn(size, 3, 8, 8),
        "sides": (torch.randn(size, 2, 8, 8), torch.randn(size, 2, 8, 8)),
    }


@pytest.mark.parametrize("example", [1, 2, 5])
def test_any_batch_size_runs_whatever_the_example_had(net, example):
    program = quaver.capture(copy.deepcopy(net), (torch.zeros(example, 3, 8, 8),))

    for training, size in itertools.product([True, False], [1, 2, 3, 7]):
        x = torch.randn(size, 3, 8, 8)
        torch.manual_seed(0)
        expected = net.train(training)(x)
        torch.manual_seed(0)
        assert torch.equal(program.train(training)(x), expected)


@pytest.mark.parametrize("prepare", [False, True])
def test_an_example_of_one_is_enough_where_training_needs_several(prepare):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    example = (torch.zeros(1, 3, 8, 8),)

    program = quaver.quant_aware(model, example_inputs=example) if prepare else quaver.capture(model, example)

    assert program.train()(torch.randn(3, 3, 8, 8)).shape == (3, 4, 1, 1)


def test_an_example_may_be_a_tensor_without_a_tuple(net, images):
    program = quaver.capture(net, images)

    assert torch.equal(program.eval()(images), net.eval()(images))


class FixedBatch(nn.Module):
    """Runs with four images only, or with an even number, in one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, x):
        return self.way(x)


def by_a_view(x):
    return x.view(4, 192).sum(1)


def by_a_constant(x):
    return x + torch.arange(4.0).view(4, 1, 1, 1)


def by_a_check(x):
    if x.shape[0] != 4:
        raise ValueError("takes four images")
    return x * 2


def by_unpacking(x):
    one, two, three, four = x
    return one + two + three + four


def by_pairs(x):
    return x.reshape(-1, 2, 192).sum(1)


WAYS = [by_a_view, by_a_constant, by_a_check, by_unpacking, by_pairs]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_model_that_insists_on_one_batch_size_is_captured_with_that_one(images, way):
    program = quaver.capture(FixedBatch(way), (images,))

    assert not program.signature.dynamic_batch
    assert torch.equal(program(images), way(images))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_fixed_batch_size_refuses_others(images, way):
    program = quaver.capture(FixedBatch(way), (images,))

    with pytest.raises(InputError, match=r"input 'x': shape \(2, 3, 8, 8\) does not fit the captured \(4, 3, 8, 8\)"):
        program(images[:2])


def test_a_batch_that_is_merged_with_another_dimension_and_split_again_is_free():
    class Frames(nn.Module):
        def forward(self, x):
            return x.flatten(0, 1).relu().unflatten(0, x.shape[:2]).sum(1)

    assert quaver.capture(Frames(), (torch.zeros(2, 4, 3),)).signature.dynamic_batch


def test_a_second_input_without_a_batch_keeps_its_shape():
    class Weighted(nn.Module):
        def forward(self, x, weights):
            return x * weights

    program = quaver.capture(Weighted(), (torch.zeros(4, 3), torch.ones(3)))

    assert [leaf.shape for leaf in program.signature.tensors] == [(None, 3), (3,)]
    assert program(torch.ones(6, 3), torch.full((3,), 2.0)).sum() == 36


def test_nested_inputs_and_outputs_keep_their_structure():
    program = quaver.capture(Nested(), (nested_batch(2),), {"scale": torch.ones(1, 1, 1)})
    batch, scale = nested_batch(5), torch.full((1, 1, 1), 0.5)

    given, expected = program(batch, scale=scale), Nested()(batch, scale=scale)

    assert type(given) is dict
    assert list(given) == ["joined", "parts", "count"]
    assert type(given["parts"]) is list
    assert type(given["parts"][1]) is tuple
    assert given["count"] == 3
    torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_inputs_are_named_by_argument_and_path():
    program = quaver.capture(Nested(), (nested_batch(2),), {"scale": torch.ones(1, 1, 1)})

    assert [leaf.name for leaf in program.signature.tensors] == ["batch.image", "batch.sides.0", "batch.sides.1", "scale"]


def test_a_named_tuple_comes_back_as_one(images):
    class Splitting(nn.Module):
        def forward(self, x):
            return Pair(x[:, :1], x[:, 1:])

    given = quaver.capture(Splitting(), (images,))(images)

    assert isinstance(given, Pair)
    assert torch.equal(given.right, images[:, 1:])


def test_a_model_may_give_back_another_structure_in_training(images, tmp_path):
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.aux = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            x = self.conv(x)
            return {"out": x, "aux": self.aux(x)} if self.training else x

    model = Auxiliary()
    program = quaver.capture(model, (images,))
    restored = quaver.load(quaver.save(program, tmp_path))

    for one in (program, program.clone(), restored, copy.deepcopy(program)):
        assert torch.equal(one.eval()(images), model.eval()(images))
        torch.testing.assert_close(one.train()(images), model.train()(images), rtol=0, atol=0)


def test_keywords_may_come_in_any_order(images):
    class Affine(nn.Module):
        def forward(self, x, *, scale, shift):
            return x * scale + shift

    program = quaver.capture(Affine(), (images,), {"scale": torch.ones(1), "shift": torch.zeros(1)})

    given = program(images, shift=torch.ones(1), scale=torch.full((1,), 2.0))

    assert torch.equal(given, images * 2 + 1)


def test_a_constant_flag_decides_the_graph():
    options = {"scale": torch.ones(1, 1, 1), "flip": True}
    program = quaver.capture(Nested(), (nested_batch(2),), options)
    batch = nested_batch(3)

    assert torch.equal(program(batch, **options)["joined"], Nested()(batch, **options)["joined"])


def test_another_constant_is_refused_with_both_values():
    options = {"scale": torch.ones(1, 1, 1), "flip": True}
    program = quaver.capture(Nested(), (nested_batch(2),), options)

    with pytest.raises(InputError, match=r"captured with the constant True and called with False.*capture the model again"):
        program(nested_batch(2), **(options | {"flip": False}))


class Masked(nn.Module):
    """Takes several inputs that people give by name."""

    def forward(self, x, mask, bias=None):
        return x * mask if bias is None else x * mask + bias


def test_what_was_captured_by_its_position_may_be_given_by_name():
    x, mask, bias = torch.randn(3, 4).unbind()
    program = quaver.capture(Masked(), (x, mask), {"bias": bias})

    expected = Masked()(x, mask, bias)
    assert torch.equal(program(x, mask=mask, bias=bias), expected)
    assert torch.equal(program(bias=bias, mask=mask, x=x), expected)
    with pytest.raises(InputError, match="called with"):
        program(x, bias=bias)
    with pytest.raises(InputError, match="called with"):
        program(x, mask, bias=bias, x=x)


def test_quant_aware_takes_an_example_by_name():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x, scale=None):
            return self.conv(x) if scale is None else self.conv(x) * scale

    x, scale = torch.randn(2, 3, 8, 8), torch.rand(2, 1, 1, 1)

    both = quaver.quant_aware(Layer(), example_inputs=(x,), example_kwargs={"scale": scale})
    named = quaver.quant_aware(Layer(), example_kwargs={"x": x, "scale": scale})

    assert both(x, scale=scale).shape == named(scale=scale, x=x).shape == (2, 4, 6, 6)
    with pytest.raises(InputError, match="needs example_inputs"):
        quaver.quant_aware(Layer())


def test_another_structure_is_refused_with_both_drawn(images):
    program = quaver.capture(Nested(), (nested_batch(2),), {"scale": torch.ones(1, 1, 1)})

    with pytest.raises(InputError, match=r"called with \(·\) but was captured with \(\{'image': .*'sides': .*\}, scale=·"):
        program(images)


def test_one_input_too_many_is_refused(captured, images):
    with pytest.raises(InputError, match=r"called with \(·, ·\) but was captured with \(·\)"):
        captured(images, images)


@pytest.mark.parametrize("shape", [(2, 3, 8, 9), (2, 4, 8, 8), (3, 8, 8), ()])
def test_another_shape_is_refused_by_the_name_of_the_input(captured, shape):
    with pytest.raises(InputError, match=r"input 'x': shape .* does not fit the captured \(any, 3, 8, 8\).*Capture"):
        captured(torch.zeros(shape))


def test_something_that_is_no_tensor_is_refused(captured):
    with pytest.raises(InputError, match="input 'x': expected a tensor, got float"):
        captured(3.0)


@pytest.mark.parametrize("example", [(), (3,), ({"flag": True},)])
def test_an_example_without_a_tensor_is_refused(net, example):
    with pytest.raises(InputError, match=r"example_inputs holds no tensor: give a tuple .*\(x,\)"):
        quaver.capture(net, example)
