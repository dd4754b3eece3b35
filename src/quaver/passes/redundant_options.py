"""Redundant options: the reference's scripts repeat them at every step. They are accepted if they agree with the program."""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from quaver.checking import Rule, check, several, shown
from quaver.config.options import option
from quaver.errors import ConfigError
from quaver.program import Program


def _is_place(value: Any) -> bool:
    """Whether it names a device; torch takes numbers too, and so a True that was meant for something else."""
    if value is None or isinstance(value, torch.device):
        return True
    try:
        return isinstance(value, str) and torch.device(value) is not None
    except RuntimeError:
        return False


SCOPE = Rule("None: a program holds its own tensors", lambda value: value is None)
PLACE = Rule("None or a device, such as 'cpu': the one that the program is on", _is_place)


def redundant_option(rule: Rule, help: str) -> Any:
    """An option that changes nothing; a program's history leaves it out."""
    return option(None, rule, help, repr=False)


def refuse_other_place(where: str, program: Program, scope: Any, place: Any) -> None:
    """Refuse a scope, and a place that the program is not on."""
    if scope is None and place is None:
        return
    check(where, {"scope": scope, "place": place}, {"scope": SCOPE, "place": PLACE})
    wanted = torch.device(place)
    for tensor in (*program.parameters(), *program.buffers()):
        if tensor.device.type != wanted.type or wanted.index not in (None, tensor.device.index):
            raise ConfigError(
                f"{where}: place={place!r}: the program is on {tensor.device}. Move it with program.to({str(wanted)!r}), or "
                "leave the place out."
            )


def refuse_other_options(where: str, program: Program, options: Mapping[str, Any]) -> None:
    """Refuse options that differ from those of the pass that placed the quantizers of weights."""
    for applied in program.history:
        for name, value in options.items() if applied.name == "QuantizationTransformPass" else ():
            if (trained := applied.options.get(name, repr(value))) != repr(value):
                raise ConfigError(
                    f"{where}: {name}={shown(value)}: the program was trained with {name}={trained}. Leave it out, or "
                    "quantize the model so before training."
                )


def refuse_fewer_types(where: str, program: Program, name: str, given: Any, among: Collection[str]) -> None:
    """Refuse a list of op types that leaves out some that the program has quantized; only those ``among`` count."""
    others = sorted({op.type for op in program.ops() if op.quantized and op.type in among} - {*several(given)})
    if others:
        raise ConfigError(
            f"{where}: {name}={shown(given)}: the program has quantized ops of other types as well: {', '.join(others)}. "
            "Leave it out, list what is to be quantized before training, or choose with quaver.convert(…, quantized_ops=…)."
        )
