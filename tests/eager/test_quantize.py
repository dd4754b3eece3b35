"""`quaver.QAT` on live models: what is quantized, what is left alone, and the way back."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.errors import ConfigError, InputError, QuaverWarning
from quaver.quantizers import PACT, Quantizer


class Net(nn.Module):
    """One of each."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.line = nn.Conv1d(4, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        x = F.hardswish(self.up(self.depthwise(x)))
        return self.head(self.line(x.flatten(2)).mean(2))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def quantized(net):
    return [name for name, module in net.named_modules() if hasattr(module, "weight_quantizer")]


def test_every_layer_type_is_quantized(net):
    quaver.QAT().quantize(net)

    assert quantized(net) == ["conv", "depthwise", "up", "line", "head"]
    axes = {name: net.get_submodule(name).weight_quantizer.axis for name in quantized(net)}
    assert axes == {"conv": 0, "depthwise": 0, "up": 1, "line": 0, "head": 0}
    assert net.conv.weight_quantizer.saturation_axis == 1
    assert net.depthwise.weight_quantizer.saturation_axis is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Conv2D", "Linear"], ["conv", "depthwise", "head"]),
        (["Conv2d"], ["conv", "depthwise"]),
        (["Conv2DTranspose", "Conv1D"], ["up", "line"]),
        (["ConvTranspose2d", "Conv1d"], ["up", "line"]),
        ([], []),
    ],
)
def test_layer_types_go_by_pytorchs_names_and_the_references(net, names, expected):
    quanter = quaver.QAT({"quantizable_layer_type": names})

    if expected:
        quanter.quantize(net)
    else:
        with pytest.warns(QuaverWarning, match="found no layer to quantize"):
            quanter.quantize(net)

    assert quantized(net) == expected
    assert all("is not among the layer types" in why for why in quanter.why_float(net).values())


def test_layers_stay_the_objects_they_are(net):
    modules, parameters = list(net.modules()), dict(net.named_parameters())

    quaver.QAT().quantize(net)

    assert all(any(module is other for other in net.modules()) for module in modules)
    assert all(net.get_parameter(name) is parameter for name, parameter in parameters.items())
    assert isinstance(net.conv, nn.Conv2d)
    assert repr(net.conv).startswith("QuantizedConv2d(\n  3, 8, kernel_size=(3, 3)")


def test_a_layer_with_skip_quant_or_inside_a_module_with_it_stays_float(net):
    net.conv.skip_quant = True
    outer = nn.Sequential(net, nn.Sequential(nn.Linear(5, 5)))
    outer[1].skip_quant = True
    quanter = quaver.QAT()

    quanter.quantize(outer)

    assert quantized(outer) == ["0.depthwise", "0.up", "0.line", "0.head"]
    assert quanter.why_float(outer) == {
        "0.conv": "'0.conv' has skip_quant = True",
        "1.0": "'1' has skip_quant = True",
    }


def test_patterns_are_looked_for_in_names(net):
    quanter = quaver.QAT({"not_quant_pattern": ["hea", "up"]})

    quanter.quantize(net)

    assert quantized(net) == ["conv", "depthwise", "line"]
    assert quanter.why_float(net)["head"] == "its name contains the pattern 'hea'"


def test_a_layer_under_two_names_is_quantized_under_both_and_skipped_under_either():
    shared = nn.Linear(4, 4)
    net = nn.ModuleDict({"first": shared, "second": shared, "other": nn.Linear(4, 4)})

    quaver.QAT({"not_quant_pattern": "second"}).quantize(net)
    assert quantized(net) == ["other"]
    quaver.QAT().quantize(net)

    assert net["first"] is net["second"]
    assert net["second"].weight_quantizer is net["first"].weight_quantizer


@pytest.mark.parametrize("training", [True, False])
def test_training_and_evaluation_mode_stay_as_they_were(net, training):
    net.train(training)
    net.bn.eval()

    quaver.QAT().quantize(net)

    modes = {name: module.training for name, module in net.named_modules()}
    assert modes.pop("bn") is False
    assert set(modes.values()) == {training}


def test_a_copy_can_be_quantized_instead(net):
    other = quaver.QAT().quantize(net, inplace=False)

    assert quantized(net) == []
    assert len(quantized(other)) == 5
    assert type(net.conv) is nn.Conv2d


def test_remove_gives_the_float_model_back_with_the_weights_as_they_are(net, images):
    quanter = quaver.QAT()
    before = {name: type(module) for name, module in net.named_modules()}
    quanter.quantize(net)
    net(images).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    plain = Net()
    plain.load_state_dict({key: value for key, value in net.state_dict().items() if "quantizer" not in key})

    quanter.remove(net)

    assert {name: type(module) for name, module in net.named_modules()} == before
    assert set(vars(net.conv)) == set(vars(plain.conv))
    assert torch.equal(net.eval()(images), plain.eval()(images))
    assert net.state_dict().keys() == plain.state_dict().keys()


def test_removed_before_the_first_forward_nothing_is_left(net, images):
    quanter = quaver.QAT()
    expected = copy.deepcopy(net).eval()(images)

    quanter.remove(quanter.quantize(net))

    assert torch.equal(net.eval()(images), expected)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_quantizing_twice_changes_nothing(net, images):
    quanter = quaver.QAT()
    quanter.quantize(net)
    net(images)
    first = net.conv.input_quantizer

    quanter.quantize(net)

    assert net.conv.input_quantizer is first
    assert len(quantized(net)) == 5


def test_a_subclass_is_quantized_unless_it_has_a_forward_of_its_own():
    class Named(nn.Conv2d):
        pass

    class Standardized(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(x, self.weight - self.weight.mean(), self.bias)

    net = nn.Sequential(Named(3, 4, 1), Standardized(4, 4, 1))
    quanter = quaver.QAT()

    with pytest.warns(QuaverWarning, match="'1' stays float: Standardized has a forward of its own"):
        quanter.quantize(net)

    assert quantized(net) == ["0"]
    assert isinstance(net[0], Named)
    assert quanter.why_float(net) == {"1": "its class has a forward of its own"}


def test_hooks_of_the_user_go_on_being_called(net, images):
    seen = []
    net.conv.register_forward_hook(lambda module, args, output: seen.append(output.shape))

    quaver.QAT().quantize(net)
    net(images)
    net.eval()(images)

    assert seen == [(4, 8, 16, 16)] * 2


def test_batch_norms_of_a_live_model_freeze_and_are_measured_anew_as_ever(net, images):
    live = quaver.QAT().quantize(net).train()
    live(images)
    live.bn.eval()
    before = live.bn.running_mean.clone()
    live(images).sum().backward()
    assert torch.equal(live.bn.running_mean, before)
    assert live.bn.weight.grad.abs().sum() > 0

    torch.optim.swa_utils.update_bn([images, images], live)

    assert not torch.equal(live.bn.running_mean, before)
    assert int(live.bn.num_batches_tracked) == 2


def test_our_own_hooks_are_gone_after_the_first_forward(net, images):
    quaver.QAT().quantize(net)

    net(images)

    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_quantized_model_is_copied_and_pickled(net, images):
    quaver.QAT().quantize(net)
    copied = copy.deepcopy(net)  # before the first forward
    net(images)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)

    loaded = torch.load(file, weights_only=False)
    copied(images)

    assert torch.equal(loaded.eval()(images), net.eval()(images))
    assert torch.equal(copied.eval()(images), net(images))
    assert copied.conv.weight is not net.conv.weight
    copied.conv.input_quantizer.accum.fill_(0)
    assert net.conv.input_quantizer.accum > 0


def test_state_is_saved_and_resumed(net, images):
    quaver.QAT().quantize(net)
    net(images)
    torch.manual_seed(1)
    other = quaver.QAT().quantize(Net())

    other.load_state_dict(net.state_dict())

    assert torch.equal(other.eval()(images), net.eval()(images))


def test_evaluating_before_training_passes_values_unrounded(net, images):
    expected = copy.deepcopy(net).eval()(images)
    quaver.QAT({"quantizable_layer_type": ["Linear"], "weight_quantize_type": "moving_average_abs_max"}).quantize(net)

    torch.testing.assert_close(net.eval()(images), expected)


def test_switches_work_on_live_models(net, images):
    float_result = copy.deepcopy(net).eval()(images)
    quaver.QAT().quantize(net)
    net(images)
    net.bn.load_state_dict(Net().bn.state_dict())

    net.apply(quaver.disable_fake_quant)
    torch.testing.assert_close(net.eval()(images), float_result)
    net.apply(quaver.enable_fake_quant)
    net.apply(quaver.disable_observer)
    before = net.head.input_quantizer.threshold.clone()
    net.train()(3 * images)

    assert torch.equal(net.head.input_quantizer.threshold, before)
    assert not torch.allclose(net.eval()(images), float_result)


@pytest.mark.parametrize("rule", ["abs_max", "range_abs_max", "moving_average_abs_max", "learned_step"])
def test_activations_take_all_four_range_rules(net, images, rule):
    quaver.QAT({"activation_quantize_type": rule, "window_size": 5}).quantize(net)

    net(images).sum().backward()

    assert {layer.input_quantizer.kind for layer in net.modules() if hasattr(layer, "weight_quantizer")} == {rule}
    assert net.eval()(images).isfinite().all()


def test_config_keys_of_the_reference_are_taken():
    config = {
        "weight_preprocess_type": None,
        "activation_preprocess_type": "PACT",
        "weight_quantize_type": "channel_wise_abs_max",
        "activation_quantize_type": "moving_average_abs_max",
        "weight_bits": 8,
        "activation_bits": 8,
        "dtype": "int8",
        "window_size": 10000,
        "moving_rate": 0.9,
        "quantizable_layer_type": ["Conv2D", "Linear"],
        "fuse_conv_bn": False,
    }

    net = quaver.QAT(config).quantize(nn.Sequential(nn.Linear(3, 3)))

    assert isinstance(net[0].input_quantizer.preprocess, PACT)


def test_all_wrong_keys_are_reported_at_once():
    with pytest.raises(ConfigError, match=r"no key 'weigth_bits'.*Did you mean 'weight_bits'(.|\n)*'Conv2d'\?"):
        quaver.QAT({"weigth_bits": 8, "quantizable_layer_type": ["Conv2"]})
    with pytest.raises(ConfigError, match="takes a dict or a QATConfig, not int"):
        quaver.QAT(8)


@pytest.mark.parametrize("wrong", [3, torch.zeros(3)])
def test_what_is_no_live_model_is_refused(wrong):
    with pytest.raises(InputError, match=r"takes a live nn\.Module, not"):
        quaver.QAT().quantize(wrong)


def test_a_program_is_refused(net, images):
    with pytest.raises(InputError, match=r"takes a live nn\.Module, not Program"):
        quaver.QAT().quantize(quaver.capture(net, (images,)))


def test_an_optimizer_function_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="optimizer_func=3: takes a function from parameters to an optimizer"):
        quaver.QAT(optimizer_func=3)


def test_bits_of_single_layers(net):
    quaver.QAT({"weight_bits": 4, "activation_bits": 4, "layer_bits": {"conv": 8, "head": (8, 6)}}).quantize(net)

    bits = {
        name: (layer.weight_quantizer.grid.bits, layer.input_quantizer.grid.bits)
        for name, layer in net.named_modules()
        if hasattr(layer, "weight_quantizer")
    }
    assert bits == {"conv": (8, 8), "depthwise": (4, 4), "up": (4, 4), "line": (4, 4), "head": (8, 6)}


def test_weights_alone_can_be_quantized(net, images):
    quaver.QAT({"quant_weight_only": True}).quantize(net)

    assert net.conv.input_quantizer is None
    assert sum(isinstance(module, Quantizer) for module in net.modules()) == 5
    assert net(images).isfinite().all()


def test_parameters_of_quantizers_have_a_group_or_an_optimizer_of_their_own(net, images):
    learned = {"weight_quantize_type": "channel_wise_learned_step", "activation_quantize_type": "learned_step"}
    quanter = quaver.QAT(learned)
    quanter.quantize(net)
    own = list(quanter.quantizer_parameters(net))

    groups = quanter.parameter_groups(net, lr=0.5)

    assert len(own) == 10
    assert groups[1] == {"params": own, "lr": 0.5}
    assert len(groups[0]["params"]) + len(own) == len(list(net.parameters()))
    assert quanter.quantizer_optimizer(net) is None

    stepped = quaver.QAT(learned, optimizer_func=lambda params: torch.optim.SGD(params, lr=0.1))
    assert len(stepped.parameter_groups(net)) == 1
    assert stepped.quantizer_optimizer(net).param_groups[0]["params"] == own
    assert stepped.quantizer_optimizer(net) is stepped.quantizer_optimizer(net)


def test_custom_functions_sit_in_live_layers_under_the_layers_name(net, images):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return x * self.factor

    quanter = quaver.QAT(act_preprocess_func=Scale, weight_quantize_func=Scale)
    quanter.quantize(net)

    net(images).sum().backward()

    names = [name for name, _ in net.named_parameters() if "factor" in name]
    assert names[:2] == ["conv.input_quantizer.preprocess.factor", "conv.weight_quantizer.function.factor"]
    assert all(parameter.grad.isfinite() for parameter in quanter.quantizer_parameters(net))
    quanter.quantize(net)  # what is inside a quantizer is no layer of the model
    assert len(quantized(net)) == 5


def test_a_custom_function_that_misbehaves_is_named_with_the_layer(net, images):
    quaver.QAT(weight_quantize_func=lambda w: w[:1]).quantize(net)

    with pytest.raises(ConfigError, match=r"'conv.weight': its quantize function made a tensor of shape \(1, 3, 3, 3\)"):
        net(images)


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_under_two_names_stays_float_if_one_of_them_is_skipped(first):
    shared = nn.Conv2d(3, 4, 1)
    net = nn.ModuleDict({"one": nn.Sequential(shared), "other": nn.Sequential(shared), "third": nn.Conv2d(3, 4, 1)})
    name = "one" if first else "other"
    net[name].skip_quant = True

    quanter = quaver.QAT()
    quanter.quantize(net)

    assert type(shared) is nn.Conv2d
    assert quanter.why_float(net) == {"one.0": f"'{name}' has skip_quant = True"}


def compiled(net):
    return torch.compile(net, backend="eager")


@pytest.mark.filterwarnings("ignore:not_quant_pattern. 'orig'")
def test_a_compiled_model_is_quantized_and_given_back_as_the_plain_one_is(net):
    quanter = quaver.QAT({"not_quant_pattern": "orig", "layer_bits": {"conv": 4}})

    quanter.quantize(compiled(net))

    assert len(quantized(net)) == 5  # by the names of the plain model
    assert net.conv.weight_quantizer.grid.bits == 4
    assert quanter.why_float(compiled(net)) == {}
    assert len(quantized(quanter.quantize(compiled(Net()), inplace=False))) == 5
    quanter.remove(compiled(net))
    assert quantized(net) == []


@pytest.mark.parametrize("method", ["quantize", "remove", "why_float", "quantizer_optimizer", "parameter_groups"])
@pytest.mark.parametrize("wrong", [None, "net"])
def test_every_method_refuses_what_is_no_model(method, wrong):
    with pytest.raises(InputError, match=r"QAT\.\w+ takes a live nn\.Module, not (NoneType|str)"):
        getattr(quaver.QAT(), method)(wrong)


class Signed(nn.Module):
    """A user's names may be ours."""

    def __init__(self, signs):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.conv.signs = self.conv.reached = self.conv.raw = "the user's"
        if isinstance(signs, torch.Tensor):
            self.register_buffer("signs", signs)
        else:
            self.signs = signs

    def forward(self, x):
        return self.conv(x)


@pytest.mark.parametrize("signs", [torch.ones(3), nn.Conv2d(3, 3, 1), "some"], ids=["buffer", "layer", "attribute"])
def test_what_a_user_calls_signs_is_left_alone(signs, images):
    net, quanter = Signed(signs), quaver.QAT()
    before, names = set(net.state_dict()), dict(net.conv.__dict__).keys()

    quanter.remove(net)
    quanter.quantize(net)
    net(images)
    assert net.signs is signs
    quanter.remove(net)

    assert net.signs is signs
    assert set(net.state_dict()) == before
    assert net.conv.__dict__.keys() == names
    assert net.conv.signs == net.conv.reached == net.conv.raw == "the user's"


@pytest.mark.parametrize("name", ["input_quantizer", "weight_quantizer", "own"])
def test_a_name_that_a_quantized_layer_needs_is_refused_and_nothing_is_changed(net, name):
    setattr(net.head, name, nn.Identity())

    with pytest.raises(InputError, match=rf"'head' \(Linear\) has an attribute '{name}' of its own.*skip_quant = True"):
        quaver.QAT().quantize(net)

    assert quantized(net) == ["head"] * (name == "weight_quantizer")
    net.head.skip_quant = True
    quaver.QAT().quantize(net)


def test_with_weights_alone_nothing_is_left_behind_either(net):
    before = [set(vars(module)) for module in net.modules()]
    quanter = quaver.QAT({"quant_weight_only": True})

    quanter.remove(quanter.quantize(net))

    assert [set(vars(module)) for module in net.modules()] == before


def test_a_layer_without_a_shape_is_refused_and_nothing_is_changed():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(4, 3))

    with pytest.raises(InputError, match=r"'1' \(LazyConv2d\) does not know its shape yet\. Run one batch"):
        quaver.QAT().quantize(net)

    assert type(net[0]) is nn.Conv2d
    assert not net[0]._modules
    net(torch.randn(1, 3, 8, 8))
    quaver.QAT().quantize(net)
    assert quantized(net) == ["0", "1"]


def test_a_function_that_fails_while_quantizers_are_made_leaves_the_model_as_it_was(net):
    made = []

    class Third(nn.Identity):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) == 3:
                raise ValueError("enough")

    with pytest.raises(ConfigError, match=r"'up.input': Third could not be made: ValueError: enough"):
        quaver.QAT(act_quantize_func=Third).quantize(net)

    assert type(net.conv) is nn.Conv2d
    assert not net.conv._modules


def test_the_optimizer_of_the_quantizers_follows_them(net):
    learned = {"activation_quantize_type": "learned_step"}
    quanter = quaver.QAT(learned, optimizer_func=lambda params: torch.optim.SGD(params, lr=0.1))
    net.conv.skip_quant = True
    quanter.quantize(net)
    first = quanter.quantizer_optimizer(net)

    net.conv.skip_quant = False
    quanter.quantize(net)
    assert quanter.quantizer_optimizer(net).param_groups[0]["params"] == list(quanter.quantizer_parameters(net))
    assert quanter.quantizer_optimizer(net) is not first
    quanter.remove(net)
    assert quanter.quantizer_optimizer(net) is None
    quanter.quantize(net)

    assert quanter.quantizer_optimizer(net).param_groups[0]["params"] == list(quanter.quantizer_parameters(net))


class ByName(nn.Module):
    """Layers that are called with keywords."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.up = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 4, 2)
        self.add, self.pool, self.head = quaver.nn.Add(), quaver.nn.AvgPool2d(2), nn.Linear(7, 2)

    def forward(self, x):
        x = F.relu(self.bn(input=self.conv(input=x)))
        x = self.pool(input=self.up(input=x))
        return self.head(input=self.add(y=x, x=x.flip(2)))


def test_layers_can_be_called_with_keywords(images):
    net, quanter = ByName(), quaver.QAT()
    quanter.quantize(net)

    net(images)
    frozen = quanter.convert(net.eval(), [quaver.InputSpec([None, 3, 16, 16])])

    assert torch.equal(frozen(images), net(images))
    assert {op.name for op in frozen.ops() if op.quantized} >= {"conv", "up", "head", "add.elementwise_add", "pool.pool2d"}


def test_an_encoder_layer_asks_its_quantized_layers_without_gradients_too():
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    plain = copy.deepcopy(net).eval()
    quanter, x = quaver.QAT({"weight_bits": 2, "activation_bits": 2}), torch.randn(4, 5, 8)
    quanter.quantize(quanter.quantize(net))
    net(x)

    with torch.no_grad():
        result = net.eval()(x)

    torch.testing.assert_close(result, net(x).detach())
    assert not torch.allclose(result, plain(x), atol=0.1)
    assert quanter.why_float(net) == {"self_attn.out_proj": "MultiheadAttention reads its weight and never calls it"}
    assert type(net.self_attn.out_proj) is type(plain.self_attn.out_proj)
    quanter.remove(net)
    assert not net._forward_pre_hooks
