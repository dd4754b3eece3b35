import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quaver
from dying import dying_openvino
from limits import AN_HOUR
from quaver.cli.main import app
from quaver.data.binary import BinaryWriter
from quaver.errors import EngineError
from quaver.runtime import trial
from quaver.runtime.trial import tried

pytest.importorskip("openvino")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 4))
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    qat(torch.randn(4, 3, 8, 8))
    return quaver.convert(qat)


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    return quaver.export(program, tmp_path_factory.mktemp("exported"))


@pytest.fixture(autouse=True)
def child(monkeypatch):
    """A process for trials that is the test's own."""
    own = trial._Child()
    monkeypatch.setattr(trial, "_CHILD", own)
    yield own
    own.end()


def test_a_file_that_runs_runs_and_the_next_one_in_the_same_process(file, child):
    tried(file)
    first = child.process.pid
    tried(file)

    assert child.process.pid == first


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has loaded")
def test_the_process_has_the_engine_and_not_torch(file, child):
    tried(file)

    loaded = Path(f"/proc/{child.process.pid}/maps").read_text()

    assert "openvino" in loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGABRT"])
def test_an_engine_that_dies_is_an_error_with_the_signals_name(file, tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(dying_openvino(tmp_path, name))

    with pytest.raises(EngineError, match=rf"model.xml: openvino \S+ died of {name} \(.*processor is .*ONEDNN_MAX_CPU_ISA"):
        tried(file)


def test_an_engine_that_died_does_not_keep_the_next_file_from_running(file, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.syspath_prepend(dying_openvino(tmp_path))
        with pytest.raises(EngineError):
            tried(file)

    tried(file)


def test_the_last_words_of_an_engine_are_told(file, tmp_path, monkeypatch):
    script = tmp_path / "child.py"
    script.write_text("import os, sys; input(); print('tile 0 is empty', file=sys.stderr, flush=True); os.abort()")
    monkeypatch.setattr(trial.trial_child, "__file__", str(script))

    with pytest.raises(EngineError, match=r"SIGABRT \(aborted\), saying 'tile 0 is empty', when"):
        tried(file)


def test_a_process_that_was_idle_for_too_long_is_started_again(file, child):
    tried(file)
    first = child.process
    os.kill(first.pid, signal.SIGALRM)  # as it does itself
    first.wait()

    tried(file)

    assert child.process.pid != first.pid


def test_a_process_that_goes_as_it_is_asked_is_started_again(file, tmp_path, monkeypatch):
    script, mark = tmp_path / "child.py", tmp_path / "mark"
    script.write_text(
        "import os, signal, sys\ninput()\n"
        f"if os.path.exists({str(mark)!r}): print('alive', flush=True); sys.exit()\n"
        f"open({str(mark)!r}, 'w').close(); os.kill(os.getpid(), signal.SIGALRM)"
    )
    monkeypatch.setattr(trial.trial_child, "__file__", str(script))

    tried(file)

    assert mark.exists()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_made_while_a_file_is_tried_does_not_wait_for_it(child, tmp_path, monkeypatch):
    script, mark = tmp_path / "child.py", tmp_path / "mark"
    script.write_text(f"input(); open({str(mark)!r}, 'w').close(); input()")
    monkeypatch.setattr(trial.trial_child, "__file__", str(script))
    asking = Thread(target=child.died_of, args=("{}",))
    asking.start()
    while not mark.exists():
        time.sleep(0.01)

    fork = os.fork()
    if fork == 0:
        signal.alarm(AN_HOUR)  # for one that would wait for ever
        child.forget()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    os.kill(child.process.pid, signal.SIGTERM)  # of which the thread will hear
    asking.join()

    assert code == 0


def test_where_no_process_can_be_started_nothing_is_tried(file, child, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")

    tried(file)

    assert child.process is None


def test_what_an_engine_refuses_is_left_to_whoever_runs_it(tmp_path, child):
    file = tmp_path / "model.xml"
    file.write_text("no model")

    tried(file)

    assert child.process.poll() is None  # alive, which is all that counts


def test_an_export_whose_engine_dies_leaves_what_was_there_and_nothing_else(program, tmp_path, monkeypatch):
    place = tmp_path / "out"
    place.mkdir()
    (place / "model.xml").write_text("what was there")
    monkeypatch.syspath_prepend(dying_openvino(tmp_path / "engine"))

    with pytest.raises(EngineError, match=r"^export: openvino \S+ died of SIGILL"):
        quaver.export(program, place)

    assert [path.name for path in place.iterdir()] == ["model.xml"]
    assert (place / "model.xml").read_text() == "what was there"


@pytest.mark.parametrize("command", ["bench", "test", "verify"])
def test_a_command_survives_an_engine_that_dies_of_its_file(program, file, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    quaver.save(program, "program")
    with BinaryWriter(Path("data.bin"), image_shape=(3, 8, 8), classes=4, layout="header") as writer:
        writer.add(np.zeros((3, 8, 8), np.float32), 0)
    words = {
        "bench": [file],
        "test": ["--infer_model", file, "--infer_data", "data.bin"],
        "verify": ["program", file, "data.bin"],
    }
    monkeypatch.syspath_prepend(dying_openvino(tmp_path / "engine"))

    done = CliRunner().invoke(app, [command, *map(str, words[command])])

    assert done.exit_code == 2
    assert "died of SIGILL" in done.output
