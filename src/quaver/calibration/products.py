"""What rounding a weight does to its layer's output, from the products of what the layer is given: no data after that.

Of a layer ``y = W·x`` the squared error of other weights V is ``Σ|V·x̂ − y|² = V·A·Vᵀ − 2·V·B + …`` with ``A = Σ x̂·x̂ᵀ`` and
``B = Σ x̂·yᵀ``: x̂ is what the layer is given in the quantized network, y what it gave in the float one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from quaver.calibration.calibrated_layer import CalibratedLayer
from quaver.calibration.sweep import Sweep

LARGEST = 6144
"""Inputs of an output beyond which the products of all pairs of them are not computed: 150 MB."""

DAMPING = 0.01
"""How much each weight is held to its place, as a share of the mean square of an input: directions that the images did not
show stay as they are."""


@dataclass
class Products:
    """``A`` (groups, inputs, inputs) and ``B`` (groups, outputs, inputs) of a layer."""

    inputs: Tensor
    outputs: Tensor

    def noise(self, change: Tensor) -> Tensor:
        """The squared error that a change of the weights (groups, outputs, inputs) makes, by output."""
        return ((change @ self.inputs) * change).sum(-1)


def products_of(sweep: Sweep, layer: CalibratedLayer, *, centred: bool) -> Products | None:
    """The products over all batches; ``centred``: of what differs from the mean, which a bias will make up for.

    None where the layer is no matrix product, or a product is too large.
    """
    inputs = layer.weight[0].numel()
    if not layer.is_product or inputs > LARGEST:
        return None
    count, sums = 0, None
    for batch in range(len(sweep.batches)):
        columns = layer.columns(sweep.value(layer.source, batch, False))
        rows = layer.rows(sweep.value(layer.node, batch, True))
        both = torch.cat([columns, rows], 1)
        own = [columns @ both.transpose(1, 2), both.sum(2)]
        sums = own if sums is None else [total.add_(addend) for total, addend in zip(sums, own, strict=True)]
        count += columns.shape[2]
    assert sums is not None
    squares, totals = (value / count for value in sums)
    if centred:
        squares -= totals[:, :inputs, None] * totals[:, None, :]
    products = Products(squares[:, :, :inputs], squares[:, :, inputs:].transpose(1, 2))
    damping = DAMPING * products.inputs.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp_min(1e-20)
    products.inputs += damping * torch.eye(inputs, device=squares.device)
    products.outputs += damping * layer.in_groups(layer.weight.detach().float())
    return products
