"""Networks of the patterns that OpenVINO computes bit for bit as the simulation does, several patterns in each.

Run as a script, it compares exported files with what the simulation gave for them, on engines told to keep to smaller
processors: ``python exact_nets.py FOLDER AVX2 …`` prints the number of differing integers by processor, net and tensor.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.export.integers import Inside, simulation

SHAPE = (8, 12, 12)


def conv(inputs=8, outputs=8, size=3, act=nn.ReLU, **options):
    layers = [nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


def bare(inputs=8, outputs=8, size=3, **options):
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options)


class MobileNet(nn.Module):
    """ReLU, ReLU6, hardswish and none, depthwise, pools, and a classifier."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            conv(act=nn.ReLU6),
            conv(groups=8, act=nn.ReLU6),
            conv(size=1, act=None),
            conv(size=1, act=nn.Hardswish),
            conv(groups=8, act=nn.Hardswish),
            conv(size=5, stride=2),
            conv(groups=8, act=None),
            nn.Conv2d(8, 8, 1),
            nn.ReLU(),
            nn.MaxPool2d(3, 1, 1),
            nn.AvgPool2d(3, 1, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 16),
            nn.ReLU(),
            nn.Linear(16, 10),
        )

    def forward(self, x):
        return self.layers(x)


class Residuals(nn.Module):
    """Shortcuts that are signed, unsigned, downsampled and doubled, with and without a ReLU behind the sum."""

    def __init__(self):
        super().__init__()
        self.signed, self.unsigned, self.twice, self.plain = conv(act=None), conv(act=None), conv(act=None), conv(act=None)
        self.down, self.short, self.end = conv(act=None, stride=2), conv(size=1, act=None, stride=2), conv(act=None)
        self.left, self.right = conv(size=1), conv(size=1)

    def forward(self, x):
        x = F.relu(self.signed(x) + x)
        x = F.relu(self.unsigned(x) + x)
        x = self.twice(x) + x
        x = self.plain(x) + x
        x = F.relu(self.down(x) + self.short(x))
        return self.end(self.left(x) + self.right(x))


class Branches(nn.Module):
    """Concatenations, a gate (squeeze and excite), a transposed convolution, upsampling and an average."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.joined = conv(), conv(size=1, act=None), conv(16, 8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.up, self.after, self.dense = nn.ConvTranspose2d(8, 8, 2, stride=2), conv(), conv(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.joined(torch.cat([self.left(x), self.right(x)], 1))
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        x = F.relu(self.up(F.avg_pool2d(x, 2)))
        x = self.after(F.interpolate(x, scale_factor=2.0))
        x = self.dense(torch.cat([x, F.relu6(x)], 1))
        return self.head(x.mean((2, 3)))


class Signed(nn.Module):
    """Signed tensors that are gated, pooled and reshaped, with and without a convolution that reads them as well."""

    def __init__(self):
        super().__init__()
        self.first, self.gated, self.gate = conv(act=nn.Hardswish), conv(act=None), nn.Conv2d(8, 8, 1)
        self.pooled, self.both = conv(act=None), conv(act=None)
        self.own, self.averaged = conv(size=1, act=None), conv(size=1, act=None)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.gated(self.first(x))
        x = x * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(x, 1)))
        x = self.both(F.max_pool2d(self.pooled(x), 2))
        x = torch.cat([self.own(x), self.averaged(F.avg_pool2d(x, 3, 1, 1))], 1)
        return self.head(x.mean((2, 3)))


class Moved(nn.Module):
    """Signed tensors that are split, joined and permuted before a convolution or a linear layer reads them."""

    def __init__(self):
        super().__init__()
        self.first, self.part, self.joined = conv(act=None), conv(4, 4, act=None), conv(act=None)
        self.up, self.last, self.head = nn.ConvTranspose2d(8, 8, 2, stride=2), conv(act=None), nn.Linear(8, 10)

    def forward(self, x):
        left, right = self.first(x).chunk(2, 1)
        x = self.joined(torch.cat([left, self.part(right)], 1))
        x = self.last(self.up(F.relu(F.max_pool2d(x, 2))))
        return self.head(x.permute(0, 2, 3, 1))


class Odd(nn.Module):
    """Layouts that kernels treat apart: one channel, thirteen, groups of three, two filters for each channel."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            conv(1, 13),
            conv(13, 12),
            conv(12, 12, groups=4),
            conv(12, 24, groups=12),
            conv(24, 8, groups=4),
            conv(dilation=2),
            nn.Flatten(),
            nn.Linear(800, 10),
        )

    def forward(self, x):
        return self.layers(x[:, :1])


class Frozen(nn.Module):
    """A batch norm whose tensors are buffers, computed as detectors' backbones do."""

    def __init__(self, channels=8):
        super().__init__()
        for name, values in {"weight": torch.rand(channels) - 0.2, "bias": torch.randn(channels)}.items():
            self.register_buffer(name, values)
        self.register_buffer("running_mean", torch.randn(channels) / 10)
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x):
        weight, bias, mean, variance = (tensor.reshape(1, -1, 1, 1) for tensor in self.buffers())
        scale = weight * (variance + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


class Scaled(nn.Module):
    """Layers times a constant, of each channel or of all, plus a constant or a shortcut."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.tenth, self.end = bare(), bare(), bare(), conv()
        self.layer_scale, self.gamma_1 = nn.Conv2d(8, 8, 1), nn.Parameter(torch.rand(8, 1, 1) - 0.3)
        self.norms = nn.ModuleList(Frozen() for _ in range(2))
        self.wide, self.narrow, self.gamma_2 = nn.Linear(8, 16), nn.Linear(16, 8), nn.Parameter(torch.rand(8))

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)))
        x = F.relu(self.norms[1](self.second(x)) + x)
        x = 0.1 * self.tenth(x) + x
        x = self.gamma_1 * self.layer_scale(x) + x
        x = self.end(x).mean((2, 3))
        x = F.relu(self.narrow(F.relu(self.wide(x))) * self.gamma_2 + x)
        return self.wide(x)


def conv1d(inputs=8, outputs=8, size=3, act=nn.ReLU, **options):
    layers = [nn.Conv1d(inputs, outputs, size, padding=size // 2, bias=False, **options), nn.BatchNorm1d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Sound(nn.Module):
    """Convolutions along a line: plain, depthwise, strided, signed, and with a shortcut."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv1d(8, 8, 9, stride=2), conv1d(groups=8), conv1d(size=1, act=None))
        self.block = nn.Sequential(conv1d(), conv1d(act=None))
        self.end = nn.Sequential(nn.MaxPool1d(2), conv1d(groups=2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x.flatten(2))
        return self.end(F.relu(self.block(x) + x))


class Bare(nn.Module):
    """Layers without bias and batch norm."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(bare(), nn.ReLU(), bare(), bare(groups=8), nn.ReLU6(), bare(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            *(nn.Linear(8, 16, bias=False), nn.Linear(16, 12, bias=False), nn.ReLU6(), nn.Linear(12, 10)),
        )

    def forward(self, x):
        return self.layers(x)


def norm(channels=8, least=0.5):
    layer = nn.BatchNorm2d(channels)
    nn.init.uniform_(layer.weight, least, 1.5)
    nn.init.uniform_(layer.bias, -0.5, 0.5)
    return layer


class PreActivated(nn.Module):
    """Batch norms that no layer can do: of a layer or a sum that a shortcut reads too, of a sum alone, of a concatenation.

    With a ReLU and without, with factors that are negative, and as a product and a sum.
    """

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([norm(), norm(), norm(least=-0.5), norm(16), norm(), norm(least=-0.5), Frozen(16)])
        self.norms[2].weight.data[1] = 0
        self.layers = nn.ModuleList(bare(16 if place == 4 else 8) for place in range(8))
        self.joined = nn.Conv2d(16, 10, 1)

    def forward(self, x):
        layer, norm = self.layers, self.norms
        x = layer[0](x)
        x = layer[2](F.relu(layer[1](F.relu(norm[0](x))))) + x
        x = layer[3](norm[1](x)) + x
        y = F.relu(norm[2](x))
        x = layer[4](F.relu(norm[3](torch.cat([layer[5](y), layer[6](F.relu(x))], 1))))
        x = layer[7](F.relu(norm[4](x))) + x
        return self.joined(norm[6](torch.cat([norm[5](x).relu(), x], 1)))


class Linears(nn.Module):
    """Linear layers that round by themselves, with and without an activation, and those whose sum or biases others add."""

    def __init__(self):
        super().__init__()
        sizes = [(12, 24), (24, 12), (12, 12), (12, 24), (24, 12), (12, 12), (12, 12), (12, 12)]
        self.layers = nn.ModuleList(nn.Linear(*size, bias=place != 4) for place, size in enumerate(sizes))
        self.last = bare(12, 12)

    def forward(self, x):
        layer, x = self.layers, x.flatten(1, 2)
        y = layer[2](F.relu(layer[1](layer[0](x))))
        z = layer[4](F.leaky_relu(layer[3](x))) + x
        v = layer[6](F.relu6(layer[5](x)).view(-1, 12, 8, 12))
        return torch.cat([layer[7](z), y, self.last(v.transpose(1, 3)).flatten(2).transpose(1, 2)], 2)


class Exponentials(nn.Module):
    """Activations with an exponential in them: behind convolutions and linear layers, in front of a shortcut, and alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv(act=nn.SiLU), conv(groups=8, act=nn.Sigmoid), conv(act=nn.ELU), conv(act=nn.SiLU))
        self.linear, self.last = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x):
        x = self.layers(x) + x
        return self.last(F.silu(self.linear(torch.sigmoid(x).flatten(1, 2))))


class SumsAndParts(nn.Module):
    """A sum of two convolutions that is added to a third tensor, and parts of a signed tensor by slices.

    And a sum with what the convolution reads itself, added to another one.
    """

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([conv(), conv(groups=8, act=None), conv(groups=8, size=1, act=None), conv(outputs=4)])
        self.wider, self.last = conv(4, 8, act=None), conv(act=None)
        self.own, self.short = conv(act=None), conv(size=1, act=None)

    def forward(self, x):
        layer = self.layers
        x = layer[0](x)
        z = self.own(x) + x + self.short(x)
        x = layer[3](layer[1](x) + layer[2](x) + x)
        y = self.wider(x)
        return torch.cat([self.last(torch.cat([y[:, :4] + x, y[:, 4:]], 1)), z], 1)


class MovedSums(nn.Module):
    """Sums and products of two rounded tensors: one of them shared or not, moved or transposed before, or a layer's own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*[96 if place in (2, 3) else 12] * 2) for place in range(8))

    def forward(self, x):
        layer, x = self.layers, x.flatten(1, 2)
        x = layer[0](x)
        x = x + by_columns(layer[1](F.relu(x)))
        x = x * torch.sigmoid(layer[2](F.relu(x).transpose(1, 2))).transpose(1, 2)
        x = x + layer[3](x.transpose(1, 2)).transpose(1, 2)
        x = by_columns(layer[4](x)) * by_columns(torch.sigmoid(layer[5](F.relu(x))))
        x = F.relu(layer[6](x)) + by_columns(x)
        return layer[7](x)


class Apart(nn.Module):
    """What kernels of their own round, and only moves read: a sum with what the convolution reads itself, one with a table
    of positions, a maximum. And six dimensions, and linear layers whose channels have the same bias, or none.
    """

    def __init__(self):
        super().__init__()
        self.first, self.own, self.table = conv(act=None), bare(groups=8), nn.Parameter(torch.randn(1, 144, 12))
        self.map, self.layers = (
            conv(outputs=12, act=None),
            nn.ModuleList(nn.Linear(12, 12, place != 1) for place in range(5)),
        )
        nn.init.zeros_(self.layers[2].bias).requires_grad_(False)

    def forward(self, x):
        layer, x = self.layers, self.first(x)
        x = (self.own(x) + x).flatten(2).view(-1, 8, 12, 12)
        x = (self.map(x).flatten(2).transpose(1, 2) + self.table).view(-1, 12, 12, 12).flatten(1, 2)
        x = layer[3](layer[2](layer[1](layer[0](x)))).view(-1, 4, 36, 12).amax(1)
        x = torch.sigmoid(layer[4](x.view(-1, 12, 3, 12).flatten(1, 2)).view(-1, 2, 3, 2, 3, 12))
        return layer[4](x.flatten(1, 4))


def by_columns(tokens):
    """Tokens of a map, row by row, as they come column by column."""
    return tokens.view(-1, 8, 12, 12).transpose(1, 2).flatten(1, 2)


NETS = {net.__name__: net for net in (MobileNet, Residuals, Branches, Signed, Moved, Odd, Bare, Scaled, Sound, PreActivated)}
IMAGES = {"Signed": 1000, "Moved": 1000, "Bare": 200, "PreActivated": 400}  # what differs there differs rarely


class SharedShortcuts(nn.Module):
    """Shortcuts that others read later, or the very convolution that they are added to, or that a linear layer is added to.

    And a signed tensor that is averaged and a part of a concatenation.
    """

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(conv(act=nn.ReLU if place in (0, 4, 6) else None) for place in range(12))
        self.joined, self.last = conv(16, 8), conv(16, 8)
        self.wide, self.narrow = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        layer = self.layers
        x = layer[0](x)
        y = layer[1](x)
        z = F.relu(layer[2](layer[4](x)) + y)
        z = layer[5](z) + layer[3](y)
        pooled = F.max_pool2d(layer[6](x), 3, 1, 1)
        z = F.relu(layer[7](z) + pooled)
        z = self.joined(torch.cat([layer[8](z), pooled], 1))
        y = layer[9](z)
        z = F.relu(layer[10](y) + y)
        y = layer[11](z)
        z = self.last(torch.cat([F.avg_pool2d(y, 3, 1, 1), y], 1)).flatten(1, 2)
        return F.relu(self.narrow(F.relu(self.wide(z))) + z)


class Affine(nn.Module):
    """A factor and next to no shift, or some, behind a layer, a concatenation and what others read; and a sum of planes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(conv() for _ in range(6))
        self.register_buffer("factor", torch.tensor([0.9]))
        for place, shift in enumerate((3e-5, 1e-3, 3e-5, -0.1)):
            self.register_buffer(f"shift_{place}", torch.tensor([shift]))

    def forward(self, x):
        layer = self.layers
        a = self.factor * layer[0](x) + self.shift_0
        b = self.factor * layer[1](x) + self.shift_1
        joined = self.factor * torch.cat([layer[2](x), layer[3](x)], 1) + self.shift_2
        c = layer[4](x)
        d = self.factor * c + self.shift_3
        total = torch.stack([layer[5](c), c], 1).sum(1)
        return torch.cat([one.mean((2, 3)) for one in (a, b, joined, d, total)], 1)


class KeptPart(nn.Module):
    """A part of a signed tensor that goes into a concatenation as it is, and the whole as a shortcut (InceptionNeXt)."""

    def __init__(self):
        super().__init__()
        self.first, self.part, self.norm, self.last = conv(act=None), conv(4, 4, act=None), norm(), conv(act=None)

    def forward(self, x):
        x = self.first(x)
        kept, rest = x.chunk(2, 1)
        return self.last(self.norm(torch.cat([kept, self.part(rest)], 1))) + x


NETS = {net.__name__: net for net in (MobileNet, Residuals, Branches, Signed, Moved, Odd, Bare, Scaled, Sound, PreActivated)}
IMAGES = {"Signed": 1000, "Moved": 1000, "Bare": 200, "PreActivated": 400}  # what differs there differs rarely
ON_OPENVINO = {
    net.__name__: net for net in (Linears, Exponentials, SumsAndParts, MovedSums, Apart, SharedShortcuts, Affine, KeptPart)
}
LARGE = ("SumsAndParts", "MovedSums", "SharedShortcuts", "KeptPart")
IMAGES |= dict.fromkeys(ON_OPENVINO, 1000) | dict.fromkeys(LARGE, 4000)
IMAGES |= dict.fromkeys(ON_OPENVINO, 1000) | dict.fromkeys(
    ("SumsAndParts", "MovedSums", "SharedShortcuts", "KeptPart"), 4000
)
IMAGES["Apart"] = 2000


def fresh(name):
    """A net in which every second filter is drawn as usual, and in every other most pairs would overflow 16 bits."""
    torch.manual_seed(0)
    net = (NETS | ON_OPENVINO)[name]()
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            filters = layer.weight.data.movedim(int(isinstance(layer, nn.ConvTranspose2d)), 0)[::2]
            filters.copy_(mostly_large_of_one_sign(filters))
    return net


def mostly_large_of_one_sign(weight):
    sign = torch.where(torch.rand(weight.shape) < 0.9, 1.0, -1.0)
    return sign * (1 - 0.1 * torch.rand(weight.shape)) / weight[0].numel() ** 0.5


def frozen(net, **config):
    """The net quantized, trained for a few steps on noise, and frozen."""
    generator = torch.Generator().manual_seed(2)
    qat = quaver.quant_aware(net, config, example_inputs=(torch.zeros(2, *SHAPE),)).train()
    optimizer = torch.optim.SGD(qat.parameters(), 0.01)
    for _ in range(3):
        loss = qat(torch.randn(8, *SHAPE, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return quaver.convert(qat)


def write(program, folder, target="openvino", images=16):
    """Export a program, and write beside it what the simulation gives for some images."""
    file = quaver.export(program, folder, target=target)
    inside = simulation(program)
    images = torch.randn(images, *SHAPE, generator=torch.Generator().manual_seed(4))
    outputs, integers = inside.run(images)
    arrays = {"images": images.numpy(), "output": outputs[0].numpy()} | {
        f"at {name}": whole for name, whole in integers.items()
    }
    np.savez(folder / "expected.npz", **arrays)
    (folder / "scales.json").write_text(json.dumps(inside.scales))
    return file


def differences(folder, tolerance=0.0):
    """For each tensor of a net: how many integers the engine has otherwise; the output's floats beyond a tolerance."""
    expected = np.load(folder / "expected.npz")
    (file,) = (*folder.glob("*.xml"), *folder.glob("*.onnx"))
    engine = Inside.of(file, json.loads((folder / "scales.json").read_text()))
    outputs, integers = engine.run(expected["images"])
    found = {name: int((whole != expected[f"at {name}"]).sum()) for name, whole in integers.items()}
    untouched = quaver.runtime.load(file)(expected["images"])  # as deployed: without the further outputs
    return found | {
        "output": int((np.abs(outputs[0] - expected["output"]) > tolerance).sum()),
        "deployed output": int((np.abs(untouched - expected["output"]) > tolerance).sum()),
    }


def on_processor(processor, folders):
    """The differences of each net, in a fork of this process: an engine looks once at what it may use."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = processor
        with os.fdopen(writing, "w") as answer:
            json.dump({folder.name: differences(folder) for folder in folders}, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    assert code == 0, f"{processor}: exit code {code}"
    return json.loads(text)


if __name__ == "__main__":
    torch.set_num_threads(1)
    nets = sorted(Path(sys.argv[1]).iterdir())
    print(json.dumps({processor: on_processor(processor, nets) for processor in sys.argv[2:]}))
