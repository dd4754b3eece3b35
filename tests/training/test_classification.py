import pytest
import torch
from torch import nn

from quaver.training.classification import Classification


class Batches:
    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def epoch(self, k, start=0):
        return iter(self.batches[start:])


def test_a_short_last_batch_counts_as_much_as_it_has_images():
    right, wrong = torch.eye(6), 1 - torch.eye(6)
    batches = Batches((right, torch.arange(6)), (wrong[:2], torch.arange(2)))

    figures = Classification().evaluate(nn.Identity(), batches)

    assert figures["top1"] == 6 / 8
    assert figures["images"] == 8


def test_of_equal_logits_the_lower_class_comes_first():
    logits = torch.zeros(2, 10)

    found = Classification().figures(logits, torch.tensor([4, 5]))

    assert found["acc_top5"] == 0.5
    assert found["acc_top1"] == 0


def test_a_logit_that_is_no_number_is_no_hit():
    logits = torch.full((1, 10), float("nan"))

    found = Classification().figures(logits, torch.tensor([0]))

    assert found == {"acc_top1": 0, "acc_top5": 0}


@pytest.mark.parametrize(("classes", "names"), [(5, {"acc_top1"}), (6, {"acc_top1", "acc_top5"})])
def test_of_five_classes_or_fewer_five_guesses_are_no_figure(classes, names):
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    logits = torch.randn(7, classes)

    found = Classification().figures(logits, labels)
    over_all = Classification().evaluate(nn.Identity(), Batches((logits, labels)))

    assert found.keys() == names
    assert ("top5" in over_all) == ("acc_top5" in names)


def test_evaluation_leaves_the_model_in_the_mode_it_was_in():
    model = nn.Dropout().train()

    Classification().evaluate(model, Batches((torch.randn(3, 4), torch.arange(3))))

    assert model.training


def test_further_outputs_of_a_model_count_in_the_loss_but_not_in_the_accuracy():
    first, second, target = torch.eye(3), torch.randn(3, 3), torch.arange(3)
    task = Classification()

    both = task.loss((first, second), target)

    assert both == pytest.approx(float(task.loss(first, target) + 0.3 * task.loss(second, target)))
    assert task.figures((first, second), target)["acc_top1"] == 1


def test_distillation_is_zero_at_the_teacher_and_its_gradient_leads_there():
    teacher, task = torch.randn(5, 4), Classification()
    student = (teacher + torch.randn(5, 4)).requires_grad_()

    before = task.distillation(student, teacher, 2.0)
    before.backward()
    after = task.distillation(student - 0.1 * student.grad, teacher, 2.0)

    assert float(task.distillation(teacher, teacher, 2.0)) == pytest.approx(0, abs=1e-6)
    assert 0 < after < before
