"""The tree that `quaver convert` writes: each folder holds something that the tester runs, or it is said what is missing."""

import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data.binary import BinaryWriter
from quaver.engines import ENGINES
from quaver.errors import EngineError
from quaver.measure.accuracy import top_k_hits

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

IMAGES = torch.randn(23, 3, 8, 8, generator=torch.Generator().manual_seed(5))
LABELS = torch.arange(23).numpy() % 10


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A folder with a trained program, what `quaver convert` made of it without the mobile engines, and a data file."""
    place = tmp_path_factory.mktemp("tree")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    trained = quaver.quant_aware(net, example_inputs=(IMAGES[:2],))
    trained.train()(IMAGES)
    quaver.save(trained, place / "program")
    with pytest.MonkeyPatch.context() as patch:
        for engine in (engine for engine in ENGINES.values() if engine.folder == "mobile"):
            patch.setattr(type(engine), "can_write", False)
        done = run("convert", place / "program", place / "out")
    assert done.exit_code == 0, done.output
    with BinaryWriter(place / "data.bin", image_shape=(3, 8, 8), classes=10, layout="header") as writer:
        for image, label in zip(IMAGES.numpy(), LABELS, strict=True):
            writer.add(image, label)
    return place, done.output


@pytest.mark.parametrize("folder", ["out/float", "out/mobile", "program"])
def test_a_folder_with_a_program_alone_is_tested_on_pytorch(tree, tmp_path, folder):
    place, _ = tree
    expected = quaver.load(place / folder).eval()(IMAGES).detach().numpy()

    done = run(
        *("test", "--infer_model", place / folder, "--infer_data", place / "data.bin"),
        *("--batch_size", 4, "--json", tmp_path / "figures.json"),
    )

    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["engine"] == "PyTorch"
    assert found["hits1"] == top_k_hits(expected, LABELS, 1).sum()
    assert found["hits5"] == top_k_hits(expected, LABELS, 5).sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*XNNPACK takes no int8 weights:quaver.errors.QuaverWarning")  # mobile/, if it can be
@pytest.mark.parametrize("source", ["program", "out/float"])
def test_the_ops_that_run_in_int8_are_chosen_at_conversion_with_the_references_flags(tree, tmp_path, source):
    place, _ = tree
    flags = [f"--quant_model_path={place / source}", f"--int8_model_save_path={tmp_path / 'out'}"]

    done = run("convert", *flags, "--quantized_ops=conv2d,pool2d")

    assert done.exit_code == 0, done.output
    assert "In int8: 1 conv2d. In float, with the weights as they were rounded: 1 flatten, 1 mul." in done.output
    assert {op.type for op in quaver.load(tmp_path / "out" / "int8").ops() if op.quantized} == {"conv2d"}
    compared = run("verify", tmp_path / "out" / "float", tmp_path / "out" / "int8", place / "data.bin")
    assert compared.exit_code == 0, compared.output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fp32_model_save_path=x"], "leave the float model, in fp32/"),
        (["--op_ids_to_skip=3"], "--not_quant_pattern"),
        (["a", "b", "--quant_model_path=c"], "give PROGRAM or --quant_model_path, not both"),
        ([], "give PROGRAM or --quant_model_path: quaver convert PROGRAM OUT"),
    ],
)
def test_a_conversion_that_cannot_be_is_refused_in_words(flags, message):
    done = run("convert", *flags)

    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_where_a_file_for_an_engine_lies_beside_the_program_the_engine_runs_it(tree, tmp_path):
    place, _ = tree

    done = run("test", "--infer_model", place / "out" / "int8", "--infer_data", place / "data.bin")

    assert done.exit_code == 0, done.output
    assert "(PyTorch, " not in done.output


def test_without_the_mobile_engine_a_conversion_says_how_to_get_its_file(tree):
    place, output = tree

    mobile = place / "out" / "mobile"
    assert f"{mobile} holds the program, but no model.pte: executorch is not installed." in output
    assert (
        f"pip install 'quaver[executorch]', quaver export {place / 'out' / 'float'} {mobile} --target executorch" in output
    )


@pytest.mark.slow
def test_a_file_that_an_engine_has_no_form_for_is_left_out_with_the_reason(tree, tmp_path, monkeypatch):
    place, _ = tree
    refused = "LiteRT: 'cummax': there is no form of it."

    def write(*arguments):
        raise EngineError(refused)

    monkeypatch.setattr(type(ENGINES["executorch"]), "can_write", False)
    monkeypatch.setattr(type(ENGINES["litert"]), "can_write", True)
    monkeypatch.setattr(type(ENGINES["litert"]), "write", write)

    done = run("convert", place / "program", tmp_path / "out")

    assert done.exit_code == 0, done.output
    assert f"model.tflite is left out: {refused}".replace(" ", "") in "".join(done.output.split())
    assert (tmp_path / "out" / "mobile" / "program.json").exists()


def test_what_float_is_is_said_where_it_is_written_and_where_it_is_taken_for_the_float_model(tree):
    place, output = tree

    done = run("bench", place / "out" / "int8", "--float", place / "out" / "float")

    words = " ".join(done.output.split())
    assert "float/ is the int8 model, its integers stored as float32" in " ".join(output.split())
    assert done.exit_code == 2
    assert "float/ of a conversion is the int8 model" in words
    assert "fp32" in words
