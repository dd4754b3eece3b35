"""How a run begins in a folder, and how it goes on."""

import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import quaver
from quaver.config.load import load_recipe
from quaver.config.options import as_written
from quaver.config.recipe import QuantPhase, Recipe
from quaver.errors import ConfigError
from quaver.experiment.recipe_checks import dataset_name, recipe_problems
from quaver.experiment.run_folder import FORMAT, RunFolder
from quaver.experiment.start import start
from quaver.training.checkpoint import Checkpoint


@pytest.fixture
def said():
    return []


@pytest.fixture
def stopped(tmp_path):
    """A folder in which ``quaver quantize --seed 7 --lr 0.5`` was stopped."""
    recipe = load_recipe(None, {"seed": "7", "lr": "0.5"}, "quantize")
    record = {"command": "quantize", "recipe": recipe.record(), "phase": "quantize"}
    folder = RunFolder(tmp_path / "out")
    folder.checkpoints.save(Checkpoint("quantize-000000010", {"x": torch.zeros(2)}, record))
    return folder


def test_a_run_begins_in_its_folder(tmp_path, said):
    begun = start("train", None, {"model_save_dir": str(tmp_path / "new")}, "", said.append)

    assert begun.folder.path.is_dir()
    assert begun.checkpoint is None
    assert begun.resume == f"quaver train --checkpoint {tmp_path / 'new'}"
    assert said == []


def test_a_run_that_can_go_on_is_not_thrown_away(stopped, said):
    with pytest.raises(ConfigError, match=r"a run was stopped here and can go on: add --checkpoint"):
        start("quantize", None, {"model_save_dir": str(stopped.path)}, "", said.append)

    assert stopped.checkpoints.names() == ["quantize-000000010"]


def test_a_finished_run_is_replaced_and_that_is_said(stopped, said):
    stopped.write_report({})

    start("quantize", None, {"model_save_dir": str(stopped.path)}, "", said.append)

    assert stopped.checkpoints.names() == []
    assert not stopped.report.exists()
    assert "finished run, which this one replaces" in said[0]


LEFT = {"int8/program.json", "float/program.json", "mobile/program.json", "fp32/model.xml", "events/e", "analysis.json"}
LEFT |= {"metrics.jsonl", "fp32.safetensors", "verify.json", "verify_pte.json", "bench.json", "report.html", "report.json"}


@pytest.fixture
def finished(tmp_path):
    """A folder with all that a run and the commands after it leave, and a file of the user's."""
    folder = RunFolder(tmp_path / "done")
    start("quantize", None, {"model_save_dir": str(folder.path)}, "", print)
    folder.checkpoints.save(Checkpoint("quantize-000000010", {"x": torch.zeros(2)}, {}))
    for name in [*LEFT, "notes.txt"]:
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text(f"old {name}")
    return folder


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_that_a_finished_run_left_is_set_aside_and_nothing_else(finished, said):
    before = files(finished.path)

    start("train", None, {"model_save_dir": str(finished.path)}, "", said.append)

    assert before > LEFT
    assert files(finished.path / "previous" / "1") == before - {"notes.txt"}
    assert {name for name in files(finished.path) if not name.startswith("previous")} == {"notes.txt", "run.json"}
    assert f"kept in {finished.path / 'previous' / '1'}" in said[0]


def test_a_second_run_is_set_aside_beside_the_first(finished, said):
    start("train", None, {"model_save_dir": str(finished.path)}, "", said.append)
    finished.write_report({"second": 2})

    start("train", None, {"model_save_dir": str(finished.path)}, "", said.append)

    assert (finished.path / "previous/1/report.json").read_text() == "old report.json"
    assert "second" in (finished.path / "previous/2/report.json").read_text()


@pytest.mark.parametrize("given", ["fp32.safetensors", "."])
def test_weights_that_a_run_starts_from_stay_where_they_are_and_are_kept_besides(finished, said, given):
    flags = {"model_save_dir": str(finished.path), "pretrained_fp32_model": str(finished.path / given)}

    start("quantize", None, flags, "", said.append)

    assert finished.fp32.read_text() == "old fp32.safetensors"
    assert (finished.path / "previous/1/fp32.safetensors").read_text() == "old fp32.safetensors"
    assert not finished.analysis.exists()
    start("quantize", None, flags, "", said.append)  # it failed, and is tried again: there is nothing more to keep
    assert [path.name for path in (finished.path / "previous").iterdir()] == ["1"]


def test_an_analysis_that_a_run_starts_from_stays_where_it_is(finished, said):
    quaver.analyze(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), [torch.randn(2, 3, 8, 8)]).save(finished.analysis)
    before = finished.analysis.read_bytes()

    start("quantize", None, {"model_save_dir": str(finished.path), "init_from": str(finished.analysis)}, "", said.append)

    assert finished.analysis.read_bytes() == (finished.path / "previous/1/analysis.json").read_bytes() == before
    assert not finished.fp32.exists()


def test_weights_among_what_the_run_will_write_are_refused(finished, said):
    weights = finished.path / "float" / "program.json"
    flags = {"model_save_dir": str(finished.path), "pretrained_fp32_model": str(weights)}

    with pytest.raises(ConfigError, match=r"which a run in .* writes anew. Copy it elsewhere"):
        start("quantize", None, flags, "", said.append)

    assert files(finished.path) >= LEFT


def test_a_run_in_a_folder_below_is_not_touched(finished, said):
    above = finished.path.rename(finished.path.with_name("float")).parent

    start("quantize", None, {"model_save_dir": str(above)}, "", said.append)

    assert files(above / "float") > LEFT
    assert said == []


@pytest.mark.parametrize("moves", range(1, 17))
def test_a_run_killed_while_it_sets_the_old_one_aside_is_finished_by_the_next(finished, said, monkeypatch, moves):
    before, works, left = files(finished.path), Path.replace, iter(range(moves))

    def dying(path, target):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return works(path, target)

    monkeypatch.setattr(Path, "replace", dying)
    with suppress(KeyboardInterrupt):
        start("train", None, {"model_save_dir": str(finished.path)}, "", said.append)
    monkeypatch.undo()

    start("train", None, {"model_save_dir": str(finished.path)}, str(finished.path), said.append)

    assert files(finished.path / "previous" / "1") == before - {"notes.txt"}
    assert {name for name in files(finished.path) if not name.startswith("previous")} == {"notes.txt", "run.json"}


def test_what_was_made_after_a_cut_is_kept_apart(finished, said):
    draft = finished.path / "previous" / ".draft"
    draft.mkdir(parents=True)
    finished.analysis.rename(draft / "analysis.json")
    finished.analysis.write_text("new")

    start("train", None, {"model_save_dir": str(finished.path)}, "", said.append)

    kept = [(finished.path / "previous" / number / "analysis.json").read_text() for number in "12"]
    assert kept == ["old analysis.json", "new"]


def test_a_finished_run_that_goes_on_to_another_result_sets_the_old_one_aside(stopped, said):
    stopped.write_report({})
    for name in ("verify.json", "fp32.safetensors"):
        (stopped.path / name).write_text("old")

    start("quantize", None, {"log_period": "3"}, str(stopped.path), said.append)
    assert stopped.report.exists()
    start("quantize", None, {"num_epochs": "30"}, str(stopped.path), said.append)

    assert stopped.checkpoints.names() == ["quantize-000000010"]
    assert files(stopped.path / "previous" / "1") == {"verify.json", "report.json", "fp32.safetensors"}
    assert stopped.fp32.read_text() == "old"  # to go on from


def test_a_report_is_json_even_if_training_went_wrong(stopped):
    stopped.write_report({"fp32_loss": float("nan"), "fp32_top1": 0.1})

    assert '"fp32_loss": "nan"' in stopped.report.read_text()


def test_going_on_takes_the_recipe_from_the_checkpoint(stopped, said):
    begun = start("quantize", None, {}, str(stopped.path), said.append)

    assert (begun.recipe.seed, begun.recipe.quantize.lr) == (7, 0.5)
    assert begun.checkpoint.name == "quantize-000000010"
    assert begun.folder == stopped
    assert said == []


def test_the_folder_of_the_checkpoints_is_as_good(stopped, said):
    assert start("quantize", None, {}, str(stopped.checkpoints.folder), said.append).folder == stopped


def test_the_same_command_with_checkpoint_added_goes_on_in_silence(stopped, said):
    flags = {"seed": "7", "lr": "0.5", "model_save_dir": str(stopped.path)}

    assert start("quantize", None, flags, str(stopped.path), said.append).checkpoint is not None
    assert said == []


def test_an_option_that_changes_the_result_is_said_and_one_that_does_not_is_not(stopped, said):
    start("quantize", None, {"lr": "0.1", "log_period": "1"}, str(stopped.path), said.append)

    assert len(said) == 1
    assert "quantize.lr is not what the run was started with" in said[0]


# what a folder names is not run


def run_of(folder, model, options, with_checkpoint):
    """A folder as it may have been received from anyone: a run of a model that is code."""
    recipe = replace(load_recipe(None, {}, "quantize"), model=model, model_options=options)
    record = {"command": "quantize", "recipe": recipe.record(), "phase": "quantize"}
    if with_checkpoint:
        RunFolder(folder).checkpoints.save(Checkpoint("quantize-000000010", {"x": torch.zeros(2)}, record))
    else:
        folder.mkdir()
        RunFolder(folder).started.write_bytes(FORMAT.sealed({"command": "quantize", "recipe": recipe.record()}))
    return folder


MODELS = {"subprocess:call": {"args": "x"}, "timm/resnet18": {"checkpoint_path": "x"}, "torchvision:vgg11": {}}


@pytest.mark.parametrize("with_checkpoint", [True, False])
@pytest.mark.parametrize(("model", "options"), MODELS.items())
def test_a_model_that_is_code_is_not_taken_from_a_folder(tmp_path, said, model, options, with_checkpoint):
    folder = run_of(tmp_path / "received", model, options, with_checkpoint)
    flags = {"model": model} | ({"model_options": as_written(options)} if options else {})

    with pytest.raises(ConfigError, match=r"what a folder names is not run.* add --model") as refused:
        start("quantize", None, {}, str(folder), said.append)

    added = shlex.split(str(refused.value).partition("add ")[2])
    assert dict(zip(added[::2], added[1::2], strict=True)) == {f"--{name}": value for name, value in flags.items()}
    begun = start("quantize", None, flags, str(folder), said.append)
    assert (begun.recipe.model, begun.recipe.model_options) == (model, options)
    assert shlex.split(begun.resume)[2:] == ["--checkpoint", str(folder), *added]


def test_options_of_a_model_that_is_code_are_not_taken_from_a_folder(tmp_path, said):
    folder = run_of(tmp_path / "received", "timm/resnet18", {"checkpoint_path": "evil.pth"}, True)

    with pytest.raises(ConfigError, match=r"add --model_options checkpoint_path=evil\.pth$"):
        start("quantize", None, {"model": "timm/resnet18"}, str(folder), said.append)


def test_a_recipe_of_the_users_own_may_name_code(tmp_path, said):
    folder = run_of(tmp_path / "run", "mine:net", {}, True)
    (tmp_path / "recipe.yaml").write_text("model: mine:net")

    assert start("quantize", tmp_path / "recipe.yaml", {}, str(folder), said.append).recipe.model == "mine:net"


def test_checkpoint_and_pretrained_weights_exclude_each_other(stopped, said):
    with pytest.raises(ConfigError, match="--checkpoint and --pretrained_fp32_model exclude each other"):
        start("quantize", None, {"pretrained_fp32_model": "x.pth"}, str(stopped.path), said.append)


def test_a_run_of_the_other_command_is_refused(stopped, said):
    with pytest.raises(ConfigError, match="this run was started by `quaver quantize`"):
        start("train", None, {}, str(stopped.path), said.append)


def test_a_folder_that_is_not_there_is_an_error(tmp_path, said):
    with pytest.raises(ConfigError, match="there is no such folder"):
        start("quantize", None, {}, str(tmp_path / "typo"), said.append)


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_the_beginning(tmp_path, said, there):
    folder = tmp_path / "out"
    flags = {"seed": "3"} if there else {"seed": "3", "model_save_dir": str(folder)}
    if there:
        folder.mkdir()

    begun = start("quantize", None, flags, str(folder), said.append)

    assert (begun.checkpoint, begun.recipe.seed, begun.folder.path) == (None, 3, folder)
    assert "no checkpoint yet: starting from the beginning" in said[0]


def test_a_run_that_was_stopped_before_its_first_checkpoint_goes_on_with_its_own_options(tmp_path, said):
    (tmp_path / "w.pth").touch()
    flags = {"seed": "3", "model_options": "scale=0.25", "lr": "0.5", "pretrained_fp32_model": str(tmp_path / "w.pth")}
    first = start("quantize", None, flags | {"model_save_dir": str(tmp_path / "out")}, "", said.append)
    (tmp_path / "out" / "fp32.safetensors").write_text("as it came so far")

    begun = start("quantize", None, {"log_period": "7"}, str(tmp_path / "out"), said.append)

    assert begun.recipe.record() == first.recipe.record() | {"log_period": 7}
    assert begun.recipe.pretrained_fp32_model
    assert (begun.checkpoint, begun.folder, begun.folder.path.is_dir()) == (None, first.folder, True)
    assert not (tmp_path / "out" / "previous").exists()
    with pytest.raises(ConfigError, match="this run was started by `quaver quantize`"):
        start("train", None, {}, str(tmp_path / "out"), said.append)


def test_a_damaged_newest_checkpoint_is_said_and_set_aside(stopped, said):
    (older,) = [stopped.checkpoints.read(name) for name in stopped.checkpoints.names()]
    stopped.checkpoints.save(Checkpoint("quantize-000000020", older.tensors, older.record))
    damaged = stopped.checkpoints.folder / "quantize-000000020.json"
    damaged.write_bytes(damaged.read_bytes()[:50])

    begun = start("quantize", None, {}, str(stopped.path), said.append)

    assert begun.checkpoint.name == "quantize-000000010"
    assert "Going on from the one before" in said[0]
    assert stopped.checkpoints.names() == ["quantize-000000010"]


# what can be known to be wrong


def test_a_folder_that_is_a_file_is_refused(tmp_path, said):
    (tmp_path / "taken").write_text("mine")

    with pytest.raises(ConfigError, match="this is a file"):
        start("train", None, {"model_save_dir": str(tmp_path / "taken")}, "", said.append)

    assert (tmp_path / "taken").read_text() == "mine"


def test_wrong_names_and_missing_files_are_reported_together():
    recipe = Recipe(model="MobilNetV1", dataset="digit", data_dir="/nowhere", pretrained_fp32_model="/no.pth")

    found = recipe_problems(recipe, "quantize")

    assert len(found) == 4
    assert "Did you mean 'mobilenet_v1'?" in found[0]
    assert "Did you mean 'digits'?" in found[2]


@pytest.mark.parametrize(
    ("mark", "name"), [("train_list.txt", "ilsvrc"), ("cifar-10-batches-bin", "cifar10"), ("VOCdevkit", "voc")]
)
def test_a_data_folder_is_recognized_by_its_layout(tmp_path, mark, name):
    (tmp_path / mark).mkdir()

    assert dataset_name(Recipe(data_dir=str(tmp_path))) == name


def test_without_a_folder_the_data_set_is_digits():
    assert dataset_name(Recipe()) == "digits"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_from": "/no/analysis.json"}, "init_from='/no/analysis.json': /no/analysis.json: there is no such file"),
        ({"init_from": __file__}, "is damaged or was cut off"),
        ({"init_by": "p99"}, "init_by='p99': is a figure of an analysis. Give a file of one"),
        ({"init_by": "p99", "init_from": "data"}, None),
        ({"analysis": True}, "Give its weights with --pretrained_fp32_model"),
    ],
)
def test_an_analysis_that_cannot_be_started_from_is_a_problem_at_once(options, message):
    recipe = Recipe(quantize=QuantPhase(**options))

    found = recipe_problems(recipe, "quantize")

    assert len(found) == (0 if message is None else 1)
    assert message is None or message in found[0]
    assert recipe_problems(recipe, "train") == []  # which may well come before the analysis


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr_step_iters": (10,)}, "lr_step_iters=10: is for piecewise_decay"),
        ({"lr_step_epochs": (1, 2)}, "lr_step_epochs=1,2: is for piecewise_decay"),
        ({"lr_step_iters": (10,), "lr_strategy": "piecewise_decay"}, None),
        ({"warmup_iters": 11, "max_iters": 10}, "longer than the 10 steps"),
        ({"warmup_epochs": 9, "max_iters": 10}, None),
        ({"pact_lr": 0.1}, "Add --use_pact true"),
        ({"pact_l2_decay": 0.0}, "Add --use_pact true"),
        ({"pact_l2_decay": 0.0, "use_pact": True}, None),
    ],
)
def test_what_would_have_no_effect_is_a_problem_at_once(options, message):
    found = recipe_problems(Recipe(quantize=QuantPhase(**options)), "quantize")

    assert len(found) == (message is not None)
    assert message is None or message in found[0]


def test_after_an_analysis_a_checkpoint_means_a_new_run(tmp_path, said):
    """One command for a machine that may be taken away; the analysis is not made again."""
    folder = RunFolder(tmp_path)
    weights = tmp_path / "weights.pth"
    weights.touch()
    recipe = load_recipe(None, {"analysis": "true", "seed": "7", "pretrained_fp32_model": str(weights)}, "quantize")
    folder._write(folder.started, FORMAT.sealed({"command": "quantize", "recipe": recipe.record()}))
    flags = {"model_save_dir": str(tmp_path), "seed": "3"}

    interrupted = start("quantize", None, {"model_save_dir": str(tmp_path)}, str(tmp_path), said.append)
    folder._write(folder.started, FORMAT.sealed({"command": "quantize", "recipe": recipe.record()}))
    folder.analysis.write_text("{}")
    begun = start("quantize", None, flags, str(tmp_path), said.append)

    assert (interrupted.recipe.quantize.analysis, interrupted.recipe.seed) == (True, 7)
    assert (begun.recipe.quantize.analysis, begun.recipe.seed) == (False, 3)


def test_a_data_set_may_have_the_references_name():
    assert dataset_name(Recipe(dataset="imagenet")) == "ilsvrc"
    assert recipe_problems(Recipe(dataset="imagenet"), "train") == []


def test_a_folder_without_weights_is_a_problem_at_once(tmp_path):
    assert "there is no such file" in recipe_problems(Recipe(pretrained_fp32_model=str(tmp_path)), "quantize")[0]


def test_an_unknown_layout_is_a_problem(tmp_path: Path):
    assert "its layout is none that is known" in recipe_problems(Recipe(data_dir=str(tmp_path)), "train")[0]
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.JPG").touch()
    assert dataset_name(Recipe(data_dir=str(tmp_path))) == "folder"
