"""Sign tracking: which tensors of an eager model cannot be negative, found out during its first forward.

A tensor behind a ReLU needs no integers below zero, and has twice as many above for it. A graph shows what stands behind a
ReLU; an eager model shows it only as it runs. So its first forward is watched, op by op, by the rules that graphs are read
with.
"""

import math
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from quaver.operators import OPS, UNKNOWN, OpFacts, packets_of

TRACKER = "_quaver_sign_tracker"  # the attribute of a layer that is watched
CONVOLVED = "_quaver_convolved"  # of a tensor that comes straight out of a convolution, and that nobody has read yet
_NEVER_NEGATIVE = "_quaver_never_negative"
# div_ and bernoulli_ make a dropout's mask
_BY_DISPATCHED_NAME = (
    {name: row for packet, row in OPS.items() for name in (packet, *row.dispatched)}
    | {f"{name}_": OPS[name] for name in packets_of("clamp", "activation", "elementwise")}
    | dict.fromkeys(("expand", "_to_copy", "to", "detach", "alias", "div_"), OpFacts(keeps_positive=True))
    | dict.fromkeys(("clamp_min", "clamp_min_"), OpFacts(bounds=("min", math.inf)))
    | {"bernoulli_": OpFacts(never_negative=True)}
)


def never_negative(x: Tensor) -> bool:
    """Whether a tensor of a watched forward cannot be negative, whatever the input."""
    return getattr(x, _NEVER_NEGATIVE, False)


def carry_sign(x: Tensor, rounded: Tensor) -> Tensor:
    """``rounded``, known to be not negative if ``x`` is."""
    if never_negative(x):
        setattr(rounded, _NEVER_NEGATIVE, True)
    return rounded


class SignTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the first forward of a model, then goes. `watch` puts it there.

    Hooks switch it on around the outermost module that is called. Layers that this forward did not reach count as signed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, and note what is known of its results."""
        for tensor in (*args, *(args[0] if args and isinstance(args[0], tuple | list) else ())):
            if isinstance(tensor, Tensor) and hasattr(tensor, CONVOLVED):
                delattr(tensor, CONVOLVED)
        result = func(*args, **(kwargs or {}))
        follows = _follows(func._schema.name.split("::")[1], args, kwargs or {})
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and (follows or hasattr(tensor, _NEVER_NEGATIVE)):
                setattr(tensor, _NEVER_NEGATIVE, follows)
        return result

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def enter(self, module: nn.Module, args: Any) -> None:
        """Before a module's forward."""
        self.depth += 1
        if self.depth == 1:
            self.__enter__()  # type: ignore[no-untyped-call]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """After it, whatever came of it; after a forward that failed, the next is watched instead."""
        self.depth -= 1
        if self.depth == 0:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            if sys.exc_info()[0] is None:
                unwatch(module)


def watch(net: nn.Module, layers: list[nn.Module]) -> None:
    """Let `SignTracker` watch the next forward for these layers of the model."""
    tracker, wanted = SignTracker(), {id(layer) for layer in layers}
    for module in net.modules():
        if any(id(inner) in wanted for inner in module.modules()):
            module.register_forward_pre_hook(tracker.enter)
            module.register_forward_hook(tracker.leave, always_call=True)
        if id(module) in wanted:
            module.__dict__[TRACKER] = tracker


def unwatch(net: nn.Module) -> None:
    """Take the hooks away; what is not known by now is signed."""
    for module in net.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if is_watching(hook)]:
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)
        module.__dict__.pop(TRACKER, None)


def is_watching(hook: Any) -> bool:
    """Whether a hook is one of these."""
    return isinstance(getattr(hook, "__self__", None), SignTracker)


def _follows(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    op = _BY_DISPATCHED_NAME.get(name, UNKNOWN)
    if op.bounds is not None:
        floor = op.bounds[0]
        if isinstance(floor, str):
            floor = args[1] if len(args) > 1 else kwargs.get(floor, -1)
        return isinstance(floor, int | float) and floor >= 0
    if not op.keeps_sign:
        return op.never_negative
    inputs = args[: op.operands] if op.operands else args[0]
    divisor = args[1] if name == "div_" else 1
    positive = "alpha" not in kwargs and isinstance(divisor, int | float) and divisor > 0
    return positive and all(isinstance(x, Tensor) and never_negative(x) for x in inputs)
