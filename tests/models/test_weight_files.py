import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from quaver.errors import StorageError
from quaver.models import MobileNetV1, load_weights


def net(classes=10, seed=0):
    torch.manual_seed(seed)
    return MobileNetV1(classes, 0.25, small_images=True)


def assert_equal_states(model, other):
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_safetensors_file_is_loaded_whole(tmp_path):
    source, model = net(seed=1), net()
    save_file(source.state_dict(), tmp_path / "net.safetensors")

    left = load_weights(model, tmp_path / "net.safetensors")

    assert left == []
    assert_equal_states(model, source)


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_pth_file_is_loaded_out_of_a_checkpoint_and_data_parallel_training(tmp_path, wrapper, prefix):
    source, model = net(seed=1), net()
    state = {prefix + name: value for name, value in source.state_dict().items()}
    torch.save(state if wrapper is None else {wrapper: state, "epoch": 3}, tmp_path / "net.pth")

    load_weights(model, tmp_path / "net.pth")

    assert_equal_states(model, source)


def test_everything_that_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path):
    state = net(seed=1).state_dict()
    del state["stem.0.weight"]
    state["extra.bias"] = torch.zeros(3)
    state["classifier.bias"] = torch.zeros(11)
    save_file(state, tmp_path / "net.safetensors")
    model = net()

    with pytest.raises(StorageError) as error:
        load_weights(model, tmp_path / "net.safetensors")

    message = str(error.value)
    assert "does not fit MobileNetV1 in 3 places" in message
    assert "missing from the file: stem.0.weight (8, 3, 3, 3)" in message
    assert "unknown to the model: extra.bias (3,)" in message
    assert "classifier.bias: the file has (11,), the model (10,)" in message
    assert_equal_states(model, net())


def test_another_head_is_refused_unless_it_is_allowed(tmp_path):
    save_file(net(1000, seed=1).state_dict(), tmp_path / "net.safetensors")

    with pytest.raises(StorageError, match="new_head=True allows a last layer of another shape"):
        load_weights(net(), tmp_path / "net.safetensors")


def test_another_head_that_is_allowed_stays_as_it_is_and_is_named(tmp_path):
    source, model = net(1000, seed=1), net()
    fresh = model.classifier.weight.clone()
    save_file(source.state_dict(), tmp_path / "net.safetensors")

    left = load_weights(model, tmp_path / "net.safetensors", new_head=True)

    assert left == ["classifier.weight", "classifier.bias"]
    assert torch.equal(model.classifier.weight, fresh)
    assert torch.equal(model.stem[0].weight, source.stem[0].weight)


def test_with_a_new_head_allowed_other_layers_must_still_fit(tmp_path):
    state = net(1000).state_dict() | {"stem.0.weight": torch.zeros(9, 3, 3, 3)}
    save_file(state, tmp_path / "net.safetensors")

    with pytest.raises(StorageError, match=r"in 1 places:\n  stem.0.weight: the file has \(9, 3, 3, 3\)"):
        load_weights(net(), tmp_path / "net.safetensors", new_head=True)


def test_a_head_that_fits_is_loaded_even_where_another_is_allowed(tmp_path):
    source, model = net(seed=1), net()
    save_file(source.state_dict(), tmp_path / "net.safetensors")

    assert load_weights(model, tmp_path / "net.safetensors", new_head=True) == []
    assert_equal_states(model, source)


class Dangerous:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Dangerous()}, "net.pth")

    with pytest.raises(StorageError, match="would run code when read"):
        load_weights(net(), "net.pth")

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["net.safetensors", "net.pth"])
def test_a_damaged_file_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 cut off")

    with pytest.raises(StorageError, match=r"cannot be read as weights|would run code"):
        load_weights(net(), tmp_path / name)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(StorageError, match="there is no such file"):
        load_weights(net(), tmp_path / "net.pth")
    with pytest.raises(StorageError, match="this is a folder"):
        load_weights(net(), tmp_path)


@pytest.mark.parametrize("content", [{}, [1, 2], {"epoch": 3}])
def test_a_file_without_weights_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "net.pth")

    with pytest.raises(StorageError, match="holds no table of tensors"):
        load_weights(nn.Linear(2, 2), tmp_path / "net.pth")


WEIGHT = "stem.0.weight"


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda w: w.to(torch.complex64), "stem.0.weight: its values are torch.complex64"),
        (lambda w: w.to("meta"), "stem.0.weight: it has no values"),
        (lambda w: w.to_sparse(), "stem.0.weight: it is not stored value by value"),
        (lambda w: w.to(torch.bool), "stem.0.weight: the file has torch.bool, the model torch.float32"),
        (lambda w: w.to(torch.int8), "stem.0.weight: the file has torch.int8, the model torch.float32"),
        (lambda w: torch.full_like(w, torch.nan), "stem.0.weight: holds NaN or Inf"),
        (lambda w: torch.full_like(w, -torch.inf), "stem.0.weight: holds NaN or Inf"),
        (lambda w: w.numpy(), "holds more than tensors"),
        (lambda w: None, "holds no table of tensors"),
    ],
    ids=range(9),
)
def test_a_tensor_that_is_no_weight_is_named_and_nothing_is_loaded(tmp_path, change, fact):
    state = dict(net(seed=1).state_dict())
    state[WEIGHT] = change(state[WEIGHT])
    torch.save(state, tmp_path / "net.pth")
    model = net()

    with pytest.raises(StorageError, match=fact):
        load_weights(model, tmp_path / "net.pth")

    assert_equal_states(model, net())


def test_a_variance_below_zero_is_named(tmp_path):
    state = net(seed=1).state_dict()
    state["stem.1.running_var"][3] = -1
    torch.save(state, tmp_path / "net.pth")

    with pytest.raises(StorageError, match="running_var: holds a variance below zero"):
        load_weights(net(), tmp_path / "net.pth")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_loaded(tmp_path, dtype):
    torch.save(
        {name: value.to(dtype) if value.is_floating_point() else value for name, value in net(seed=1).state_dict().items()},
        tmp_path / "net.pth",
    )

    assert load_weights(net(), tmp_path / "net.pth") == []
