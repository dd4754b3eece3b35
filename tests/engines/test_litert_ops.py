"""Ops that run in float inside a .tflite file. Skipped where LiteRT is not installed."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from needs import need_litert
from quaver.engines.litert.runner import LiteRTRunner
from quaver.engines.litert.writer import serialized

need_litert()

pytestmark = pytest.mark.slow

IMAGES = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.zeros(9, 9).masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))


def windows(x):
    """Windows of 3 x 3 pixels, each a row of 9 tokens."""
    return x.reshape(-1, 4, 2, 3, 2, 3).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 9, 4)


OPS = {
    "attention": lambda x: F.scaled_dot_product_attention(windows(x), windows(x) * 2, windows(x)),
    "masked attention": lambda x: F.scaled_dot_product_attention(windows(x), windows(x), windows(x), MASK.clamp(-1e4)),
    "forbidden attention": lambda x: F.scaled_dot_product_attention(windows(x), windows(x), windows(x), MASK == 0),
    "rolled windows": lambda x: windows(x.roll((1, -2), (2, 3))),
    "flipped": lambda x: x.flip(2, 3),
    "gathered": lambda x: x[:, torch.tensor([3, 0, 0])] + x[:, :3, torch.tensor([[5]]), torch.tensor([4])],
    "pixels apart": lambda x: F.pixel_unshuffle(x, 2),
    "channels shuffled": lambda x: F.channel_shuffle(x, 2),
    "overlapping windows": lambda x: x.unfold(2, 3, 2).unfold(3, 4, 1) * 2,
    "patches": lambda x: F.unfold(x, 3, padding=1),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
    "bicubic, smoothed": lambda x: F.interpolate(x, (4, 9), mode="bicubic", antialias=True),
    "log softmax": lambda x: x.log_softmax(1),
    "softplus, selu, celu": lambda x: F.softplus(x) + F.selu(x) + F.celu(x, 0.5) + F.softsign(x) + F.logsigmoid(x),
    "gates": lambda x: F.glu(x, 1) * F.hardshrink(x[:, :2]) + F.relu(x[:, 2:]).square(),
    "variance": lambda x: x.var(1, keepdim=True) + x.std((2, 3), keepdim=True, correction=0),
    "norms": lambda x: F.normalize(x, dim=1) + F.instance_norm(x) + F.rms_norm(x, (6, 6)) + x.norm(dim=1, keepdim=True),
    "einsum": lambda x: torch.einsum("nchw,ndhw->ncd", x, x),
    "chosen": lambda x: torch.where(x > 0.2, x, x.abs() - 1).masked_fill(x < -0.5, 3.0),
    "repeated": lambda x: x.repeat(1, 2, 1, 1) - x.repeat_interleave(2, 1),
    "rounded": lambda x: x.floor() + x.ceil() + x.sign() + torch.sin(x) + x.reciprocal().clamp(-4, 4) + x % 2,
    "largest": lambda x: x.max(1).values + x.amin(1) + x.argmax(1).float(),
    "sums so far": lambda x: x.cumsum(2),
    "along a line": lambda x: F.max_pool1d(x.flatten(2), 3, 2) + F.avg_pool1d(x.flatten(2), 4, 2, 1)[:, :, :17],
    "bounds from tensors": lambda x: torch.clamp(x, x.mean((2, 3), keepdim=True)).clamp_min(0.1),
    "exponents": lambda x: torch.logsumexp(x, 1) + torch.log1p(x.abs()).sum(1) + torch.expm1(x).sum(1),
}


def without_autocast(x):
    with torch.autocast("cpu", enabled=False):
        return x.square() + 1


OPS["autocast switched off"] = without_autocast


def written_to(x):
    """A tensor that parts of are assigned to, one of them in place, one with steps."""
    y = torch.zeros_like(x)
    y[:, :, 1:, 2:5] = x[:, :, :5, 1:4]
    y[:, -1] += 1
    y[:, :, ::2, 0] = 3.0
    return y


OPS["written to"] = written_to
OPS["an edge repeated, and the other end"] = lambda x: F.pad(F.pad(x, (1, 2, 0, 1), "replicate"), (2, 0, 1, 3), "circular")
OPS["cut by padding"] = lambda x: F.pad(x, (-1, 2, 3, -2))
OPS["folded"] = lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), (6, 6), 3, padding=1, stride=2)
OPS["truths"] = lambda x: ((x > 0) & (x < 1) | ~(x > -1)).float()
OPS["truths as numbers"] = lambda x: x * (x.abs() < 1) + (x > 0)
OPS["whole numbers"] = lambda x: x + (x.argmax(1, keepdim=True) + 1) * 2 + x.argmax(1, keepdim=True) / 3


def filled(x):
    """A tensor whose planes are assigned one by one."""
    y = torch.zeros(len(x), 6, 6, 3)
    for place in range(3):
        y[:, :, :, place] = x[:, place] * place
    return y


OPS["filled"] = filled
OPS["places kept"] = lambda x: x.argmax(1, keepdim=True).float() + x
OPS["a constant of the model"] = lambda x: torch.einsum("nchw,cd->ndhw", x, torch.arange(8.0).view(4, 2))


class Rows(nn.Module):
    """A recurrent layer along the pixels of an image."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.layer(x.flatten(2).transpose(1, 2))[0]


LAYERS = {
    "LSTM": lambda: Rows(nn.LSTM),
    "GRU": lambda: Rows(nn.GRU),
    "transposed, each channel by itself": lambda: nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1, groups=4),
    "transposed in two groups": lambda: nn.ConvTranspose2d(4, 8, 2, 2, groups=2),
}


class Op(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.compute(self.conv(x))


@pytest.mark.parametrize("name", [*OPS, *LAYERS])
def test_an_op_without_int8_kernel_computes_what_pytorch_does(name):
    torch.manual_seed(0)
    net = Op(OPS[name] if name in OPS else LAYERS[name]()).eval()
    program = quaver.capture(net, (IMAGES,)).eval()

    output = LiteRTRunner(serialized(program, {}))(IMAGES.numpy())

    with torch.no_grad():
        expected = net(IMAGES).numpy()
    assert output.shape == expected.shape
    assert np.abs(output - expected).max() <= 1e-5 * np.abs(expected).max()  # float32, added in another order
