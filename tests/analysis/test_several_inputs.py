"""`analyze` with the batches of a model that has several inputs, in every form that a loader gives them."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import quaver

pytestmark = pytest.mark.slow


class Pair(nn.Module):
    """Two images and what they are to be compared by."""

    def __init__(self):
        super().__init__()
        self.one, self.other, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(1, 4, 3), nn.Linear(4, 5)

    def forward(self, near, far):
        return self.head((self.one(near) + self.other(far)).relu().mean((2, 3)))


DRAWN = torch.Generator().manual_seed(0)
NEAR, FAR = torch.randn(8, 3, 8, 8, generator=DRAWN), 10 * torch.randn(8, 1, 8, 8, generator=DRAWN)
LABELS = torch.arange(8) % 5

FORMS = {
    "a tuple": ((NEAR, FAR), False),
    "arrays": ((NEAR.numpy(), FAR.numpy()), False),
    "a tuple and labels": (((NEAR, FAR), LABELS), True),
    "labels last, as a TensorDataset has them": ([NEAR, FAR, LABELS], True),
    "a dict, in another order": ({"far": FAR, "near": NEAR}, False),
    "a dict and labels": (({"near": NEAR, "far": FAR}, LABELS), True),
    "a dict with labels": ({"near": NEAR, "far": FAR, "labels": LABELS}, True),
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Pair()


@pytest.fixture(scope="module")
def program(model):
    return quaver.quant_aware(model, example_inputs=(NEAR, FAR))


@pytest.mark.parametrize("form", FORMS)
def test_each_input_has_its_figures_in_whatever_form_batches_come(program, form):
    batch, is_labelled = FORMS[form]

    found = quaver.analyze(program, [batch], sensitivity_images=6)

    assert (found.images, found.sensitivity.images) == (8, 6)
    assert found.tensor("near").largest == pytest.approx(float(NEAR.abs().max()))
    assert found.tensor("far").largest == pytest.approx(float(FAR.abs().max()))
    assert found.sensitivity.measure == ("top-1" if is_labelled else "agreement with the float network")


@pytest.mark.parametrize("form", ["a tuple", "labels last, as a TensorDataset has them", "a dict with labels"])
def test_a_float_model_is_called_as_its_batches_say(model, form):
    assert quaver.analyze(model, [FORMS[form][0]]).tensor("far").largest == pytest.approx(float(FAR.abs().max()))


def test_rows_of_one_image_stay_together(model, program):
    loader = DataLoader(TensorDataset(NEAR, FAR, model(NEAR, FAR).argmax(1)), 2)

    assert quaver.analyze(program, loader, sensitivity_images=5).sensitivity.floating.accuracy == 1


def test_an_image_is_left_out_where_any_of_its_inputs_is_not_finite(program):
    far = FAR.clone()
    far[3] = torch.nan

    assert quaver.analyze(program, [(NEAR, far)], sensitivity_images=8).sensitivity.left_out == 1


@pytest.mark.parametrize(
    "batch", [NEAR, (NEAR,), {"near": NEAR, "other": FAR}, "images"], ids=["one", "row", "dict", "text"]
)
def test_what_is_no_batch_of_the_models_is_refused(program, batch):
    with pytest.raises(quaver.QuaverError, match=r"analyze: the model has 2 inputs.* a tuple or a dict of them"):
        quaver.analyze(program, [batch])


def test_an_input_without_a_batch_has_statistics_and_no_scores():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images, scale):
            return self.conv(images) * scale

    scale = torch.rand(4, 1, 1)
    program = quaver.quant_aware(Scaled(), example_inputs=(NEAR, scale))

    assert quaver.analyze(program, [(NEAR, scale)]).images == 8
    with pytest.raises(quaver.QuaverError, match="'scale' has no batch dimension"):
        quaver.analyze(program, [(NEAR, scale)], sensitivity_images=4)
