"""Users' functions at freezing: a custom quantizer becomes a plain one, a function in front of a quantizer becomes ops."""

import copy
from collections.abc import Mapping

import torch
from torch import nn

from quaver.capture.capture import capture_modes
from quaver.errors import ConversionError
from quaver.graph.nodes import quantizer_of, rank_of
from quaver.program import EVAL, Program
from quaver.program.reason import Because
from quaver.program.views import Executable, set_submodule
from quaver.quantizers import CustomQuantizer, Quantizer
from quaver.quantizers.on_grid import OffGridError


def with_plain_quantizers(program: Program, quantizers: Mapping[str, Quantizer]) -> Program:
    """The program with a plain quantizer in the place of each that has a user's function in it, or a clip in front."""
    plain: dict[str, Quantizer] = {}
    ranks, device = _ranks(program), _device(program)
    for name, quantizer in quantizers.items():
        if not isinstance(quantizer, CustomQuantizer):
            absorbing = quantizer.absorbing(ranks[name], device)
            if absorbing is not None:
                plain[name] = absorbing
        else:
            try:
                plain[name] = plain_form(program, name, quantizer, ranks[name], device)
            except OffGridError as error:
                raise ConversionError(
                    f"{name!r}: its custom quantize function is on no integer grid: {error}. Round to multiples of one "
                    "step, use a preprocess function in front of a built-in quantizer, or leave the op out with a skip "
                    "pattern."
                ) from error
    if not plain:
        return program
    twin, placed = program.copy(), nn.Module()
    for name, quantizer in quantizers.items():
        set_submodule(placed, name, plain.get(name, quantizer))
    twin._modules[program.placements.root] = placed
    return twin


def _ranks(program: Program) -> dict[str, int]:
    """How many dimensions each tensor has that is quantized; of images where it is not known."""
    seen = {quantizer_of(node): rank_of(node) for node in reversed(program.graphs[EVAL].nodes)}
    return {name: seen.get(name) or 4 for name in program.placements.quantizers}


def _device(program: Program) -> torch.device:
    return next((tensor.device for tensor in program.parameters()), torch.device("cpu"))


def plain_form(program: Program, name: str, custom: CustomQuantizer, rank: int, device: torch.device) -> Quantizer:
    """The plain quantizer that does what a user's function does; for a weight, to what the function made of it."""
    if name not in program.placements.weights:
        return custom.plain_activation(rank, device)
    custom = copy.deepcopy(custom).eval()
    values = custom(program.weight(name)).detach().float()
    plain = custom.plain_weight(values)
    plain.preprocess = custom
    return plain


def traced_function(function: nn.Module, program: Program, tensor: str) -> Program:
    """A user's function in front of a tensor's quantizer as a graph, if it is one for tensors of every size."""
    rank, device = _ranks(program)[tensor], _device(program)
    example, other = (torch.randn([7, 5, 4, 3, 2, 6][start:][:rank], device=device) for start in (0, 1))
    try:
        traced = capture_modes(function, (example,), None, (EVAL,))
        (result,) = Executable(traced, traced.graphs[EVAL])(other)
        fits = torch.equal(result, copy.deepcopy(function).eval()(other))
    except Exception as error:  # whatever a user's function raises
        raise ConversionError(f"{tensor!r}: its preprocess function has no graph: {error} {_WITHOUT_IT}") from error
    if not fits:
        raise ConversionError(f"{tensor!r}: its preprocess function depends on the tensor's size. {_WITHOUT_IT}")
    return traced


def reason_in_front(tensor: str) -> Because:
    """Why the ops of such a function stay float."""
    return Because(
        f"of the preprocess function in front of {tensor!r}, which is no clip, so no threshold absorbs it: it costs a float "
        "op, and what is computed before it cannot be rounded in the same step"
    )


_WITHOUT_IT = (
    "Write it for every element by itself, or train with it, then load the state into a program without it, with "
    "load_state_dict(state, strict=False), and train on for a few batches."
)
