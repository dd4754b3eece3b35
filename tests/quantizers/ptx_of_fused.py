"""Compile every fused kernel for an accelerator that need not be here, and print what its code divides and multiplies with.

A process of its own: where Triton's interpreter is switched on, there is no compiler.
"""

import json
import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from quaver.quantizers.fused import triton_kernels

TARGET = GPUTarget("cuda", 90, 32)
HALVES = {"x", "gradient", "result"}
KINDS = {
    **dict.fromkeys(("scratch",), "*i32"),
    **dict.fromkeys(("nonfinite", "table", "owners", "neighbour_places"), "*i64"),
    **dict.fromkeys(("first", "second", "limit", "scale", "slopes", "thresholds"), "*fp32"),
    **dict.fromkeys(("count", "slot", "window", "inner", "channels"), "i32"),
    **dict.fromkeys(("rate", "high", "low", "pair_factor"), "fp32"),
    **dict.fromkeys(("kept", "integers"), "*u8"),
}
FLAGS = {
    "SIGNED": True,
    "NARROW": False,
    "LIMITED": True,
    "CUDA": True,
    "MASKED": True,
    "STORED": True,
    "CLAMP": 6.0,
    "PASSES": False,
    "BLOCK": 256,
    "REDUCED": 512,
}
VARIANTS = [
    ("observe", {"RULE": "moving_average_abs_max", "TENSORS": 3, "SLOTS": 4, "slot": 1}),
    ("observe", {"RULE": "range_abs_max", "TENSORS": 1, "SLOTS": 1, "CLAMP": 0.0}),
    ("observe", {"RULE": "abs_max", "TENSORS": 1, "SLOTS": 1, "window": 1}),
    ("round_to_grid", {"PER_CHANNEL": False, "inner": 1, "channels": 1}),
    ("round_to_grid", {"PER_CHANNEL": True, "PASSES": True, "CLAMP": float("inf")}),
    ("round_to_grid", {"PER_CHANNEL": True, "STORED": False}),
    ("observe_and_round", {"RULE": "moving_average_abs_max", "TENSORS": 1, "SLOTS": 1, "CLAMP": float("inf")}),
    ("observe_and_round", {"RULE": "range_abs_max", "TENSORS": 2, "SLOTS": 2, "CLAMP": 0.0, "STORED": False}),
    ("mask_gradient", {}),
    ("values_of", {}),
    ("slope_and_mask", {"PER_CHANNEL": True, "inner": 1}),
    ("slope_and_mask", {"PER_CHANNEL": False}),
    ("round_weights", {"ELEMENT": triton_kernels.tl.bfloat16}),
]


def compiled(name, options):
    """The kernel's PTX; ``options`` may make constants of numbers that are 1, as Triton does by itself."""
    kernel = getattr(triton_kernels, name)
    constants = {arg: value for arg, value in (FLAGS | options).items() if arg in kernel.arg_names}
    kinds = (
        KINDS | {"second": "*i64" if options.get("RULE") == "range_abs_max" else "*fp32"} | dict.fromkeys(HALVES, "*bf16")
    )
    signature = {arg: "constexpr" if arg in constants else kinds[arg] for arg in kernel.arg_names}
    places = {(kernel.arg_names.index(arg),): value for arg, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    return triton.compile(source, target=TARGET, options={"enable_fp_fusion": False}).asm["ptx"]


if __name__ == "__main__":
    for name, options in VARIANTS:
        print(json.dumps(sorted(set(re.findall(r"\b(?:fma|mad|div|rcp|mul|add|sub)[.\w]*f32\b", compiled(name, options))))))
