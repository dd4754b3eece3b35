"""A model that cannot be captured gets an error that says where, why, and what else can be done."""

import inspect
import logging
import re

import pytest
import torch
from torch import nn

import quaver
from quaver.capture.explain import explain
from quaver.errors import CaptureError, InputError


class Choosing(nn.Module):
    """Chooses by the values of its input: no graph can hold that."""

    def __init__(self, only_in: str = "both"):
        super().__init__()
        self.only_in = only_in

    def forward(self, x):
        chooses = self.only_in == "both" or self.training == (self.only_in == "train")
        if chooses and x.sum() > 0:
            return x * 2
        return x


class Holding(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 1)
        self.stages = nn.ModuleList([nn.ReLU(), inner])

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x


def line_of(model: type[nn.Module], text: str) -> int:
    lines, first = inspect.getsourcelines(model)
    return first + next(number for number, line in enumerate(lines) if text in line)


def suppressed(boxes):
    if boxes.sum() > 0:
        return boxes
    return -boxes


class Detecting(nn.Module):
    """Calls a function that chooses, as detectors do behind their heads."""

    def forward(self, x):
        return suppressed(x)


def test_a_choice_in_a_function_names_the_line_of_the_model_that_calls_it_as_well(images):
    with pytest.raises(CaptureError) as caught:
        quaver.capture(Holding(Detecting()), (images,))

    words = str(caught.value)
    line = line_of(Detecting, "suppressed(x)")
    assert f"test_refusals.py:{line}: 'return suppressed(x)', " in words
    assert re.search(r"test_refusals\.py:\d+: 'if boxes\.sum\(\) > 0:': what happens next depends", words)


def test_where_only_torch_knows_the_line_its_word_is_taken():
    error = RuntimeError("Could not guard on data-dependent expression u0 > 4.\nCaused by: (lib/boxes.py:86 in batched_nms)")

    assert str(explain(Detecting(), error)).startswith("Detecting, lib/boxes.py:86: what happens next depends")


@pytest.mark.parametrize("only_in", ["both", "train", "eval"])
def test_a_choice_by_values_names_module_class_line_and_way_out(images, only_in):
    line = line_of(Choosing, "x.sum() > 0")

    with pytest.raises(CaptureError) as caught:
        quaver.capture(Holding(Choosing(only_in)), (images,))

    words = str(caught.value)
    assert "module 'stages.1' (Choosing)" in words
    assert re.search(rf"test_refusals\.py:{line}: 'if chooses and x\.sum\(\) > 0:'", words)
    assert "depends on the values in a tensor" in words
    assert "quaver.QAT" in words


def test_a_name_that_is_not_text_is_refused(images):
    model = nn.Sequential()
    model.add_module("half \ud800", nn.Conv2d(3, 4, 3))

    with pytest.raises(CaptureError, match=r"half \\ud800': this name is not text: .* Rename"):
        quaver.capture(model, (images,))


def test_a_loop_by_values_is_refused(images):
    class Halving(nn.Module):
        def forward(self, x):
            while x.abs().max() > 1:
                x = x / 2
            return x

    with pytest.raises(CaptureError, match=r"Halving.*'while x.abs\(\).max\(\) > 1:'.*quaver\.QAT"):
        quaver.capture(Halving(), (images,))


def test_a_cumulative_average_of_ones_own_is_refused_by_name(images):
    class OwnNorm(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x) * 1.0

    model = nn.Sequential(nn.Conv2d(3, 3, 1), OwnNorm(3, momentum=None))

    with pytest.raises(CaptureError, match=r"module '1' \(OwnNorm\).*quaver\.QAT"):
        quaver.capture(model, (images,))


def test_a_choice_in_the_model_itself_is_not_put_on_a_module_without_a_name(images):
    with pytest.raises(CaptureError) as caught:
        quaver.capture(Choosing(), (images,))

    assert "Choosing" in str(caught.value)
    assert "module ''" not in str(caught.value)


def test_a_model_that_raises_on_its_inputs_is_quoted(net):
    with pytest.raises(CaptureError, match=r"module 'stem.0' \(Conv2d\).*could not be traced: RuntimeError: .*channels"):
        quaver.capture(net, (torch.zeros(2, 4, 8, 8),))


def test_an_error_of_the_models_own_is_quoted_with_its_line(images):
    class Strict(nn.Module):
        def forward(self, x):
            raise ValueError("expects 5 channels")

    with pytest.raises(CaptureError, match=r"'stages.1' \(Strict\).*test_refusals\.py:\d+.*ValueError: expects 5 channels"):
        quaver.capture(Holding(Strict()), (images,))


def test_the_cause_is_kept(images):
    with pytest.raises(CaptureError) as caught:
        quaver.capture(Choosing(), (images,))

    assert caught.value.__cause__ is not None


def test_nothing_is_printed_and_logging_works_afterwards(images, capfd):
    with pytest.raises(CaptureError):
        quaver.capture(Choosing(), (images,))

    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""
    assert logging.getLogger("anything").isEnabledFor(logging.CRITICAL)


@pytest.mark.parametrize("thing", [torch.relu, "model", None, {"model": nn.ReLU()}])
def test_what_is_no_module_is_refused(images, thing):
    with pytest.raises(InputError, match=f"takes an nn.Module, not {type(thing).__name__}"):
        quaver.capture(thing, (images,))


def test_a_program_is_not_captured_again(captured, images):
    with pytest.raises(InputError, match="was given a Program: it is captured already"):
        quaver.capture(captured, (images,))


def test_a_model_without_example_inputs_is_refused(net):
    with pytest.raises(InputError, match=r"needs example_inputs .*example_inputs=\(x,\)"):
        quaver.quant_aware(net)


def test_a_model_is_captured_after_a_failure(net, images):
    with pytest.raises(CaptureError):
        quaver.capture(net, (torch.zeros(2, 4, 8, 8),))

    program = quaver.capture(net, (images,))

    assert torch.equal(program.eval()(images), net.eval()(images))
