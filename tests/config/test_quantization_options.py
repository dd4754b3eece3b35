"""Every option is declared once, and is found wherever it is taken: configs, passes, recipe, command line, docs."""

import inspect
import os
import pickle
import re
import sys
from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from subprocess import run

import pytest
import torch
from torch import nn

import quaver
from option_tables import DOCS, TABLES, rewritten
from quaver import QuantConfig
from quaver.cli.flags import with_recipe_flags
from quaver.config import QATConfig
from quaver.config.load import load_recipe
from quaver.config.options import options_of, rules_of, shared_options
from quaver.config.recipe import QuantPhase
from quaver.eager.quantizer_factory import QuantizerFactory
from quaver.errors import ConfigError
from quaver.passes import AddQuantDequantPass, QuantizationTransformPass

CLASSES = [QuantConfig, QATConfig, QuantizationTransformPass, AddQuantDequantPass]
IN_OTHER_WORDS = {"dtype", "weight_preprocess_type", "activation_preprocess_type", "not_quant_pattern", "quant_weight_only"}
OTHERS = {
    "activation_quantize_type": "range_abs_max",
    "activation_bits": 5,
    "layer_bits": (("head", (4, 4)),),
    "window_size": 77,
    "moving_rate": 0.5,
    "pass_through": True,
    "weight_quantize_type": "abs_max",
    "weight_bits": 6,
    "saturation_safe": False,
    "target": "onnx",
}
"""A value that is not the default, for every option that a pass takes under the config's name."""


@pytest.mark.parametrize("kind", CLASSES)
def test_a_misspelt_key_is_answered_with_the_nearest_one(kind):
    with pytest.raises(ConfigError, match=rf"^{kind.__name__}: has no key 'moving_rat'\. Did you mean 'moving_rate'\?"):
        kind(moving_rat=0.9)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_problem_of_a_call_is_reported_at_once(kind):
    with pytest.raises(ConfigError) as caught:
        kind(moving_rat=0.9, window_size=0, activation_bits=9)

    assert [line.split(":")[1].split("=")[0].strip() for line in str(caught.value).splitlines()] == [
        "has no key 'moving_rat'. Did you mean 'moving_rate'? Known keys",
        "window_size",
        "activation_bits",
    ]


@pytest.mark.parametrize("kind", CLASSES)
def test_the_signature_has_every_option_with_its_default_and_help_says_what_it_does(kind):
    parameters = inspect.signature(kind).parameters

    assert {name: one.default for name, one in parameters.items()} == {
        name: one.metadata["default"] for name, one in options_of(kind).items()
    }
    assert all(f"{name}: {one.metadata['help']}" in inspect.getdoc(kind) for name, one in options_of(kind).items())


@pytest.mark.parametrize("kind", [*CLASSES, QuantPhase])
def test_every_default_keeps_to_its_rule(kind):
    assert [name for name, one in options_of(kind).items() if not one.metadata["rule"].allows(one.metadata["default"])] == []


@pytest.mark.parametrize("kind", CLASSES)
def test_copies_and_pickles_are_equal(kind):
    made = kind(layer_bits={"stem": 4}, moving_rate=0.5)

    assert deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_every_option_of_the_config_reaches_the_passes():
    model = nn.Sequential(OrderedDict(head=nn.Conv2d(3, 4, 3)))
    program = quaver.quant_aware(model, OTHERS, example_inputs=(torch.randn(1, 3, 8, 8),))

    for kind, step in zip((QuantizationTransformPass, AddQuantDequantPass), program.history, strict=True):
        assert [name for name in OTHERS if name in options_of(kind) and f"{name}={OTHERS[name]!r}" not in step.words()] == []
    assert OTHERS.keys() == options_of(QuantConfig).keys() - IN_OTHER_WORDS - {"quantize_op_types"}
    assert OTHERS.keys() <= options_of(QuantizationTransformPass).keys()


def test_a_history_names_the_options_of_a_pass_in_the_order_it_always_did():
    both = (
        "skip_pattern activation_quantize_type activation_bits layer_bits window_size moving_rate pass_through target "
        "act_quantize_func act_preprocess_func quantizable_op_type"
    )
    weights = (
        "weight_quantize_type weight_bits quantize_activations saturation_safe weight_quantize_func weight_preprocess_func "
        "optimizer_func"
    )

    assert re.findall(r"(\w+)=", repr(QuantizationTransformPass())) == [*both.split(), *weights.split()]
    assert re.findall(r"(\w+)=", repr(AddQuantDequantPass())) == [
        *both.split(),
        "leave_outputs_float",
        "leave_products_float",
    ]


def test_every_option_of_the_live_config_reaches_its_quantizers():
    given = {name: value for name, value in OTHERS.items() if name != "target"}

    factory = QuantizerFactory(QATConfig(**given, quant_weight_only=True))

    assert shared_options(factory.options, QATConfig) | given == shared_options(factory.options, QATConfig)
    assert not factory.options.quantize_activations
    assert given.keys() == options_of(QATConfig).keys() - IN_OTHER_WORDS - {"quantizable_layer_type", "fuse_conv_bn"}


def test_every_option_of_the_config_is_a_flag_and_a_key_of_a_recipe():
    flags = inspect.signature(with_recipe_flags("quantize")(print)).parameters
    names = {one.metadata["same_as"] or name: name for name, one in options_of(QuantPhase).items()}
    wanted = options_of(QuantConfig).keys() - {"dtype", "weight_preprocess_type", "activation_preprocess_type"}  # --use_pact

    assert wanted <= names.keys()
    assert {names[key] for key in wanted} <= flags.keys()


def test_what_is_said_in_a_recipe_is_what_the_config_says():
    given = OTHERS | {"layer_bits": {"head": 4}, "not_quant_pattern": ("stem",), "quantize_op_types": ("mul",)}
    flags = {("act_quant_type" if key == "activation_quantize_type" else key): value for key, value in given.items()}
    flags["wt_quant_type"] = flags.pop("weight_quantize_type")

    assert load_recipe(None, flags, "quantize").quantize.quant_config() == QuantConfig(**given)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_declarations(page):
    assert rewritten(page) == page.read_text(), "python tests/option_tables.py writes the tables anew"


def test_there_is_a_table_of_every_class_of_options():
    text = "".join(page.read_text() for page in DOCS.glob("*.md"))

    assert all(f"<!-- options: {name} " in text for name in TABLES)


LOOK = """
import inspect, sys, torch, quaver
from option_tables import table
from quaver.cli.flags import with_recipe_flags
from quaver.config import QATConfig, QuantConfig
from quaver.config.load import load_recipe
from quaver.config.recipe import QuantPhase
from quaver.eager.quantizer_factory import QuantizerFactory

config = load_recipe(None, {"patience": "4"}, "quantize").quantize.quant_config()
program = quaver.quant_aware(torch.nn.Conv2d(3, 4, 3), config, example_inputs=(torch.randn(1, 3, 8, 8),))
print([step.words().count("patience=4") for step in program.history])
print(QuantizerFactory(QATConfig(patience=4)).options.patience)
print("patience" in inspect.signature(with_recipe_flags("quantize")(print)).parameters)
print(["| `patience` | `3` |" in table(kind) for kind in (QuantConfig, QATConfig, QuantPhase)])
"""


@pytest.mark.slow
def test_an_option_is_added_in_one_file(tmp_path):
    copytree(Path(quaver.__file__).parent, tmp_path / "quaver", ignore=ignore_patterns("__pycache__"))
    declarations = tmp_path / "quaver" / "config" / "quantization_options.py"
    before = "    moving_rate: float"
    added = '    patience: int = option(3, whole(1), "How long it waits.")\n'

    declarations.write_text(declarations.read_text().replace(before, added + before))
    path = os.pathsep.join((str(tmp_path), str(DOCS.parent / "tests")))
    done = run([sys.executable, "-c", LOOK], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["[1, 1]", "4", "True", "[True, True, True]"], done.stderr


def test_an_option_under_another_name_is_passed_on_under_the_one_it_stands_for():
    assert shared_options(QuantPhase(wt_quant_type="abs_max"), QuantConfig)["weight_quantize_type"] == "abs_max"
    assert rules_of(AddQuantDequantPass)["skip_pattern"] is rules_of(QuantConfig)["not_quant_pattern"]


def test_a_pass_of_ones_own_may_have_fields_without_a_rule():
    @dataclass(frozen=True, kw_only=True)
    class Mine(AddQuantDequantPass):
        note: str = ""

    assert Mine(note="mine", moving_rate=0.5).note == "mine"
    with pytest.raises(ConfigError, match=r"^Mine: has no key 'nota'\. Did you mean 'note'\?"):
        Mine(nota="mine")
