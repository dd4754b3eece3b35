import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data.binary import BinaryWriter
from tiny import net

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    torch.manual_seed(0)
    small = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 10))
    prepared = quaver.quant_aware(small, example_inputs=(torch.randn(2, 3, 32, 32),)).train()
    prepared(torch.randn(8, 3, 32, 32))
    return quaver.save(prepared.eval(), tmp_path_factory.mktemp("program"))


@pytest.fixture
def data(tmp_path):
    generator = np.random.default_rng(0)
    with BinaryWriter(tmp_path / "data.bin", image_shape=(3, 32, 32), classes=10, layout="header") as writer:
        for label in range(10):
            writer.add(generator.standard_normal((3, 32, 32), np.float32), label)
    return tmp_path / "data.bin"


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], terminal_width=160)


def test_the_layers_are_shown_worst_first_and_written_as_json(program, data, tmp_path):
    done = run(program, data, "--json", tmp_path / "analysis.json")

    found = quaver.Analysis.load(tmp_path / "analysis.json")
    assert done.exit_code == 0, done.output
    assert found.images == 10
    shown = [line.split("│")[1].strip() for line in done.output.splitlines() if line.startswith("│")]
    assert shown == [layer.name for layer in found.worst_first()]


def test_digits_come_with_the_package(program, tmp_path):
    done = run(program, "digits", "--batch-num", 2, "--batch-size", 30, "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").images == 60


def test_sensitivity_and_a_proposal_are_shown(program, data):
    done = run(program, data, "--sensitivity", 10, "--target-drop", 0.5)

    assert done.exit_code == 0, done.output
    assert "top-1 on 10 images: float" in done.output
    assert "Every layer can be quantized" in done.output


def test_an_image_with_nan_is_left_out_and_said(program, data, tmp_path):
    with BinaryWriter(tmp_path / "nan.bin", image_shape=(3, 32, 32), classes=10, layout="header") as writer:
        for label in range(10):
            writer.add(np.full((3, 32, 32), np.nan if label == 6 else label, np.float32), label)

    arguments = ("--batch-size", 5, "--sensitivity", 10, "--json", tmp_path / "analysis.json")
    done = run(program, tmp_path / "nan.bin", *arguments)

    assert done.exit_code == 0, done.output
    assert "input: NaN or Inf in 1 of 2 batches, which are left out." in done.output
    assert "Images with NaN or Inf, left out of this: 1." in done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").sensitivity.images == 9


def figures_of(output):
    """The cells of the table, by title."""
    lines = [line.strip("┃│").replace("┃", "│").split("│") for line in output.splitlines() if line[:1] in ("┃", "│")]
    return {title.strip(): [cells[column].strip() for cells in lines[1:]] for column, title in enumerate(lines[0])}


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 120])
@pytest.mark.parametrize("options", [(), ("--sensitivity", 4)])
def test_no_figure_is_cut_however_narrow_the_screen(program, data, monkeypatch, columns, options):
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = figures_of(run(program, data, *options).output)
    monkeypatch.setenv("COLUMNS", str(columns))

    done = run(program, data, *options)

    shown = figures_of(done.output)
    assert max(len(line) for line in done.output.splitlines() if line[:1] in ("┃", "│")) <= columns
    assert {title: whole[title] for title in shown} == shown
    assert {"layer", "dB"} <= set(shown)
    assert ("No room for" in done.output) == (len(shown) < len(whole))


def test_a_long_name_takes_several_lines_of_a_narrow_screen(data, tmp_path, monkeypatch):
    net = nn.Sequential()
    net.add_module("a_very_long_name_of_a_layer_that_somebody_chose", nn.Conv2d(3, 4, 3))
    quaver.save(quaver.capture(net, (torch.randn(2, 3, 32, 32),)), tmp_path / "program")
    monkeypatch.setenv("COLUMNS", "60")

    shown = figures_of(run(tmp_path / "program", data).output)

    assert "".join(shown["layer"]) == "a_very_long_name_of_a_layer_that_somebody_chose"
    assert shown["dB"][0]


def test_a_pipe_gets_every_column_and_no_empty_line_first(program, data, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    done = run(program, data, "--sensitivity", 4)

    titles = "layer type bits largest moving clipped zeros in dB w dB dB only without"
    assert " ".join(figures_of(done.output)) == titles
    assert "quantized layers, worst first" in done.output.splitlines()[0]


def test_the_error_of_an_int8_program_is_called_that_of_its_inputs(program, data, tmp_path):
    _, int8 = quaver.convert(quaver.load(program), save_int8=True)

    done = run(quaver.save(int8, tmp_path / "int8"), data)

    shown = figures_of(done.output)
    assert "input dB" in shown
    assert "dB" not in shown


def test_only_as_many_rows_as_asked_for_are_shown(program, data):
    done = run(program, data, "--rows", 1)

    assert "1 of 4 quantized layers" in done.output


def test_without_a_file_it_is_said_that_nothing_was_kept(program, data):
    assert "--json FILE writes the analysis" in run(program, data).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.bin"], "no data set of this name. Known: digits"),
        (["digits", "--target-drop", "0.01"], "--sensitivity 512"),
        (["digits", "--json", "/dev/null/analysis.json", "--batch-num", "1"], "could not be written"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_code_2(program, arguments, message):
    done = run(program, *arguments)

    assert done.exit_code == 2
    assert message in done.output


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path):
    done = run(tmp_path / "no program", "--json", tmp_path)

    assert done.exit_code == 2
    assert "could not be written: this is a folder" in done.output.replace("\n", " ")


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(0)
    save_file(net(10).state_dict(), tmp_path / "fp32.safetensors")
    return tmp_path / "fp32.safetensors"


@pytest.mark.parametrize("data", [["digits"], ["--dataset", "digits"], ["--data-dir", ""]])
def test_a_model_with_its_weights_is_looked_at_as_quaver_quantize_names_it(weights, data, tmp_path):
    named = ["--model", "tiny:net", "--pretrained_fp32_model", weights, "--image_shape", "3,8,8", "--batch_num", 2]

    done = run(*data, *named, "--sensitivity", 20, "--target-drop", 0.01, "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    found = quaver.Analysis.load(tmp_path / "analysis.json")
    assert (found.stage, found.images, found.sensitivity.images) == ("float", 100, 20)
    assert found.proposal is not None
    assert {layer.name for layer in found.layers} > {"stem.0", "body.0", "head"}


def test_a_model_takes_a_data_file_and_its_classes(data, weights):
    done = run(data, "--model", "tiny:net", "--pretrained-fp32-model", weights)

    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a program's folder, or a model: --model NAME --pretrained_fp32_model"),
        (["--model", "resnet20"], "--model resnet20: give its weights, too"),
        (["out", "digits", "--model", "resnet20"], "out and --model: both name what to look at"),
        (["--pretrained_fp32_model", "{weights}"], "fp32.safetensors: does not fit"),
        (["--model", "resnet20", "--class_dim", "x"], "class_dim='x': takes a whole number"),
    ],
)
def test_a_model_that_is_named_by_halves_is_said(weights, arguments, message):
    done = run(*(word.format(weights=weights) for word in arguments))

    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_sensitivity_of_a_program_without_float_layers_names_the_flags_that_lead_there(program, tmp_path):
    frozen = quaver.save(quaver.convert(quaver.load(program)), tmp_path / "float")

    done = run(frozen, "digits", "--sensitivity", 64)

    assert done.exit_code == 2
    assert "--sensitivity 64" in done.output
    assert "--model NAME --pretrained_fp32_model" in " ".join(done.output.split())


def write_cifar10(place):
    generator = np.random.default_rng(0)
    place.mkdir()
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (place / f"{name}.bin").write_bytes(bytes(generator.integers(0, 10, 4 * 3073, dtype=np.uint8)))
    return place


def write_pictures(place, size=40):
    generator = np.random.default_rng(0)
    for split, count in (("train", 2), ("val", 3)):
        for name in ("cat", "dog"):
            (place / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / split / name / f"{number}.png")
    return place


def write_ilsvrc(place):
    write_pictures(place)
    for split, count in (("train", 2), ("val", 3)):
        lines = [f"{name}/{number}.png {label}" for label, name in enumerate(("cat", "dog")) for number in range(count)]
        (place / f"{split}_list.txt").write_text("\n".join(lines))
    return place


SETS = {"cifar10": (write_cifar10, 4, 20), "folder": (write_pictures, 6, 4), "ilsvrc": (write_ilsvrc, 6, 4)}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("how", ["both flags", "folder alone", "with hyphens", "argument", "name and folder"])
def test_every_data_set_of_quaver_quantize_is_taken(program, tmp_path, name, how):
    write, images, _ = SETS[name]
    place = write(tmp_path / "images")
    arguments = {
        "both flags": ["--dataset", name, "--data_dir", place],
        "folder alone": ["--data_dir", place],
        "with hyphens": ["--data-dir", place, "--batch-size", 3],
        "argument": [place, "--batch_size", 3],
        "name and folder": [name, "--data_dir", place],
    }

    done = run(program, *arguments[how], "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").images == images


@pytest.mark.parametrize("name", SETS)
def test_the_training_images_can_be_looked_at_instead(program, tmp_path, name):
    write, _, images = SETS[name]

    done = run(program, write(tmp_path / "images"), "--split", "train", "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").images == images


def test_without_any_data_named_it_is_digits_as_in_training(program, tmp_path):
    done = run(program, "--batch-num", 1, "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").images == 50


def test_labels_of_a_data_set_count_for_sensitivity(program, tmp_path):
    done = run(program, write_pictures(tmp_path / "images"), "--sensitivity", 6)

    assert "top-1 on 6 images: float" in done.output


def test_an_image_shape_goes_before_the_programs(program, tmp_path):
    done = run(program, write_pictures(tmp_path / "images"), "--image_shape", "3,64,64")

    assert done.exit_code == 2
    assert "64" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "Did you mean 'digits'?"),
        (["--dataset", "cifar"], "dataset='cifar': takes one of auto, digits, cifar10"),
        (["--data_dir", "nowhere"], "data_dir='nowhere': there is no such folder"),
        (["digits", "--dataset", "cifar10"], "both name the data. Give one of them"),
        ([".", "--data_dir", "."], "both name a folder. Give one of them"),
        (["{data}", "--dataset", "digits"], "a data file was given, and --dataset or --data_dir as well"),
        (["--image_shape", "wide"], "image_shape"),
        (["--dataset", "cifar10", "--data_dir", "{empty}"], "{empty}"),
    ],
)
def test_data_that_is_not_there_or_named_twice_is_said(program, data, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    places = {"data": data, "empty": tmp_path / "empty"}

    done = run(program, *(word.format(**places) for word in arguments))

    assert done.exit_code == 2
    assert message.format(**places) in done.output.replace("\n", "")
