"""The journey, stage by stage: ``quant_aware`` before training, ``convert`` after it."""

from collections.abc import Mapping
from typing import Any, Literal, overload

from torch import nn

from quaver.capture import capture
from quaver.config import QuantConfig
from quaver.errors import InputError, StageError
from quaver.passes import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
)
from quaver.passes.add_quant_dequant import WITHOUT_WEIGHT
from quaver.passes.quantization_transform import OP_TYPES as WITH_WEIGHT
from quaver.program import Program, Stage


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

    With ``for_test`` it is an evaluation view that shares everything with the training program made from the same program.
    """
    settings = QuantConfig.of(config)
    program = _captured(model_or_program, example_inputs)
    if program.stage is not Stage.FLOAT:
        if program.stage is Stage.PREPARED and for_test:
            return program.clone(for_test=True)
        raise StageError(
            f"quant_aware: the program is {program.stage.value} already. Train it and call quaver.convert, or capture the "
            "model again to quantize it another way."
        )
    if for_test and program.trained_as:
        return program.trained_as[-1].clone(for_test=True)
    prepared = QuantizationTransformPass(
        quantizable_op_type=[name for name in settings.quantize_op_types if name in WITH_WEIGHT],
        skip_pattern=settings.patterns,
        weight_quantize_type=settings.weight_quantize_type,
        activation_quantize_type=settings.activation_quantize_type,
        weight_bits=settings.weight_bits,
        activation_bits=settings.activation_bits,
        window_size=settings.window_size,
        moving_rate=settings.moving_rate,
        quantize_activations=not settings.quant_weight_only,
        pass_through=settings.pass_through,
        target=settings.target,
        weight_quantize_func=weight_quantize_func,
        act_quantize_func=act_quantize_func,
        weight_preprocess_func=weight_preprocess_func,
        act_preprocess_func=act_preprocess_func,
        optimizer_func=optimizer_func,
    ).apply(program)
    if not settings.quant_weight_only:
        prepared = AddQuantDequantPass(
            quantizable_op_type=[name for name in settings.quantize_op_types if name in WITHOUT_WEIGHT],
            skip_pattern=settings.patterns,
            activation_quantize_type=settings.activation_quantize_type,
            activation_bits=settings.activation_bits,
            window_size=settings.window_size,
            moving_rate=settings.moving_rate,
            pass_through=settings.pass_through,
            leave_outputs_float=True,
            target=settings.target,
            act_quantize_func=act_quantize_func,
            act_preprocess_func=act_preprocess_func,
        ).apply(prepared)
    program.trained_as.append(prepared)
    return prepared.clone(for_test=True) if for_test else prepared


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
