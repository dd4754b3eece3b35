"""The journey, stage by stage: ``quant_aware`` before training, ``convert`` after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload
from weakref import WeakKeyDictionary

import torch
from torch import nn

from quaver.capture import capture
from quaver.checking import several
from quaver.config import QuantConfig
from quaver.config.options import shared_options
from quaver.errors import ConfigError, InputError, StageError
from quaver.garbage import without_collecting
from quaver.passes import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
)
from quaver.passes.add_quant_dequant import WITHOUT_WEIGHT
from quaver.passes.base import concluded
from quaver.passes.choose_int8_ops import ChooseInt8Ops
from quaver.passes.placement import place
from quaver.passes.quantization_transform import OP_TYPES as WITH_WEIGHT
from quaver.passes.redundant_options import refuse_fewer_types, refuse_other_options, refuse_other_place
from quaver.program import Program, Stage
from quaver.quantizers import PACT
from quaver.quantizers.pact import warn_of_unknown


def quant_aware(
    model_or_program: nn.Module,
    config: QuantConfig | Mapping[str, Any] | str | torch.device | None = None,
    *after_place: Any,
    example_inputs: Any = None,
    example_kwargs: dict[str, Any] | None = None,
    dynamic: bool = False,
    for_test: bool = False,
    weight_quantize_func: Any = None,
    act_quantize_func: Any = None,
    weight_preprocess_func: Any = None,
    act_preprocess_func: Any = None,
    optimizer_func: Any = None,
    scope: Any = None,
    place: Any = None,
) -> Program:
    """A program that trains with the rounding of int8: capture, then a quantizer wherever the target computes in int8.

    With ``dynamic`` images may have another height and width than the example's, as `capture` says. With ``for_test`` it is
    an evaluation view that shares everything with the training program made from the same program, config and functions,
    before or after it. What is not given is as in the training program. The reference's order,
    ``quant_aware(program, place, config, scope)``, is taken too: the place is the device that the program is on.
    """
    if after_place or isinstance(config, str | torch.device):
        config, place, scope = _in_the_references_order(config, after_place, (place, scope))
    settings = QuantConfig.of(config)  # type: ignore[arg-type]  # what is no config is refused there
    program = _captured(model_or_program, example_inputs, example_kwargs, dynamic)
    refuse_other_place("quant_aware", program, scope, place)
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
    all_made = _MADE.setdefault(program, [])
    waiting = [candidate for candidate in all_made if not candidate.trains and candidate.made_from == (settings, functions)]
    made = _viewed(all_made, None if config is None else settings, functions) if for_test else next(iter(waiting), None)
    if made is None:
        made = _Made((settings, functions), _prepared(program, settings, functions, optimizer_func))
        settings.warn_of_unmatched(made.program.scopes(), stacklevel=2)
        all_made.append(made)
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


def _in_the_references_order(place: Any, rest: tuple[Any, ...], by_name: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """Config, place and scope, of which the place was given first."""
    if len(rest) > 2 or any(value is not None for value in by_name):
        raise ConfigError("quant_aware: takes place, config and scope in this order or by their names, each once.")
    config, scope = (*rest, None, None)[:2]
    return config, place, scope


@dataclass
class _Made:
    """A prepared program, and the config and functions it was made from; ``trains`` once not only views of it are held."""

    made_from: tuple[QuantConfig, dict[str, Any]]
    program: Program
    trains: bool = False


_MADE: WeakKeyDictionary[Program, list[_Made]] = WeakKeyDictionary()
"""What was made of a float program: a view and the training program share their quantizers, whichever is asked for first."""


def _viewed(all_made: list[_Made], config: QuantConfig | None, functions: dict[str, Any]) -> _Made | None:
    """What a view is of: made from this config and these functions, as far as they are given; None if it is to be made."""
    given = {name: function for name, function in functions.items() if function is not None}
    fitting = [
        candidate
        for candidate in all_made
        if config in (None, candidate.made_from[0]) and candidate.made_from[1] | given == candidate.made_from[1]
    ]
    fitting = [candidate for candidate in fitting if candidate.trains] or fitting
    differ = any(candidate.made_from != fitting[-1].made_from for candidate in fitting)
    if differ or (not fitting and any(candidate.trains for candidate in all_made)):
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


@without_collecting()
def _prepared(program: Program, settings: QuantConfig, functions: dict[str, Any], optimizer_func: Any) -> Program:
    """The two quantizing passes, as the config says."""
    patterns = settings.patterns
    transform = QuantizationTransformPass(
        **shared_options(settings, QuantizationTransformPass),
        **functions,
        skip_pattern=patterns,
        quantizable_op_type=[name for name in settings.quantize_op_types if name in WITH_WEIGHT],
        quantize_activations=not settings.quant_weight_only,
        optimizer_func=optimizer_func,
    )
    if settings.quant_weight_only:
        return transform.apply(program)
    between = AddQuantDequantPass(
        **shared_options(settings, AddQuantDequantPass),
        **{name: function for name, function in functions.items() if name.startswith("act_")},
        skip_pattern=patterns,
        quantizable_op_type=[name for name in settings.quantize_op_types if name in WITHOUT_WEIGHT],
        leave_outputs_float=True,
        leave_products_float=settings.leaves_products_float,
    )
    transform.check(program)
    # both at once: each tensor is looked at with all that read it
    prepared = place(program, transform.engine, transform.plan, between.plan)
    prepared.optimizer_func = optimizer_func or program.optimizer_func
    return concluded(prepared, program, transform, between)


def _captured(model: nn.Module, example_inputs: Any, example_kwargs: dict[str, Any] | None, dynamic: bool) -> Program:
    if isinstance(model, Program):
        return model
    if example_inputs is None and not example_kwargs:
        raise InputError("quant_aware: a model needs example_inputs to be captured, such as example_inputs=(x,).")
    return capture(model, () if example_inputs is None else example_inputs, example_kwargs, dynamic=dynamic)


Config = QuantConfig | Mapping[str, Any] | None


Types = str | Sequence[str] | None


@overload
def convert(
    program: Program,
    place: Any = None,
    config: Config = None,
    scope: Any = None,
    *,
    save_int8: Literal[False] = False,
    quantized_ops: Types = None,
) -> Program: ...
@overload
def convert(
    program: Program,
    place: Any = None,
    config: Config = None,
    scope: Any = None,
    *,
    save_int8: Literal[True],
    quantized_ops: Types = None,
) -> tuple[Program, Program]: ...
def convert(
    program: Program,
    place: Any = None,
    config: Config = None,
    scope: Any = None,
    *,
    save_int8: bool = False,
    quantized_ops: Types = None,
) -> Program | tuple[Program, Program]:
    """The trained program with integers in place of quantizers: stored as float32, and with ``save_int8`` as int8 too.

    Both compute what the prepared program computes in evaluation. The program given can go on training. ``place``,
    ``config`` and ``scope`` are the reference's: they may say what is so, the device that the program is on and the config
    that it was trained with.

    ``quantized_ops``: of the ops that were trained with quantizers, only those of these types (``["conv2d", "pool2d"]``)
    run in int8, the others in float; ``ops()`` says so. A frozen program is then taken, too.
    """
    if not isinstance(program, Program):
        raise StageError(f"convert: takes a program from quaver.quant_aware, not {type(program).__name__}.")
    if program.stage is Stage.FLOAT:
        raise StageError("convert: the program has no quantizers. Call quaver.quant_aware first, then train.")
    if isinstance(place, bool):
        raise ConfigError(f"convert: place={place}: takes a device. save_int8 goes by its name: save_int8={place}.")
    refuse_other_place("convert", program, scope, place)
    if config is not None:
        _refuse_other_config(program, QuantConfig.of(config))
    chosen = None if quantized_ops is None else ChooseInt8Ops(quantized_ops=several(quantized_ops))
    is_frozen = chosen is not None and program.stage is Stage.FROZEN
    frozen = program if is_frozen else QuantizationFreezePass().apply(program.clone() if program.for_test else program)
    frozen = frozen if chosen is None else chosen.apply(frozen)
    return (frozen, ConvertToInt8Pass().apply(frozen)) if save_int8 else frozen


def _refuse_other_config(program: Program, settings: QuantConfig) -> None:
    options = shared_options(settings, QuantizationTransformPass) | {"quantize_activations": not settings.quant_weight_only}
    refuse_other_options("convert", program, options)
    types = settings.quantize_op_types
    refuse_fewer_types("convert", program, "quantize_op_types", types, WITH_WEIGHT | WITHOUT_WEIGHT)
