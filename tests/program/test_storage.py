"""``quaver.save`` and ``quaver.load``: what comes back is what went in, at every stage and in any process."""

import copy
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils import _pytree as pytree

import quaver
from quaver.errors import StorageError

STAGES = ["float", "prepared", "trained", "frozen", "int8", "mobile", "view"]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def assert_same_state(given: quaver.Program, expected: quaver.Program) -> None:
    """Equal names in equal order, equal values, equal dtypes."""
    assert [name for name, _ in given.named_parameters()] == [name for name, _ in expected.named_parameters()]
    assert given.state_dict().keys() == expected.state_dict().keys()
    for name, value in expected.state_dict().items():
        assert given.state_dict()[name].dtype == value.dtype
        assert torch.equal(given.state_dict()[name], value), name


@pytest.mark.parametrize("stage", STAGES)
def test_a_loaded_program_computes_the_same_bits(stages, images, tmp_path, stage):
    program = stages[stage]

    restored = quaver.load(quaver.save(program, tmp_path))

    assert torch.equal(restored.clone(for_test=True)(images), program.clone(for_test=True)(images))


@pytest.mark.parametrize("stage", ["float", "prepared", "trained"])
def test_a_loaded_program_computes_the_same_bits_in_training(stages, images, tmp_path, stage):
    program = copy.deepcopy(stages[stage])
    restored = quaver.load(quaver.save(program, tmp_path))

    torch.manual_seed(2)
    given = restored.train()(images)
    torch.manual_seed(2)
    expected = program.train()(images)

    assert torch.equal(given, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_a_loaded_program_says_the_same_of_itself(stages, tmp_path, stage):
    program = stages[stage]

    restored = quaver.load(quaver.save(program, tmp_path))

    assert restored.ops() == program.ops()
    assert str(restored) == str(program)
    assert (restored.stage, restored.for_test, restored.training) == (program.stage, program.for_test, program.training)
    assert restored.history == program.history
    assert restored.placements == program.placements
    assert restored.signature == program.signature
    assert restored.unseen() == program.unseen()


@pytest.mark.parametrize("stage", STAGES)
def test_a_loaded_program_has_the_same_state(stages, tmp_path, stage):
    restored = quaver.load(quaver.save(stages[stage], tmp_path))

    assert_same_state(restored, stages[stage])


def test_frozen_parameters_stay_frozen(program, tmp_path):
    program.stem.requires_grad_(False)

    restored = quaver.load(quaver.save(program, tmp_path))

    trains = {name: parameter.requires_grad for name, parameter in restored.named_parameters()}
    assert trains == {name: parameter.requires_grad for name, parameter in program.named_parameters()}
    assert not trains["stem.weight"]


def test_tied_weights_stay_tied_and_are_stored_once(program, tmp_path):
    restored = quaver.load(quaver.save(program, tmp_path))

    names = dict(restored.named_parameters(remove_duplicate=False))
    (weights,) = tmp_path.glob("*.safetensors")
    assert names["conv.weight"] is names["tied.weight"]
    assert len({"conv.weight", "tied.weight"} & set(safetensors.torch.load_file(weights))) == 1


@pytest.mark.parametrize("switch", [quaver.disable_fake_quant, quaver.disable_observer])
def test_switches_are_kept(trained, images, tmp_path, switch):
    trained.apply(switch)

    restored = quaver.load(quaver.save(trained, tmp_path))

    for program in (restored, trained):
        torch.manual_seed(2)
        program.train()(3 * images)
    assert restored.ops() == trained.ops()
    assert torch.equal(restored.eval()(images), trained.eval()(images))


def test_training_goes_on_after_loading_as_if_it_had_never_stopped(trained, tmp_path, train):
    restored = quaver.load(quaver.save(trained, tmp_path))

    given, expected = train(restored, 4, seed=9), train(trained, 4, seed=9)

    assert given == expected
    assert_same_state(restored, trained)


def test_an_optimizer_finds_its_parameters_by_position_after_loading(trained, images, tmp_path):
    def step(program: quaver.Program, optimizer: torch.optim.Optimizer) -> None:
        torch.manual_seed(4)
        optimizer.zero_grad()
        program.train()(images).square().mean().backward()
        optimizer.step()

    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
    step(trained, optimizer)
    restored = quaver.load(quaver.save(trained, tmp_path))
    resumed = torch.optim.Adam(restored.parameters(), lr=0.01)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    step(trained, optimizer)
    step(restored, resumed)

    assert_same_state(restored, trained)


def test_a_loaded_program_goes_on_through_the_journey(stages, images, tmp_path):
    prepared = quaver.quant_aware(quaver.load(quaver.save(stages["float"], tmp_path / "float")))
    assert prepared.ops() == stages["prepared"].ops()
    trained = quaver.load(quaver.save(stages["trained"], tmp_path / "trained"))

    frozen, int8 = quaver.convert(trained, save_int8=True)

    assert torch.equal(frozen(images), stages["frozen"](images))
    assert torch.equal(int8(images), stages["int8"](images))


LOADING = """
import sys
import safetensors.torch, torch, quaver
torch.set_num_threads(1)  # as the tests: another number of threads sums in another order
x = safetensors.torch.load_file(sys.argv[1] + "/images")["x"]
outputs = {stage: quaver.load(f"{sys.argv[1]}/{stage}").clone(for_test=True)(x) for stage in sys.argv[2:]}
assert not any(name.startswith("conftest") or "Net" in vars(module) for name, module in list(sys.modules.items()) if module)
safetensors.torch.save_file(outputs, sys.argv[1] + "/outputs")
"""


@pytest.mark.slow
def test_programs_load_in_a_process_that_has_never_heard_of_the_model(stages, images, tmp_path):
    for stage in STAGES:
        quaver.save(stages[stage], tmp_path / stage)
    safetensors.torch.save_file({"x": images}, tmp_path / "images")

    subprocess.run([sys.executable, "-c", LOADING, str(tmp_path), *STAGES], check=True, cwd=tmp_path)

    outputs = safetensors.torch.load_file(tmp_path / "outputs")
    for stage in STAGES:
        assert torch.equal(outputs[stage], stages[stage].clone(for_test=True)(images)), stage


# the files


@pytest.mark.parametrize("stage", STAGES)
def test_equal_programs_make_equal_files(stages, tmp_path, stage):
    quaver.save(stages[stage], tmp_path / "one")
    quaver.save(copy.deepcopy(stages[stage]), tmp_path / "two")

    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.parametrize("stage", STAGES)
def test_saving_what_was_loaded_makes_equal_files(stages, tmp_path, stage):
    restored = quaver.load(quaver.save(stages[stage], tmp_path / "one"))

    quaver.save(restored, tmp_path / "two")

    assert files(tmp_path / "one") == files(tmp_path / "two")


SAVING = """
import sys
import torch, quaver
from torch import nn
torch.manual_seed(0)
layers = [layer for k in range(4) for layer in (nn.Conv2d(3, 3, 1), nn.Dropout(0.1), nn.ReLU(), nn.Dropout2d(0.2))]
quaver.save(quaver.quant_aware(nn.Sequential(*layers), example_inputs=(torch.zeros(2, 3, 8, 8),)), sys.argv[1])
"""


@pytest.mark.slow
def test_equal_programs_make_equal_files_in_every_process(tmp_path):
    script = tmp_path / "saving.py"
    script.write_text(SAVING)

    for seed in ("1", "2"):
        command = [sys.executable, script, str(tmp_path / seed)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})

    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_saving_again_replaces_the_old_program_and_leaves_nothing_else(stages, images, tmp_path):
    for stage in STAGES:
        quaver.save(stages[stage], tmp_path)

        assert torch.equal(quaver.load(tmp_path).clone(for_test=True)(images), stages[stage].clone(for_test=True)(images))
        assert sorted(name.split("-")[0] for name in files(tmp_path)) == ["program.json", "weights"]


def test_files_of_others_in_the_folder_stay(program, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.safetensors").write_bytes(b"mine too")

    quaver.save(program, tmp_path)

    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine too"


def test_folders_are_made_and_paths_may_be_strings(program, images, tmp_path):
    folder = quaver.save(program, str(tmp_path / "a" / "b"))

    assert folder == tmp_path / "a" / "b"
    assert torch.equal(quaver.load(str(folder)).eval()(images), program.eval()(images))


def test_saving_leaves_the_program_as_it_was(trained, tmp_path):
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    training = trained.training

    quaver.save(trained, tmp_path)

    assert trained.training is training
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


def test_the_weights_are_plain_safetensors_under_the_names_of_the_model(program, tmp_path):
    quaver.save(program, tmp_path)

    (weights,) = tmp_path.glob("weights-*.safetensors")
    stored = safetensors.torch.load_file(weights)
    assert torch.equal(stored["stem.weight"], program.stem.weight)
    assert torch.equal(stored["norm.running_var"], program.norm.running_var)


class Giving(nn.Module):
    def __init__(self, structure):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        self.structure = structure

    def forward(self, x, flag=None):
        return self.structure(self.conv(x))


@pytest.mark.parametrize(
    "structure",
    [
        lambda y: {"a": y, 3: [y * 2, (None, y + 1)], "n": 7, "nothing": []},
        lambda y: (y,),
        lambda y: [y, "words", 1.5, True],
        lambda y: OrderedDict(out=y, aux=y * 2),
    ],
    ids=["nested", "one", "constants", "ordered"],
)
def test_structures_of_outputs_are_kept(images, tmp_path, structure):
    program = quaver.capture(Giving(structure), (images,)).eval()

    restored = quaver.load(quaver.save(program, tmp_path))

    given, expected = restored(images), program(images)
    assert type(given) is type(expected)
    leaves, spec = pytree.tree_flatten(given)
    assert spec == pytree.tree_structure(expected)
    for one, other in zip(leaves, pytree.tree_leaves(expected), strict=True):
        assert torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other


@pytest.mark.parametrize("flag", [None, True, float("inf"), "words"])
def test_constant_inputs_are_kept(images, tmp_path, flag):
    program = quaver.capture(Giving(lambda y: y), (images, flag)).eval()

    restored = quaver.load(quaver.save(program, tmp_path))

    assert restored.signature == program.signature
    assert torch.equal(restored(images, flag), program(images, flag))


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_named_tuples_are_kept_by_their_fields(images, tmp_path):
    program = quaver.capture(Giving(lambda y: Pair(y, y * 2)), (images,)).eval()

    restored = quaver.load(quaver.save(program, tmp_path))

    given, expected = restored(images), program(images)
    assert given._fields == ("left", "right")
    assert torch.equal(given.left, expected.left)
    assert torch.equal(given.right, expected.right)


def test_a_loaded_program_takes_the_callers_own_named_tuple(images, tmp_path):
    class Adding(nn.Module):
        def forward(self, pair):
            return pair.left + pair.right

    program = quaver.capture(Adding(), (Pair(images, images),))

    restored = quaver.load(quaver.save(program, tmp_path))

    assert torch.equal(restored(Pair(images, 2 * images)), 3 * images)


# what is not saved


class Named(nn.Module):
    """A convolution under a name of one's choice."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.add_module(name, nn.Conv2d(3, 4, 3))

    def forward(self, x):
        return self._modules[self.name](x).flatten(1)


ODD_NAMES = ["a b", "a-b", "a'b", 'a"b', r"a\b", "tab\tline\n", "class", "ﬁ", "_run", "stage", "graph", "renamed"]
CODE = 'x"), open("owned", "w"), ("'


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ODD_NAMES, CODE])
def test_whatever_a_module_is_called_it_is_captured_converted_and_loaded(images, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    model = Named(name).eval()
    qat = quaver.quant_aware(model, example_inputs=(images,)).train()
    qat(images)

    int8 = quaver.convert(qat.eval(), save_int8=True)[1]
    restored = quaver.load(quaver.save(int8, tmp_path / "saved"))

    assert f"{name}.weight" in quaver.capture(model, (images,)).state_dict()
    assert torch.equal(restored(images), int8(images))
    assert torch.allclose(restored.graph_module()(images)[0], int8(images), atol=1e-4)
    assert not (tmp_path / "owned").exists()  # a name is never code


def test_a_model_is_no_program(tmp_path):
    with pytest.raises(StorageError, match=r"takes a Program, not Conv2d\. quaver\.capture makes one"):
        quaver.save(nn.Conv2d(3, 3, 1), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_custom_function_is_not_saved_and_the_old_program_stays(program, images, tmp_path):
    quaver.save(program, tmp_path)
    custom = quaver.quant_aware(program, act_quantize_func=lambda x: x.round())
    before = files(tmp_path)

    with pytest.raises(StorageError, match=r"a custom function is code, which is not saved\. Save program\.state_dict"):
        quaver.save(custom, tmp_path)

    assert files(tmp_path) == before


def test_an_op_without_a_form_in_a_file_is_refused_and_the_way_out_is_one(tmp_path):
    given = torch.ones(2, 5).long()
    model = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
    trained = quaver.quant_aware(quaver.capture(model, (given,)))
    trained.train()(given)

    with pytest.raises(StorageError, match=r"embedding_bag.* has no form in a file.* Save the state_dict\(\) of"):
        quaver.save(trained, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    again = quaver.quant_aware(quaver.capture(copy.deepcopy(model), (given,)))
    again.load_state_dict(trained.state_dict())

    assert torch.equal(again.eval()(given), trained.eval()(given))


def test_a_graph_that_reads_a_number_from_a_tensor_is_loaded(images, tmp_path):
    class Anchored(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("stride", torch.tensor([8.0, 16.0]))

        def forward(self, x):
            return x * torch.full((x.shape[0], 1, 1, 1), self.stride[1])

    program = quaver.capture(Anchored(), (images,))

    assert torch.equal(quaver.load(quaver.save(program, tmp_path))(images), 16 * images)
