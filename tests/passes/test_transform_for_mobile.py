import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StageError
from quaver.passes import QuantizationTransformPass, TransformForMobilePass

pytestmark = pytest.mark.slow


def nodes(program, word):
    return [node for node in program.graphs["eval"].nodes if f"decomposed.{word}" in str(node.target)]


def test_every_quantize_and_dequantize_is_signed(trained):
    frozen = quaver.convert(trained)
    assert any(node.args[-1] is torch.uint8 for node in nodes(frozen, "quantize"))

    mobile = TransformForMobilePass().apply(frozen)

    pairs = nodes(mobile, "quantize") + nodes(mobile, "dequantize")
    assert {node.args[-1] for node in pairs} == {torch.int8}


def test_every_quantized_op_has_its_output_rounded(trained):
    mobile = TransformForMobilePass().apply(quaver.convert(trained))

    for name in ("aten.conv2d.default", "aten.linear.default"):
        for node in mobile.graphs["eval"].nodes:
            if str(node.target) == name:
                (reader,) = node.users
                if "relu" in str(reader.target):
                    (reader,) = reader.users
                assert "quantize_per_tensor" in str(reader.target)


def test_the_same_grid_gives_the_same_values(trained, images):
    mobile = TransformForMobilePass().apply(quaver.convert(trained))
    literal = mobile.graph_module()(images)[0]

    assert torch.equal(mobile(images), literal)


def test_mobile_differs_from_frozen_by_the_rounding_of_outputs_only(trained, images):
    frozen = quaver.convert(trained)

    mobile = TransformForMobilePass().apply(frozen)

    (head,) = [op for op in mobile.ops() if op.name == "fc"]
    step = head.thresholds["output"][0] / 127
    integers = mobile(images) / step
    assert torch.allclose(integers, integers.round(), atol=1e-3)  # the logits lie on the grid of the output
    # the residual add and the hard swish round an input more; each moves a logit by a few steps at most
    assert (mobile(images) - frozen(images)).abs().max() < 8 * step


def test_int8_and_frozen_programs_give_the_same_mobile_program(trained, images):
    frozen, int8 = quaver.convert(trained, save_int8=True)

    from_frozen, from_int8 = TransformForMobilePass().apply(frozen), TransformForMobilePass().apply(int8)

    assert torch.equal(from_frozen(images), from_int8(images))
    assert from_frozen.state_dict()["stem.weight"].dtype == torch.int8


def test_an_op_whose_output_was_never_observed_is_refused_by_name(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    prepared = QuantizationTransformPass().apply(quaver.capture(model, (images,)))
    prepared.train()(images)
    prepared.quantizer("0.output").state.zero_()
    frozen = quaver.convert(prepared)

    with pytest.raises(StageError, match="'0': the range of its output was not observed"):
        TransformForMobilePass().apply(frozen)


def test_activations_that_were_not_quantized_stay_float(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    frozen = quaver.convert(quaver.quant_aware(model, {"quant_weight_only": True}, example_inputs=(images,)))

    mobile = TransformForMobilePass().apply(frozen)

    assert nodes(mobile, "quantize") == []
    torch.testing.assert_close(mobile(images), frozen(images))  # in float, in another order


def test_a_program_without_quantized_ops_keeps_its_graph(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    frozen = quaver.convert(QuantizationTransformPass(skip_pattern="0").apply(quaver.capture(model, (images,))))

    mobile = TransformForMobilePass().apply(frozen)

    assert [str(node) for node in mobile.graphs["eval"].nodes] == [str(node) for node in frozen.graphs["eval"].nodes]


def test_a_program_that_is_not_frozen_is_refused(trained):
    with pytest.raises(StageError, match="the program is prepared, and the pass needs frozen or int8"):
        TransformForMobilePass().apply(trained)
