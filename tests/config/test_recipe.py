import dataclasses

import pytest

from quaver.config import QuantConfig
from quaver.config.load import load_recipe
from quaver.config.options import as_value, options_of, rules_of
from quaver.config.recipe import Phase, QuantPhase, Recipe
from quaver.errors import ConfigError


@pytest.fixture
def written(tmp_path):
    """A recipe file with some lines."""

    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("kind", [Recipe, Phase, QuantPhase])
def test_every_default_keeps_to_its_own_rule(kind):
    made = kind()

    assert [name for name, rule in rules_of(kind).items() if not rule.allows(getattr(made, name))] == []


@pytest.mark.parametrize("kind", [Recipe, Phase, QuantPhase])
def test_every_option_says_what_it_does_in_a_sentence(kind):
    words = [one.metadata["help"] for one in options_of(kind).values()]

    assert words
    assert all(sentence.endswith(".") for sentence in words)


def test_without_a_file_and_flags_there_are_the_defaults():
    assert load_recipe(None, {}, "quantize") == Recipe()


def test_a_file_gives_options_of_the_run_and_of_both_phases(written):
    path = written(
        "model: resnet20\nimage_shape: [3, 32, 32]\ntrain: {num_epochs: 7, lr: 1e-1}\n"
        "quantize:\n  lr: 1e-4\n  activation_quantize_type: range_abs_max\n  not_quant_pattern: head\n"
    )

    recipe = load_recipe(path, {}, "quantize")

    assert (recipe.model, recipe.image_size) == ("resnet20", 32)
    assert (recipe.train.num_epochs, recipe.train.lr) == (7, 0.1)
    assert (recipe.quantize.lr, recipe.quantize.act_quant_type) == (0.0001, "range_abs_max")
    assert recipe.quantize.not_quant_pattern == ("head",)


def test_flags_go_before_the_file_and_leave_the_rest(written):
    path = written("seed: 3\nbatch_size: 16\nquantize: {lr: 0.5, num_epochs: 9}\ntrain: {lr: 0.7}\n")

    recipe = load_recipe(path, {"seed": "4", "lr": "1e-3", "float_epochs": "2"}, "quantize")

    assert (recipe.seed, recipe.batch_size) == (4, 16)
    assert (recipe.quantize.lr, recipe.quantize.num_epochs) == (0.001, 9)
    assert (recipe.train.lr, recipe.train.num_epochs) == (0.7, 2)


def test_flags_of_train_are_those_of_float_training():
    recipe = load_recipe(None, {"lr": "0.3", "num_epochs": "4"}, "train")

    assert (recipe.train.lr, recipe.train.num_epochs) == (0.3, 4)
    assert recipe.quantize == QuantPhase()


def test_every_problem_is_reported_at_once_each_with_its_place_and_the_nearest_word(written):
    path = written("modell: x\nlr: 0.1\nbatch_size: none\ntrain: {lrr: 1}\nquantize: {wt_quant_type: chanel_wise_abs_max}\n")

    with pytest.raises(ConfigError) as caught:
        load_recipe(path, {"lr_strategy": "cosine", "seed": "-1"}, "quantize")

    lines = str(caught.value).splitlines()
    assert len(lines) == 7
    for words in (
        f"{path}: has no key 'modell'. Did you mean 'model'?",
        f"{path}: has no key 'lr'. It belongs under train or quantize.",
        f"{path}: batch_size='none': takes a whole number of at least 1.",
        f"{path}: train: has no key 'lrr'. Did you mean 'lr'?",
        f"{path}: quantize: wt_quant_type='chanel_wise_abs_max': takes one of",
        "command line: lr_strategy='cosine': takes one of piecewise_decay, cosine_decay, exponential_decay, constant."
        " Did you mean 'cosine_decay'?",
        "command line: seed=-1: takes a whole number of at least 0.",
    ):
        assert any(line.startswith(words) for line in lines), words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: a\nmodel: b\n", "the key 'model' stands twice"),
        ("model: [\n", "is not YAML"),
        ("just words\n", "holds no options"),
        ("train: 7\n", "train: takes a table of options"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_by_name(written, text, message):
    with pytest.raises(ConfigError, match=f"recipe.yaml: .*{message}"):
        load_recipe(written(text), {}, "train")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_recipe(tmp_path / "none.yaml", {}, "train")


def test_an_empty_file_is_the_defaults(written):
    assert load_recipe(written("# nothing yet\n"), {}, "train") == Recipe()


@pytest.mark.parametrize(
    ("written", "default", "value"),
    [
        ("True", False, True),
        ("false", True, False),
        ("yes", False, True),
        ("0", True, False),
        ("maybe", True, "maybe"),
        ("3", 1, 3),
        ("3.5", 1, "3.5"),
        (3, 0.5, 3.0),
        ("nan?", 0.5, "nan?"),
        (2012, "", "2012"),
        ("30, 60", (1,), (30, 60)),
        ([30, 60], (1,), (30, 60)),
        (["a"], (), ("a",)),
        ("a=1,b=x,c=true,d=0.5", {}, {"a": 1, "b": "x", "c": True, "d": 0.5}),
        ("no pairs", {}, "no pairs"),
        (True, 3, True),
    ],
)
def test_what_is_written_becomes_a_value_of_the_options_type_if_it_can(written, default, value):
    found = as_value(written, default)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "value"),
    [("True", "true"), ("1", "true"), (1, "true"), (False, "false"), ("off", "false"), ("AUTO", "auto"), ("maybe", "maybe")],
)
def test_what_is_written_becomes_the_choice_that_is_meant(written, value):
    assert as_value(written, "auto", ("auto", "true", "false")) == value


def test_a_watchdog_that_is_off_is_not_false(written):
    assert load_recipe(written("train: {watchdog: off}\n"), {}, "train").train.watchdog == "off"


def test_the_words_of_old_scripts_are_understood():
    recipe = load_recipe(None, {"use_gpu": "True", "use_pact": "True", "lr_strategy": "Cosine_Decay"}, "quantize")

    assert (recipe.use_gpu, recipe.quantize.use_pact, recipe.quantize.lr_strategy) == ("true", True, "cosine_decay")


@pytest.mark.parametrize("shape", ["3,224", "3,224,200", "a,b,c", "0,3,3"])
def test_an_image_shape_is_three_sizes_of_a_square(shape):
    with pytest.raises(ConfigError, match="takes channels, height and width"):
        load_recipe(None, {"image_shape": shape}, "train")


def test_a_phase_gives_the_config_of_quant_aware_with_all_it_says():
    phase = QuantPhase(wt_quant_type="abs_max", act_quant_type="range_abs_max", weight_bits=4, target="onnx")

    config = phase.quant_config()

    assert config == QuantConfig(
        weight_quantize_type="abs_max", activation_quantize_type="range_abs_max", weight_bits=4, target="onnx"
    )


def test_a_phase_has_every_key_of_the_config():
    known = {one.name for one in dataclasses.fields(QuantConfig)} - {"dtype"}
    renamed = {"activation_quantize_type", "weight_quantize_type", "activation_preprocess_type", "weight_preprocess_type"}

    assert known - renamed <= {one.name for one in dataclasses.fields(QuantPhase)}


def test_the_record_of_a_recipe_names_no_folder_it_is_written_to():
    assert "model_save_dir" not in Recipe().record()
