"""What a capture needed goes when the program goes."""

import gc

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import quaver


def test_captures_that_are_gone_leave_nothing_of_torchs_knowledge_of_sizes():
    def alive_after(captures):
        for _ in range(captures):
            quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (torch.zeros(2, 3, 8, 8),))
        gc.collect()
        return sum(type(thing) is ShapeEnv for thing in gc.get_objects())

    assert alive_after(1) == alive_after(4)
