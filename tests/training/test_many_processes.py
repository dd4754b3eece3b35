"""Two processes with half the batch each train what one trains with all of it."""

import os
import socket
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import two_processes
from children import child
from limits import AN_HOUR

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
SOURCE = Path(two_processes.quaver.__file__).parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(*command, world=2):
    """The same command in several processes that know of each other, as torchrun would start them."""
    shared = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    with ExitStack() as stack:
        yield [stack.enter_context(child([sys.executable, *command], env=shared | place)) for place in places]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Two processes that ran, and fell over at last: their folder, exit codes and what they wrote of errors."""
    folder = tmp_path_factory.mktemp("ranks")
    with started(TESTS / "two_processes.py", folder) as processes:
        errors = [process.communicate(timeout=AN_HOUR)[1] for process in processes]
    return folder, [process.returncode for process in processes], errors


@pytest.fixture(scope="module")
def ranks(ended):
    """What the two processes came to: a table of runs, each a table of tensors, per process."""
    folder, _, errors = ended
    assert (folder / "rank1.safetensors").exists(), errors
    found = []
    for rank in range(2):
        runs = {}
        for name, tensor in load_file(folder / f"rank{rank}.safetensors").items():
            run, _, key = name.partition("/")
            runs.setdefault(run, {})[key] = tensor
        found.append(runs)
    return found


@pytest.fixture(scope="module")
def alone():
    return two_processes.alone()


def ranges(state):
    """What the quantizers of a state know."""
    known = ("accum", "state", "window", "steps", "last")
    return {name: tensor for name, tensor in state.items() if name.rsplit(".", 1)[-1] in known}


@pytest.mark.parametrize("run", [*two_processes.RUNS, "nan", "started", "synced_modules", "started_by_one", "resumed"])
def test_both_processes_hold_the_same_bits(ranks, run):
    one, other = (found[run] for found in ranks)

    # batch-norm statistics of a batch with NaN are NaN, which equals nothing
    assert [name for name in one if not torch.equal(one[name].nan_to_num(7), other[name].nan_to_num(7))] == []


@pytest.mark.parametrize("run", ["one_step", "range_abs_max", "abs_max"])
def test_thresholds_of_the_same_weights_are_exactly_those_of_one_process(ranks, alone, run):
    shared, whole = ranges(ranks[0][run]), ranges(alone[run])

    assert len(whole) >= 4
    assert [name for name in whole if not torch.equal(shared[name], whole[name])] == []


# Gradients are sums over a batch, and halves of it add up in another order: float32 rounding, which every step carries on.
# Half an integer's step is the most a rounded value can be moved by it.
@pytest.mark.parametrize(
    ("run", "tolerance"), [("one_step", 1e-6), ("two_epochs", 1e-4), ("frozen", 1e-4), ("learned_step", 1e-4)]
)
def test_weights_and_statistics_are_those_of_one_process_to_float_rounding(ranks, alone, run, tolerance):
    shared, whole = ranks[0][run], alone[run]

    far = [name for name in whole if not torch.allclose(shared[name], whole[name], rtol=tolerance, atol=tolerance)]
    assert far == []


def test_learned_steps_start_where_one_process_with_the_whole_batch_starts_them(ranks, alone):
    steps = {name: tensor for name, tensor in alone["started"].items() if name.endswith(".step")}

    assert len(steps) >= 4
    assert all(tensor > 0 for tensor in steps.values())
    assert [name for name in steps if not torch.equal(ranks[0]["started"][name], steps[name])] == []


def test_modules_that_torch_made_synchronized_take_the_statistics_of_all_processes(ranks, alone):
    shared, whole = ranks[0]["synced_modules"], alone["synced_modules"]

    torch.testing.assert_close(shared, whole, rtol=1e-6, atol=1e-6)  # variances add up in another order, as above
    assert whole["stem.1.num_batches_tracked"] == 1
    assert whole["body.1.num_batches_tracked"] == 0


def test_a_process_without_images_or_with_nan_starts_no_step_of_its_own(ranks):
    for found in ranks:
        state = found["started_by_one"]
        assert state["after_nan"] == 0
        assert state["nonfinite"] == 1
        assert state["step"] == pytest.approx(3 / 127)  # less than 2·mean/√127


def test_nan_in_one_process_moves_no_threshold_in_any(ranks):
    for found in ranks:
        state = found["nan"]
        moved = [name for name in ranges(state) if name.startswith("after.") and "stem.2" not in name]
        assert moved
        assert [name for name in moved if not torch.equal(state[name], state["before." + name.removeprefix("after.")])] == []


def test_a_run_of_two_goes_on_from_its_checkpoint_to_the_same_bits(ranks):
    resumed, straight = (ranks[0][run] for run in ("resumed", "straight"))

    assert [name for name in resumed if not torch.equal(resumed[name], straight[name])] == []


def test_evaluation_counts_every_image_exactly_once(ranks, alone):
    own = [int(found["counted"]["own"]) for found in ranks]
    figures = [found["counted"]["figures"] for found in ranks]

    assert sum(own) == int(alone["counted"]["own"]) == 359
    assert abs(own[0] - own[1]) <= 8  # the last batch may be shared unevenly, by one image per batch
    assert torch.equal(figures[0], figures[1])
    torch.testing.assert_close(figures[0], alone["counted"]["figures"], rtol=1e-6, atol=0)


def test_one_process_that_dies_ends_the_job_with_its_error(ended):
    _, codes, errors = ended

    assert codes[0] != 0
    assert codes[1] != 0
    assert "RuntimeError: rank 1 fell over" in errors[1]
