"""Custom functions in programs: their parameters, their optimizer, and what is said when they misbehave."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.config.recipe import QuantPhase
from quaver.errors import ConfigError, ConversionError
from quaver.program import EVAL
from quaver.program.views import Executable
from quaver.training.state import optimizers_for

pytestmark = pytest.mark.slow


class Scale(nn.Module):
    """Something to learn that changes every value."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return x * self.factor


class Grid(nn.Module):
    """A quantizer of the user's own, with a step that is learned, and no end."""

    def __init__(self):
        super().__init__()
        self.step = nn.Parameter(torch.tensor(0.125))

    def forward(self, x):
        steps = x / self.step
        return (steps + (steps.round() - steps).detach()) * self.step


ROLES = {
    "weight_preprocess_func": "preprocess.factor",
    "act_preprocess_func": "preprocess.factor",
    "weight_quantize_func": "function.factor",
    "act_quantize_func": "function.factor",
}


def step(program, images, *optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    F.cross_entropy(program(images), torch.arange(len(images))).backward()
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.parametrize("role", ROLES)
def test_parameters_are_made_for_every_tensor_and_named_after_it(role, patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), **{role: Scale})

    own = [name for name, _ in qat.named_parameters() if name.startswith("quantizers.")]
    tensors = [name for name, quantizer in qat.quantizers() if quantizer.kind != "observer"]
    of_weights = role.startswith("weight")
    wanted = [name for name in tensors if (name in qat.placements.weights) == of_weights]
    assert sorted(own) == sorted(f"quantizers.{name}.{ROLES[role]}" for name in wanted)
    assert len(list(qat.quantizer_parameters())) == len(wanted) >= 5


@pytest.mark.parametrize("role", ROLES)
def test_they_are_saved_and_resumed(role, patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **{role: Scale}))
    torch.manual_seed(9)
    other = type(patterns)()
    again = quaver.quant_aware(other, example_inputs=(images,), **{role: Scale})

    again.load_state_dict(copy.deepcopy(qat.state_dict()))

    assert torch.equal(again.eval()(images), qat(images))
    torch.manual_seed(0)
    expected = train(qat)(images)
    torch.manual_seed(0)
    assert torch.equal(train(again)(images), expected)


def test_without_an_optimizer_of_their_own_they_are_a_group(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=Scale)

    model, own = qat.parameter_groups(lr=0.5)

    assert own["params"] == list(qat.quantizer_parameters())
    assert own["lr"] == 0.5
    assert [id(one) for one in model["params"]] == [id(one) for one in patterns.parameters()]
    assert qat.quantizer_optimizer is None


def test_an_optimizer_of_their_own_is_stepped_beside_the_loops(patterns, images):
    qat = quaver.quant_aware(
        patterns,
        example_inputs=(images,),
        act_preprocess_func=Scale,
        optimizer_func=lambda params: torch.optim.Adam(params, lr=0.25),
    ).train()
    optimizer = torch.optim.SGD(qat.parameter_groups(), lr=0.0)

    step(qat, images, optimizer, qat.quantizer_optimizer)

    assert isinstance(qat.quantizer_optimizer, torch.optim.Adam)
    assert qat.quantizer_optimizer is qat.quantizer_optimizer
    for parameter in qat.quantizer_parameters():  # the first step of Adam is one of the learning rate
        assert abs(parameter.item() - 1.5) == pytest.approx(0.25, abs=1e-3)


def test_the_trainer_has_it_beside_its_own(patterns, images):
    qat = quaver.quant_aware(
        patterns,
        example_inputs=(images,),
        act_preprocess_func=Scale,
        optimizer_func=lambda params: torch.optim.Adam(params, lr=0.01),
    )

    own, theirs = optimizers_for(qat, QuantPhase())

    assert theirs is qat.quantizer_optimizer
    assert sum(len(group["params"]) for group in own.param_groups) == len(list(patterns.parameters()))


def test_an_optimizer_for_no_parameters_is_none(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), optimizer_func=torch.optim.Adam)

    assert qat.quantizer_optimizer is None
    assert len(qat.parameter_groups()) == 1


@pytest.mark.parametrize("role", ["act_preprocess_func", "act_quantize_func"])
def test_all_readers_of_a_shared_tensor_see_the_custom_result(role, images):
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Conv2d(3, 4, 1, bias=False), nn.Conv2d(3, 4, 1, bias=False)

        def forward(self, x):
            return self.left(x), self.right(x)

    calls = []

    def nothing(x):
        calls.append(x)
        return torch.zeros_like(x)

    qat = quaver.quant_aware(Fork(), {"quantize_op_types": ["conv2d"]}, example_inputs=(images,), **{role: nothing}).train()

    left, right = qat(images)

    assert len(calls) == 1
    assert not left.any()
    assert not right.any()


WRONG = {  # the function, and what is said of it
    "shape": (
        lambda x: x[:1],
        r"'stem.weight': its {} made a tensor of shape \(1, 3, 3, 3\) of one of shape \(16, 3, 3, 3\)",
    ),
    "dtype": (lambda x: x.double(), r"'stem.weight': its {} made torch.float64 of torch.float32"),
    "nan": (lambda x: (x - 1e3).log(), r"'stem.weight': its {} made NaN or Inf of a tensor without"),
    "writing": (lambda x: x.detach().mul_(2), r"'stem.weight': its {} writes into the tensor that it is given"),
    "two arguments": (lambda x, y: x, r"'stem.weight': its {} failed: TypeError: .*It is called with one tensor"),
    "raising": (lambda x: 1 / 0, r"'stem.weight': its {} failed: ZeroDivisionError: division by zero"),
    "nothing": (lambda x: None, r"'stem.weight': its {} gave back NoneType, not a tensor"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(
    ("role", "text"), [("weight_preprocess_func", "preprocess function"), ("weight_quantize_func", "quantize function")]
)
def test_a_function_that_misbehaves_is_named_at_first_use(wrong, mode, role, text, patterns, images):
    function, message = WRONG[wrong]
    qat = quaver.quant_aware(patterns, example_inputs=(images,), **{role: function})
    torch.nn.Module.train(qat, mode == "train")  # its own would say that no data was seen

    with pytest.raises(ConfigError, match=message.format(text)):
        qat(images)


def test_values_are_looked_at_once(patterns, images, monkeypatch):
    looks = []
    monkeypatch.setattr("quaver.quantizers.quantizer.checked", lambda *_, values: looks.append(values))
    qat = quaver.quant_aware(
        patterns, {"quantize_op_types": ["mul"]}, example_inputs=(images,), act_preprocess_func=lambda x: x
    ).train()

    qat(images)
    qat(images)

    assert looks == [True, False]


def test_a_batch_with_nan_is_not_the_functions_fault(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=Scale).train()
    images[0, 0, 0, 0] = torch.nan

    assert qat(images).isnan().any()


@pytest.mark.parametrize(
    ("role", "function", "message"),
    [
        (
            "weight_quantize_func",
            torch.tanh,
            "'stem.weight': its custom quantize function is on no integer grid: its values",
        ),
        ("act_quantize_func", Grid, "'x': its custom quantize function is on no integer grid: .* clip it"),
    ],
)
def test_a_quantizer_off_the_grid_is_refused_at_convert_by_its_tensors_name(
    role, function, message, patterns, images, train
):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), **{role: function}))

    with pytest.raises(ConversionError, match=message):
        quaver.convert(qat)


def test_a_second_pass_keeps_the_function_and_what_it_has_learned(patterns, images):
    from quaver.passes import AddQuantDequantPass, QuantizationTransformPass

    first = QuantizationTransformPass(act_preprocess_func=Scale, weight_preprocess_func=Scale).apply(
        quaver.capture(patterns, (images,))
    )
    with torch.no_grad():
        for parameter in first.quantizer_parameters():
            parameter.fill_(0.75)

    second = AddQuantDequantPass(act_preprocess_func=Scale).apply(first)

    assert second.quantizer("stem.weight") is first.quantizer("stem.weight")
    assert second.quantizer("x").preprocess.factor == 0.75


def pact(x):
    """Not a module, no parameter: what many write first."""
    return x - F.relu(x - 1.5) + F.relu(-1.5 - x)


class OwnPact(nn.Module):
    """The reference's example, as its users have it in their scripts."""

    def __init__(self, start=1.5):
        super().__init__()
        self.u = nn.Parameter(torch.tensor(start))

    def forward(self, x):
        return x - F.relu(x - self.u) + F.relu(-self.u - x)


class TwoEnds(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Parameter(torch.tensor(-0.7)), nn.Parameter(torch.tensor(1.1))

    def forward(self, x):
        return torch.where(x < self.low, self.low, torch.minimum(x, self.high))


CLIPS = {
    "the reference's": OwnPact,
    "beyond all values": functools.partial(OwnPact, 100.0),
    "a function": pact,
    "two ends": TwoEnds,
    "none": lambda x: x,
}
NO_CLIPS = {"scaled": Scale, "soft": torch.tanh, "hard swish": F.hardswish, "relu": F.relu, "shifted": lambda x: x + 0.1}


def converted(path, function, patterns, images, train):
    """A trained program or live model with the function in front of its activations, and what it is converted to."""
    quanter = quaver.QAT(act_preprocess_func=function)
    if path == "live":
        net = train(quanter.quantize(patterns))
        return net, quanter.convert(net, quaver.InputSpec([None, 3, 16, 16]))
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=function))
    return qat, quaver.convert(qat)


@pytest.mark.parametrize("path", ["program", "live"])
@pytest.mark.parametrize("which", [*CLIPS, *NO_CLIPS])
def test_what_is_trained_behind_any_preprocess_function_converts_bit_for_bit(which, path, patterns, images, train):
    trained, frozen = converted(path, (CLIPS | NO_CLIPS)[which], patterns, images, train)

    for batch in (images, 5 * images):
        assert torch.equal(frozen(batch), trained(batch))
    assert frozen(images).std() > 0


@pytest.mark.parametrize("which", [*CLIPS, *NO_CLIPS])
def test_evaluation_computes_what_the_function_computes(which, patterns, images, train):
    qat = train(quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=(CLIPS | NO_CLIPS)[which]))

    literal = Executable(qat, qat.graphs[EVAL])(images)[0]  # calls the functions as they are, and multiplies in float
    # now and then an activation beside a tie is rounded the other way: a step in one of many inputs
    assert (literal - qat(images)).abs().max() < 0.05 * literal.abs().max()


def test_a_clip_leaves_nothing_to_deploy(patterns, images, train):
    plain = quaver.convert(train(quaver.quant_aware(copy.deepcopy(patterns), example_inputs=(images,))))
    qat, frozen = converted("program", OwnPact, patterns, images, train)

    assert [op.name for op in frozen.ops()] == [op.name for op in plain.ops()]
    assert [name for name, _ in frozen.named_parameters()] == [name for name, _ in plain.named_parameters()]
    (stem,) = [op for op in frozen.ops() if op.name == "stem"]
    assert stem.thresholds["input"] == [pytest.approx(qat.quantizer("x").preprocess.u.item(), rel=0.02)]


def test_another_function_stays_in_front_of_the_rounding_and_says_what_it_costs(patterns, images, train, tmp_path):
    _, frozen = converted("program", Scale, patterns, images, train)
    int8 = quaver.passes.ConvertToInt8Pass().apply(frozen)
    quaver.save(int8, tmp_path)

    for program in (frozen, int8, quaver.load(tmp_path)):
        (op,) = [op for op in program.ops() if op.name.startswith("x.preprocess.")]
        assert not op.quantized
        assert "the preprocess function in front of 'x', which is no clip" in op.reason
        assert torch.equal(program(images), frozen(images))


def test_the_engine_computes_what_is_trained_behind_functions(patterns, images, train, tmp_path):
    pytest.importorskip("openvino")
    for function in (OwnPact, Scale):
        qat, frozen = converted("program", function, copy.deepcopy(patterns), images, train)
        artefact = quaver.export(frozen, tmp_path / function.__name__, target="openvino")

        assert quaver.verify(qat, artefact, [images]).first_layer is None


def by_image(x):
    return x / (1 + x.flatten(1).shape[1])


def test_a_preprocess_function_that_no_graph_can_hold_is_refused_with_a_way_out(patterns, images):
    qat = quaver.quant_aware(patterns, example_inputs=(images,), act_preprocess_func=by_image).train()
    qat(images)
    plain = quaver.quant_aware(copy.deepcopy(patterns), example_inputs=(images,)).train()

    with pytest.raises(ConversionError, match=r"size\. .* into a program without it, with load_state_dict\(state, strict=F"):
        quaver.convert(qat.eval())
    left_out = plain.load_state_dict(qat.state_dict(), strict=False)
    plain(images)

    assert not left_out.missing_keys
    assert torch.equal(quaver.convert(plain.eval())(images), plain(images))
