"""The journey, stage by stage: ``quant_aware`` before training, ``convert`` after it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, overload
from weakref import WeakKeyDictionary

from torch import nn

from quaver.capture import capture
from quaver.config import QuantConfig
from quaver.config.options import shared_options
from quaver.errors import ConfigError, InputError, StageError
from quaver.passes import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
)
from quaver.passes.add_quant_dequant import WITHOUT_WEIGHT
from quaver.passes.base import concluded
from quaver.passes.placement import place
from quaver.passes.quantization_transform import OP_TYPES as WITH_WEIGHT
from quaver.program import Program, Stage
from quaver.quantizers import PACT
from quaver.quantizers.pact import warn_of_unknown


def quant_aware(
    model_or_program: nn.Module,
    config: QuantConfig | Mapping[str, Any] | None = None,
    *,
    example_inputs: Any = None,
    for_test: bool = False,
    weight_quantize_func: Any = None,
    act_quantize_func: Any = None,
    weight_preprocess_func: Any = None,
    act_preprocess_func: Any = None,
    optimizer_func: Any = None,
) -> Program:
    """A program that trains with the rounding of int8: capture, then a quantizer wherever the target computes in int8.

    With ``for_test`` it is an evaluation view that shares everything with the training program made from the same program,
    config and functions, before or after it. What is not given is as in the training program.
    """
    settings = QuantConfig.of(config)
    program = _captured(model_or_program, example_inputs)
    if program.stage is Stage.PREPARED and for_test:
        return program.clone(for_test=True)
    if program.stage is not Stage.FLOAT:
        raise StageError(
            f"quant_aware: the program is {program.stage.value} already. Train it and call quaver.convert, or capture the "
            "model again to quantize it another way."
        )
    functions = {
        "weight_quantize_func": weight_quantize_func,
        "act_quantize_func": act_quantize_func,
        "weight_preprocess_func": preprocess(settings.weight_preprocess_type, weight_preprocess_func, "weight"),
        "act_preprocess_func": preprocess(settings.activation_preprocess_type, act_preprocess_func, "activation"),
    }
    known = _MADE.setdefault(program, [])
    waiting = [one for one in known if not one.trains and one.made_from == (settings, functions)]
    made = _viewed(known, None if config is None else settings, functions) if for_test else next(iter(waiting), None)
    if made is None:
        made = _Made((settings, functions), _prepared(program, settings, functions, optimizer_func))
        known.append(made)
    if for_test:
        return made.program.clone(for_test=True)
    prepared, made.trains = made.program, True
    if waiting:  # made for an evaluation view that was asked for first
        prepared.optimizer_func = optimizer_func
        first, *rest = prepared.history
        prepared.history = (replace(first, options=first.options | {"optimizer_func": repr(optimizer_func)}), *rest)
    for function in functions.values():
        warn_of_unknown(function, prepared.placements.quantizers, stacklevel=2)
    return prepared


@dataclass
class _Made:
    """A prepared program, and the config and functions it was made from; ``trains`` once not only views of it are held."""

    made_from: tuple[QuantConfig, dict[str, Any]]
    program: Program
    trains: bool = False


_MADE: WeakKeyDictionary[Program, list[_Made]] = WeakKeyDictionary()
"""What was made of a float program: a view and the training program share their quantizers, whichever is asked for first."""


def _viewed(known: list[_Made], config: QuantConfig | None, functions: dict[str, Any]) -> _Made | None:
    """What a view is of: made from this config and these functions, as far as they are given; None if it is to be made."""
    given = {name: function for name, function in functions.items() if function is not None}
    fitting = [one for one in known if config in (None, one.made_from[0]) and one.made_from[1] | given == one.made_from[1]]
    fitting = [one for one in fitting if one.trains] or fitting
    differ = any(one.made_from != fitting[-1].made_from for one in fitting)
    if differ or (not fitting and any(one.trains for one in known)):
        raise StageError(
            "quant_aware: for_test=True is a view of a training program, and of those made of this program "
            f"{'several' if differ else 'none'} fit the config and functions given. Give those of the one that is meant, or "
            "call .clone(for_test=True) on it."
        )
    return fitting[-1] if fitting else None


def preprocess(name: str | None, function: Any, what: str) -> Any:
    """The function that a config's ``…_preprocess_type`` stands for, or the one given instead."""
    if name is not None and function is not None:
        raise ConfigError(f"{what}_preprocess_type={name!r}: a preprocess function was given as well. Give one of the two.")
    return PACT if name == "PACT" else function


def _prepared(program: Program, settings: QuantConfig, functions: dict[str, Any], optimizer_func: Any) -> Program:
    """The two quantizing passes, as the config says."""
    transform = QuantizationTransformPass(
        **shared_options(settings, QuantizationTransformPass),
        **functions,
        skip_pattern=settings.patterns,
        quantizable_op_type=[name for name in settings.quantize_op_types if name in WITH_WEIGHT],
        quantize_activations=not settings.quant_weight_only,
        optimizer_func=optimizer_func,
    )
    if settings.quant_weight_only:
        return transform.apply(program)
    between = AddQuantDequantPass(
        **shared_options(settings, AddQuantDequantPass),
        **{name: function for name, function in functions.items() if name.startswith("act_")},
        skip_pattern=settings.patterns,
        quantizable_op_type=[name for name in settings.quantize_op_types if name in WITHOUT_WEIGHT],
        leave_outputs_float=True,
        leave_products_float=settings.leaves_products_float,
    )
    transform.check(program)
    prepared = place(
        program, transform.engine, transform.plan, between.plan
    )  # both at once: each tensor is looked at with all that read it
    prepared.optimizer_func = optimizer_func or program.optimizer_func
    return concluded(prepared, program, transform, between)


def _captured(model: nn.Module, example_inputs: Any) -> Program:
    if isinstance(model, Program):
        return model
    if example_inputs is None:
        raise InputError("quant_aware: a model needs example_inputs to be captured, such as example_inputs=(x,).")
    return capture(model, example_inputs)


@overload
def convert(program: Program, save_int8: Literal[False] = False) -> Program: ...
@overload
def convert(program: Program, save_int8: Literal[True]) -> tuple[Program, Program]: ...
def convert(program: Program, save_int8: bool = False) -> Program | tuple[Program, Program]:
    """The trained program with integers in place of quantizers: stored as float32, and with ``save_int8`` as int8 too.

    Both compute what the prepared program computes in evaluation. The program given can go on training.
    """
    if not isinstance(program, Program):
        raise StageError(f"convert: takes a program from quaver.quant_aware, not {type(program).__name__}.")
    if program.stage is Stage.FLOAT:
        raise StageError("convert: the program has no quantizers. Call quaver.quant_aware first, then train.")
    frozen = QuantizationFreezePass().apply(program.clone() if program.for_test else program)
    return (frozen, ConvertToInt8Pass().apply(frozen)) if save_int8 else frozen
