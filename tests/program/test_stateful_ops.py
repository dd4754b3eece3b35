"""Batch norms and dropouts of a program do what is said to their modules, as in the model itself."""

import copy

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StageError
from quaver.passes import QuantizationFreezePass
from quaver.program import TRAIN, storage


@pytest.fixture(params=["program", "trained"])
def either(request):
    """The float program, or one with quantizers that have seen data and stay as they are, ready to train."""
    return request.getfixturevalue(request.param).train().apply(quaver.disable_observer)


def statistics(program):
    return program.norm.running_mean.clone(), program.norm.running_var.clone(), int(program.norm.num_batches_tracked)


def assert_same(before, after):
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_batch_norm_in_eval_mode_keeps_its_statistics_and_trains_its_weight(either, images):
    for module in either.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    before = statistics(either)

    either(images).sum().backward()

    assert_same(before, statistics(either))
    assert either.norm.weight.grad.abs().sum() > 0


def test_a_batch_norm_in_eval_mode_normalizes_by_its_statistics(either, images):
    either.dropout.eval()
    either.norm.eval()
    first = either(images[:2])

    assert torch.equal(either(images)[:2], first)  # whatever else is in the batch
    assert not torch.equal(either.train()(images)[:2], first)


def test_train_puts_them_into_training_again(either, images):
    either.norm.eval()
    before = statistics(either)

    either.train()(images)

    assert statistics(either)[2] == before[2] + 1
    assert not torch.equal(statistics(either)[0], before[0])


@pytest.mark.parametrize("momentum", [0.5, None, 0.0])
def test_the_momentum_is_that_of_the_module(program, images, momentum):
    twin, seen = nn.BatchNorm2d(4, momentum=momentum), []
    program.norm.momentum = momentum
    program.stem.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))

    for step in range(3):
        program.train()(images * step)
        twin(seen[-1])

    assert_same([*twin.buffers()], [*program.norm.buffers()])


def test_without_tracking_a_batch_norm_goes_by_the_batch_and_notes_nothing(either, images):
    either.norm.track_running_stats = False
    before = statistics(either)

    either(images)

    assert_same(before, statistics(either))


def test_eps_is_that_of_the_module_in_training_evaluation_and_conversion(trained, images):
    before = trained.eval()(images)
    trained.norm.eps = 0.5

    given = trained(images)

    assert not torch.equal(given, before)
    assert torch.equal(quaver.convert(trained)(images), given)
    assert torch.equal(QuantizationFreezePass().apply(trained)(images), given)
    trained.train().norm.eval()
    trained.dropout.eval()
    with_large = trained(images)
    trained.norm.eps = 1e-3
    assert not torch.equal(trained(images), with_large)


def test_the_rate_of_a_dropout_is_that_of_the_module(either, images):
    either.norm.eval()
    either.dropout.p = 0.0
    assert torch.equal(either(images), either(images))

    either.dropout.p = 1.0

    dropped = either(images)
    assert torch.equal(dropped[0], dropped[1])  # nothing of the images is left


def test_a_dropout_in_eval_mode_drops_nothing(either, images):
    either.norm.eval()
    assert not torch.equal(either(images), either(images))

    either.dropout.eval()

    assert torch.equal(either(images), either(images))


@pytest.mark.parametrize("name", ["norm", "dropout"])
def test_a_module_that_trains_inside_an_evaluation_is_refused_by_name(trained, images, name):
    trained.eval().get_submodule(name).train()

    with pytest.raises(StageError, match=rf"'{name}' is in training mode, and the program evaluates.*program\.eval\(\)"):
        trained(images)


def test_update_bn_of_torch_gives_the_mean_over_its_batches(either, images):
    batches = [images, 2 * images + 1]
    means = []
    handle = either.stem.register_forward_hook(lambda module, inputs, output: means.append(output.mean((0, 2, 3))))

    torch.optim.swa_utils.update_bn(batches, either)

    torch.testing.assert_close(either.norm.running_mean, torch.stack(means).mean(0))
    assert int(either.norm.num_batches_tracked) == 2
    assert either.norm.momentum == 0.2
    handle.remove()


def test_programs_made_of_each_other_have_modes_of_their_own(program, images):
    prepared = quaver.quant_aware(program)
    prepared.train()(images)

    quaver.convert(prepared).eval()
    prepared.norm.momentum = 0.9
    view = prepared.clone(for_test=True)

    assert prepared.norm.training
    assert program.norm.momentum == 0.2
    assert not view.norm.training
    assert copy.deepcopy(prepared).norm.momentum == 0.9


# frozen for good


def test_frozen_batch_norms_stay_so_through_train_and_copies_until_they_are_freed(either, images):
    quaver.freeze_batch_norm(either)
    before = statistics(either)

    either.eval()
    either.train()(images).sum().backward()
    copy.deepcopy(either).train()(images)
    either.clone().train()(images)

    assert_same(before, statistics(either))
    assert either.norm.weight.grad.abs().sum() > 0
    quaver.unfreeze_batch_norm(either)
    either(images)
    assert statistics(either)[2] == before[2] + 1


def test_a_batch_norm_that_the_models_own_train_freezes_stays_frozen_and_can_be_freed(images):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

        def forward(self, x):
            return self.norm(x)

    program = quaver.capture(Frozen().train(), (images,))
    before = statistics(program)

    program.train()(images)

    assert_same(before, statistics(program))
    program.norm.train()
    program(images)
    assert statistics(program)[2] == 1


def test_freezing_what_cannot_be_trained_is_refused(stages):
    with pytest.raises(StageError, match="freeze_batch_norm: a frozen program is not trained"):
        quaver.freeze_batch_norm(stages["frozen"])
    with pytest.raises(quaver.errors.InputError, match=r"freeze_batch_norm: takes a Program, not Linear.*\.eval\(\)"):
        quaver.freeze_batch_norm(nn.Linear(1, 1))


# files


def test_a_program_that_was_read_has_batch_norms_and_dropouts_to_adjust(trained, images, tmp_path):
    trained.apply(quaver.disable_observer)
    trained.norm.momentum, trained.dropout.p = None, 0.4
    quaver.freeze_batch_norm(trained)
    quaver.save(trained, tmp_path)

    read = quaver.load(tmp_path)

    assert isinstance(read.norm, nn.BatchNorm2d)
    assert isinstance(read.dropout, nn.Dropout)
    assert (read.norm.momentum, read.norm.eps, read.norm.affine, read.dropout.p) == (None, 1e-3, True, 0.4)
    before = statistics(read)
    read.train()(images)
    assert_same(before, statistics(read))
    quaver.unfreeze_batch_norm(read)
    for program in (read, trained):
        program.train().norm.train()
        program.norm.momentum, program.dropout.p = 0.3, 0.0
    assert torch.equal(read(images), trained(images))
    assert_same(statistics(trained), statistics(read))
    assert list(read.state_dict()) == list(trained.state_dict())


def test_a_file_without_modules_is_read_with_the_settings_of_its_graph(trained, images, tmp_path, monkeypatch):
    described = storage._describe
    monkeypatch.setattr(
        storage, "_describe", lambda program: {k: v for k, v in described(program).items() if "mod" not in k}
    )
    quaver.save(trained, tmp_path)

    read = quaver.load(tmp_path)

    assert torch.equal(read.eval()(images), trained.eval()(images))
    count = int(read.norm.num_batches_tracked)
    read.train()(images)
    assert int(read.norm.num_batches_tracked) == count + 1


# torch.compile and several processes


@pytest.mark.slow
@pytest.mark.parametrize("quantized", [False, True])
def test_a_compiled_program_follows_its_modules_without_a_break(images, quantized):
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
    program = quaver.quant_aware(net, example_inputs=(images,)) if quantized else quaver.capture(net, (images,))
    norm, drop = program.get_submodule("1"), program.get_submodule("2")
    program.train()(images)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    compiled(images)
    norm.eval()
    compiled(images)
    assert int(norm.num_batches_tracked) == 2
    norm.train()
    drop.p = 1.0

    assert not compiled(images).any()

    assert int(norm.num_batches_tracked) == 3
    program.eval()
    assert torch.equal(compiled(images), program(images))
    norm.eps = 0.5
    assert torch.equal(compiled(images), program(images))
    output, features = torch.compile(quaver.feature_extractor(program, ["1"]), backend="eager", fullgraph=True)(images)
    assert torch.equal(features["1"], output)
    torch._dynamo.reset()


def test_a_synchronized_batch_norm_takes_the_place_of_a_plain_one(either, images):
    twin = copy.deepcopy(either)

    either = nn.SyncBatchNorm.convert_sync_batchnorm(either)

    for program in (either, twin):  # of one process
        program.train().dropout.eval()
    assert isinstance(either.norm, nn.SyncBatchNorm)
    assert torch.equal(either(images), twin(images))
    assert_same(statistics(twin), statistics(either))
    either.norm.eval()
    either(images)
    assert_same(statistics(twin), statistics(either))
    assert torch.equal(either.eval()(images), twin.eval()(images))


def test_the_graph_itself_stays_plain(trained):
    targets = {node.target for node in trained.graphs[TRAIN].nodes}

    assert torch.ops.aten.batch_norm.default in targets
    assert torch.ops.aten.dropout.default in targets
