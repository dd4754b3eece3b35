"""``--compile``: the same training, to float rounding, in as many compilations as there are kinds of steps."""

import pytest
import torch
from torch import nn

import quaver
from quaver.training import compile_training
from quaver.training.ranges_beside_statistics import RangesBesideStatistics
from quaver.training.trainer import Trainer
from tiny import Kept, assert_same_state, state_of, tiny_job

pytestmark = pytest.mark.slow

OPTIONS = {"num_epochs": 2, "lr": 0.02, "ema": 0.9, "checkpoint_period": 3, "watchdog_period": 2}


def program():
    """The smallest net with a batch norm, ranges that move, and nothing random: a compiler has numbers of its own."""
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return quaver.quant_aware(nn.Sequential(*body, nn.Flatten(), nn.Linear(4, 4)), example_inputs=(torch.zeros(1, 3, 8, 8),))


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that leaves nothing behind."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def trained(start=None, **options):
    job = tiny_job(program(), **(OPTIONS | options))
    return state_of(job.program), Trainer(job).run(start), state_of(job.program)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own, of whatever it imports
def test_a_compiled_run_is_that_of_a_plain_one_and_goes_on_from_a_checkpoint_to_the_same_bits(compiler, tmp_path):
    kept = Kept(tmp_path / "checkpoints")

    _, plain_figures, plain = trained()
    before, figures, compiled = trained(compile=True, checkpoints=kept)
    torch.manual_seed(99)
    _, _, again = trained(kept.all[1], compile=True)

    assert figures["top1"] == plain_figures["top1"]
    for name in plain:
        moved = (plain[name].double() - before[name].double()).abs().max()
        # a sum in another order: a few of float32's last bits after eight steps, far from what a step moves
        assert (compiled[name].double() - plain[name].double()).abs().max() <= 1e-6 + 1e-4 * moved, name
    assert kept.all[1].name == "quantize-000000003"
    assert_same_state(compiled, again)
    assert compiler["stats"]["unique_graphs"] == 2  # one for each run: what happens between steps compiles nothing anew
    assert not compiler["graph_break"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_step_for_replay_takes_its_ranges_from_channels_and_computes_the_same(compiler, monkeypatch):
    images, plain, replayed, looked = torch.randn(4, 3, 8, 8), program().train(), program().train(), []
    original = RangesBesideStatistics._read_extremes
    monkeypatch.setattr(
        RangesBesideStatistics, "_read_extremes", staticmethod(lambda *of: (looked.append(of[0]), original(*of)))
    )

    losses = [run(images).square().sum() for run in (plain, compile_training(replayed, cuda_graphs=True))]
    for loss in losses:
        loss.backward()

    assert looked  # the range behind the batch norm
    for (name, one), (_, other) in zip(plain.named_parameters(), replayed.named_parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-6), name
    for (name, one), (_, other) in zip(plain.named_buffers(), replayed.named_buffers(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6), name
