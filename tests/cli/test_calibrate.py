import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from tiny import net

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "fp32.safetensors"
    save_file(net(10).state_dict(), file)
    return file


def run(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)], terminal_width=160)


def test_a_model_and_its_weights_become_a_calibrated_program(weights, tmp_path):
    done = run(
        *(tmp_path / "out", "digits", "--model", "tiny:net", "--pretrained_fp32_model", weights),
        *("--images", 40, "--weight-bits", 4, "--no_equalize"),
    )

    program = quaver.load(tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert program.stage is quaver.Stage.PREPARED
    assert program.quantizer("stem.0.weight").grid.bits == 4
    assert program.unseen() == []
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(quaver.convert(program)(x), program.eval()(x))


def test_a_saved_program_is_calibrated_and_the_command_says_how_to_go_on(tmp_path):
    torch.manual_seed(0)
    quaver.save(quaver.capture(net(10), (torch.randn(2, 3, 32, 32),)), tmp_path / "float")

    done = run(tmp_path / "out", "digits", "--program", tmp_path / "float", "--images", 20)

    assert done.exit_code == 0, done.output
    assert f"quaver convert {tmp_path / 'out'}" in done.output.replace("\n", "")
    assert quaver.load(tmp_path / "out").stage is quaver.Stage.PREPARED


def test_wrong_flags_are_errors(weights, tmp_path):
    named = ("--model", "tiny:net", "--pretrained_fp32_model", weights)

    neither = run(tmp_path / "out", "digits")
    unknown = run(tmp_path / "out", "digits", *named, "--ranges", "best")
    bits = run(tmp_path / "out", "digits", *named, "--weight_bits", 9)

    assert "one of the two" in neither.output
    assert "one of output, tensor, largest" in unknown.output
    assert "from 2 to 8" in bits.output
    assert {neither.exit_code, unknown.exit_code, bits.exit_code} == {2}
    assert not (tmp_path / "out").exists()
