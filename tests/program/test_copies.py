"""A deep copy is a program of its own; pickle is refused."""

import copy
import io
import pickle

import pytest
import torch

import quaver
from quaver.errors import StageError

STAGES = ["float", "prepared", "trained", "frozen", "int8", "mobile", "view"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_deep_copy_computes_the_same(stages, images, stage):
    program = stages[stage]

    twin = copy.deepcopy(program)

    assert (twin.stage, twin.for_test, twin.training) == (program.stage, program.for_test, program.training)
    assert twin.ops() == program.ops()
    assert list(twin.state_dict()) == list(program.state_dict())
    assert torch.equal(torch.nn.Module.train(twin, False)(images), program.clone(for_test=True)(images))


@pytest.mark.parametrize("stage", STAGES)
def test_a_deep_copy_shares_no_memory(stages, stage):
    program = stages[stage]

    twin = copy.deepcopy(program)

    pointers = {tensor.data_ptr() for tensor in (*program.parameters(), *program.buffers()) if tensor.numel()}
    copies = {tensor.data_ptr() for tensor in (*twin.parameters(), *twin.buffers()) if tensor.numel()}
    assert pointers
    assert not pointers & copies


@pytest.mark.parametrize("one", ["original", "copy"])
def test_training_one_leaves_the_other_alone(trained, images, train, one):
    twin = copy.deepcopy(trained)
    to_train, other = (trained, twin) if one == "original" else (twin, trained)
    before, thresholds = other.clone(for_test=True)(images), other.ops()

    train(to_train)

    assert torch.equal(other.clone(for_test=True)(images), before)
    assert other.ops() == thresholds
    assert to_train.ops() != thresholds


def test_a_deep_copy_trains_as_the_original(trained, train):
    twin = copy.deepcopy(trained)

    assert train(twin, 3) == train(trained, 3)


def test_tied_weights_stay_tied_in_a_deep_copy(trained):
    twin = copy.deepcopy(trained)

    names = dict(twin.named_parameters(remove_duplicate=False))
    assert names["conv.weight"] is names["tied.weight"]


def test_a_deep_copy_can_be_prepared_on_its_own(program, images):
    twin = quaver.quant_aware(copy.deepcopy(program))

    twin.train()(images)

    assert program.stage is quaver.Stage.FLOAT
    assert not any("quantizers" in name for name in program.state_dict())


@pytest.mark.parametrize("write", [pickle.dumps, lambda program: torch.save(program, io.BytesIO())], ids=["pickle", "torch"])
def test_pickling_is_refused_with_the_way_out(trained, write):
    with pytest.raises(StageError, match=r"not pickled: write it with quaver\.save\(program, folder\).*quaver\.load"):
        write(trained)
