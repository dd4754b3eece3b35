"""Checkpoints: whole or not there, the last two, and a run that goes on from one ends as if it had never stopped."""

import copy
import errno
import json
import os
import resource
import shutil
import signal
from math import inf, nan

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StoppedError, StorageError
from quaver.training.checkpoint import Checkpoint, Checkpoints
from quaver.training.interruption import Interruption
from quaver.training.listener import MetricsFile
from quaver.training.trainer import Trainer
from tiny import Kept, Noise, assert_same_state, state_of, tiny_job, tiny_program


def some(number=1, **record):
    return Checkpoint(f"quantize-{number:09d}", {"x": torch.full((1000,), float(number))}, {"number": number, **record})


def test_figures_that_are_no_numbers_come_back_from_a_file_that_is_json(tmp_path):
    record = {
        "metrics": {"loss": nan, "top1": 0.1, "images": 3},
        "watchdog": [inf, {"first": -inf}],
        "recipe": {"model": "nan"},
    }

    Checkpoints(tmp_path).save(some(1, **record))

    def refuse(word):
        raise ValueError(word)

    (file,) = tmp_path.glob("*.json")
    json.loads(file.read_text(), parse_constant=refuse)
    assert repr(Checkpoints(tmp_path).read(file.stem).record) == repr({"number": 1, **record})


# going on

OPTIONS = {
    "plain": {},
    "everything": {"ema": 0.9, "freeze_bn_epoch": 1, "freeze_observers_epoch": 1, "clip_norm": 1.0, "reestimate_bn": 2},
    "adamw": {"optimizer": "adamw", "lr": 0.01},
    "range rule": {"program": {"activation_quantize_type": "range_abs_max", "weight_quantize_type": "abs_max"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_from_every_checkpoint_a_run_goes_on_to_the_same_bits(tmp_path, options):
    options = dict(options)
    config = options.pop("program", None)

    def program():
        return tiny_program() if config is None else quaver.quant_aware(tiny_program(quantized=False), config)

    kept = Kept(tmp_path)
    whole = tiny_job(program(), checkpoints=kept, checkpoint_period=1, **options)
    figures = Trainer(whole).run()

    for saved in kept.all:
        torch.manual_seed(99)  # another process's random numbers
        job = tiny_job(program(), **options)
        assert Trainer(job).run(saved) == figures
        assert_same_state(state_of(job.program), state_of(whole.program))
    assert len(kept.all) == 9  # one at the start, three in each epoch, one behind each


def test_zero_points_that_training_started_with_come_from_its_checkpoint(tmp_path):
    torch.manual_seed(0)
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish(), nn.Conv2d(8, 8, 3), nn.ReLU(), *ends)
    images = 4 * torch.randn(16, 3, 8, 8)
    kept = Kept(tmp_path)
    whole = tiny_job(quaver.calibrate(model.eval(), [images]), checkpoints=kept, checkpoint_period=2)
    figures = Trainer(whole).run()

    job = tiny_job(quaver.quant_aware(copy.deepcopy(model), example_inputs=(images,)))

    assert Trainer(job).run(kept.all[1]) == figures
    assert_same_state(state_of(job.program), state_of(whole.program))
    assert any(name.endswith("zero_point") for name in whole.program.state_dict())


def test_an_optimizer_of_custom_functions_goes_on_too(tmp_path):
    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.limit = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return torch.minimum(x, self.limit)

    def job(**changes):
        program = quaver.quant_aware(
            tiny_program(quantized=False), act_preprocess_func=Clip, optimizer_func=lambda p: torch.optim.Adam(p, lr=0.1)
        )
        return tiny_job(program, **changes)

    kept = Kept(tmp_path)
    whole, again = job(checkpoints=kept, checkpoint_period=3), job()
    Trainer(whole).run()

    Trainer(again).run(kept.all[1])

    assert_same_state(state_of(again.program), state_of(whole.program))


def test_metrics_are_cut_to_where_the_checkpoint_was_made(tmp_path):
    kept = Kept(tmp_path / "checkpoints")
    Trainer(tiny_job(checkpoints=kept, checkpoint_period=3, listeners=(MetricsFile(tmp_path / "whole"),))).run()
    (tmp_path / "again").write_bytes((tmp_path / "whole").read_bytes())

    Trainer(tiny_job(listeners=(MetricsFile(tmp_path / "again"),))).run(kept.all[1])

    whole = (tmp_path / "whole").read_text()
    assert (tmp_path / "again").read_text() == whole
    assert len([json.loads(line) for line in whole.splitlines()]) == 10


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    kept = Kept(tmp_path)
    Trainer(tiny_job(tiny_program(quantized=False), checkpoints=kept, num_epochs=1)).run()

    with pytest.raises(StorageError, match="float-000000000: it is of another model, or of other options"):
        Trainer(tiny_job()).run(kept.all[0])


# signals


class Signalling(Noise):
    """Has a signal come before one of its batches."""

    def __init__(self, number, batch, **options):
        super().__init__(**options)
        self.number, self.batch, self.sent = number, batch, False

    def epoch(self, k, start=0):
        for index, batch in enumerate(super().epoch(k, start), start):
            if index == self.batch and not self.sent:
                self.sent = True
                signal.getsignal(self.number)(self.number, None)  # as the interpreter does for a real one
            yield batch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["training", "evaluation"])
def test_a_signal_saves_and_says_how_to_go_on_and_the_end_is_the_same(tmp_path, number, where):
    checkpoints = Checkpoints(tmp_path)
    whole, again = tiny_job(ema=0.9), tiny_job(ema=0.9)
    Trainer(whole).run()
    signalling = {"batches": Signalling(number, 2)} if where == "training" else {"test": Signalling(number, 1, batches=2)}
    job = tiny_job(ema=0.9, checkpoints=checkpoints, resume="quaver quantize --checkpoint out", **signalling)

    with (
        Interruption() as stop,
        pytest.raises(StoppedError, match=r"and saved. Go on with: quaver quantize --chec") as stopped,
    ):
        Trainer(job, stop).run()
    Trainer(again).run(checkpoints.newest(print))

    assert stopped.value.exit_code == 128 + number
    assert_same_state(state_of(again.program), state_of(whole.program))


def test_handlers_of_signals_are_put_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    with Interruption() as stop:
        signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)
        after_one = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    assert stop.number == signal.SIGTERM
    assert after_one == before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))


# files


def test_the_last_two_are_kept_and_nothing_else(tmp_path):
    checkpoints = Checkpoints(tmp_path)

    for number in range(5):
        checkpoints.save(some(number))

    assert checkpoints.names() == ["quantize-000000003", "quantize-000000004"]
    assert len(os.listdir(tmp_path)) == 4


def test_a_checkpoint_of_the_same_name_replaces_the_one_before(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1, turn="first"))

    checkpoints.save(Checkpoint("quantize-000000001", {"x": torch.zeros(3)}, {"turn": "second"}))

    found = checkpoints.newest(print)
    assert found.record == {"turn": "second"}
    assert torch.equal(found.tensors["x"], torch.zeros(3))
    assert len(os.listdir(tmp_path)) == 2


def test_nothing_is_found_where_nothing_was_written(tmp_path):
    assert Checkpoints(tmp_path / "none").newest(print) is None


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, remove], ids=lambda f: f.__name__)
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_is_used(tmp_path, damage, suffix):
    checkpoints, said = Checkpoints(tmp_path), []
    for number in (1, 2):
        checkpoints.save(some(number))
    damage(next(tmp_path.glob(f"quantize-000000002*.{suffix}")))

    found = checkpoints.newest(said.append)

    assert found.record["number"] == 1
    assert torch.equal(found.tensors["x"], torch.full((1000,), 1.0))
    if not (damage is remove and suffix == "json"):  # then it was never finished
        assert len(said) == 1
        assert "quantize-000000002" in said[0]
        assert "Going on from the one before, quantize-000000001" in said[0]


def test_a_record_that_was_changed_is_damaged_even_if_it_can_be_read(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1))
    path = tmp_path / "quantize-000000001.json"
    path.write_text(path.read_text().replace('"number":1', '"number":7'))

    with pytest.raises(StorageError, match="damaged: its checksum differs"):
        checkpoints.read("quantize-000000001")


def test_when_all_are_damaged_that_is_an_error_that_names_them(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save(some(number))
    for path in tmp_path.glob("*.safetensors"):
        flip(path)

    with pytest.raises(StorageError, match=r"quantize-000000002.*damaged.*quantize-000000001.*damaged"):
        checkpoints.newest(print)


def test_a_damaged_checkpoint_that_was_set_aside_is_not_taken_for_the_newest(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save(some(number))
    flip(next(tmp_path.glob("quantize-000000002*.safetensors")))

    checkpoints.set_aside(after="quantize-000000001")
    checkpoints.save(some(3))

    assert checkpoints.names() == ["quantize-000000001", "quantize-000000003"]


@pytest.mark.parametrize(("call", "nth"), [("replace", 1), ("replace", 2), ("fsync", 1), ("fsync", 3)])
def test_a_full_disk_is_one_error_and_the_checkpoint_before_is_intact(tmp_path, monkeypatch, call, nth):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1))
    works, calls = getattr(os, call), []

    def full(*args):
        calls.append(args)
        if len(calls) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return works(*args)

    monkeypatch.setattr(os, call, full)

    with pytest.raises(StorageError, match=r"could not be written: .*No space left.*before, quantize-000000001, is intact"):
        checkpoints.save(some(2))
    assert checkpoints.newest(print).record["number"] == 1


def test_a_file_that_grows_too_large_in_the_middle_leaves_the_checkpoint_before(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))  # bytes: half of the tensors
    try:
        with pytest.raises(StorageError, match=r"could not be written: .*File too large.*is intact"):
            checkpoints.save(some(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert checkpoints.newest(print).record["number"] == 1
    assert not list(tmp_path.glob(".*draft"))


def test_training_on_a_full_disk_stops_with_that_error(tmp_path):
    Trainer(tiny_job(checkpoints=Checkpoints(tmp_path / "first"), num_epochs=0)).run()
    (first,) = (tmp_path / "first").glob("*.safetensors")
    job = tiny_job(checkpoints=Checkpoints(tmp_path / "run"), checkpoint_period=1)
    trainer = Trainer(job)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    # bytes: the first checkpoint fits, the next has the momentum, too
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.stat().st_size + 100, before[1]))
    try:
        with pytest.raises(StorageError, match=r"quantize-000000001.json: the checkpoint could not be written"):
            trainer.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert job.checkpoints.newest(print).name == "quantize-000000000"


def test_a_checkpoint_of_another_version_is_named(tmp_path):
    (tmp_path / "quantize-000000001.json").write_text('{"format":"quaver.checkpoint","version":9}')

    with pytest.raises(StorageError, match="version 9"):
        Checkpoints(tmp_path).newest(print)


FOREIGN = {
    "notes.json": '{"format":"x"}',
    "quantize-000000009.json": '{"mine": 1}',
    "float-000000001.json": "[]",
    "ema.safetensors": "mine",
    "quantize-000000001-0123456789abcdef.safetensors": "mine",
    "notes.draft": "mine",
    ".quantize-000000001.json.draft": "mine",
}


def test_files_of_others_are_no_checkpoints_and_are_never_removed(tmp_path):
    for name, content in FOREIGN.items():
        (tmp_path / name).write_text(content)
    checkpoints = Checkpoints(tmp_path)

    assert checkpoints.newest(print) is None
    for number in range(2, 6):
        checkpoints.save(some(number))

    assert checkpoints.names() == ["quantize-000000004", "quantize-000000005"]
    assert {name: (tmp_path / name).read_text() for name in FOREIGN} == FOREIGN
    assert len(os.listdir(tmp_path)) == len(FOREIGN) + 4


def test_tensors_that_two_checkpoints_share_by_name_are_not_removed_with_the_first(tmp_path):
    """An index that names another's tensors, as a copy of it does."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1))
    shutil.copy(tmp_path / "quantize-000000001.json", tmp_path / "quantize-000000009.json")

    for number in (2, 3):
        checkpoints.save(some(number))

    assert checkpoints.names() == ["quantize-000000003", "quantize-000000009"]
    assert checkpoints.read("quantize-000000009").record["number"] == 1
