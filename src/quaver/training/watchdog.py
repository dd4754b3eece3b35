"""Sees training go wrong, says which tensor, and what to try. It looks every so many steps and costs next to nothing."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from quaver.program import EVAL, Program
from quaver.program.views import Executable
from quaver.quantizers import CustomQuantizer, Quantizer
from quaver.records import Figure
from quaver.training.ranks import Ranks

LEAP = 10.0  # a range that grew so many times from one look to the next
GROWTH = 100.0  # or so many times since the first look
CLIPPED = 0.25  # so much of a tensor beyond its range; moving averages of maxima leave out well under a hundredth
SAMPLE = 8  # images that are looked at
STEADY = "a lower --lr, --clip_norm 1, or --watchdog rollback, which goes back and lowers the rate"
RANGES = f"{STEADY}; PACT or thresholds from an analysis keep such a tensor's range"


@dataclass
class WatchdogState:
    """What a watchdog remembers, and checkpoints keep: the ranges at its first and its last look, and the suspects."""

    first: dict[str, Figure] = field(default_factory=dict)
    last: dict[str, Figure] = field(default_factory=dict)
    suspects: list[str] = field(default_factory=list)


@dataclass
class Watchdog:
    """Looks at the losses since the last look, at every weight, every range, and at what is cut off by them.

    A tensor that is all zero or mostly cut off is a suspect, and called out when it is still so at the next look.
    """

    program: Program
    ranks: Ranks = field(default_factory=Ranks)
    seen: WatchdogState = field(default_factory=WatchdogState)

    def __post_init__(self) -> None:
        self.losses: Tensor | None = None
        watched = [(name, quantizer) for name, quantizer in self.program.quantizers() if _has_range(quantizer)]
        self.ranges = {name: quantizer for name, quantizer in watched if name not in self.program.placements.weights}
        self.probe = _Probe(self.program, list(self.ranges)) if self.ranges else None

    def note(self, loss: Tensor) -> None:
        """Remember a loss, without waiting for it: a sum is finite if all of it is."""
        loss = loss.detach().float()
        self.losses = loss if self.losses is None else self.losses + loss

    @torch.no_grad()
    def look(self, images: Tensor) -> str | None:
        """What is wrong, in words, or None. The first process decides for all."""
        losses = torch.zeros((), device=images.device) if self.losses is None else self.losses
        self.losses = None
        weights = dict(self.program.named_parameters())
        largest = torch._foreach_norm(list(weights.values()), torch.inf)
        parts = [self.ranks.total(losses.reshape(1)), torch.stack(largest).float()]
        if self.ranges:
            parts.append(torch.stack([quantizer.threshold for quantizer in self.ranges.values()]))
            parts.append(torch.stack([quantizer.nonfinite for quantizer in self.ranges.values()]).float())
        values = torch.cat(parts).cpu()  # the only wait for the device
        loss, sizes, rest = values[0], values[1 : 1 + len(weights)], values[1 + len(weights) :]
        thresholds, bad = rest.chunk(2) if self.ranges else (rest, rest)
        for quantizer in self.ranges.values():
            quantizer.nonfinite.zero_()
        problem = self._not_finite(loss, dict(zip(weights, sizes, strict=True)), bad)
        problem = problem or self._exploded(dict(zip(self.ranges, thresholds.tolist(), strict=True)))
        return self.ranks.from_first(problem or self._lost(images[:SAMPLE]))  # type: ignore[no-any-return]

    def restore(self, seen: WatchdogState) -> None:
        """Remember what was remembered then."""
        self.seen, self.losses = seen, None

    def _not_finite(self, loss: Tensor, sizes: dict[str, Tensor], bad: Tensor) -> str | None:
        tensors = [name for name, count in zip(self.ranges, bad.tolist(), strict=True) if count]
        weights = [name for name, size in sizes.items() if not torch.isfinite(size)]
        if tensors:
            return f"NaN or Inf in {tensors[0]!r}{_and_more(tensors)}. Try {RANGES}."
        if weights:
            return f"NaN or Inf in the weight {weights[0]!r}{_and_more(weights)}. Try {STEADY}."
        return None if torch.isfinite(loss) else f"the loss is NaN or Inf. Try {STEADY}."

    def _exploded(self, thresholds: dict[str, Figure]) -> str | None:
        before, self.seen.last = self.seen.last, thresholds
        self.seen.first = thresholds | self.seen.first
        for name, threshold in thresholds.items():
            for earlier, times in ((before.get(name, 0.0), LEAP), (self.seen.first[name], GROWTH)):
                if not threshold < torch.inf or 0 < earlier < threshold / times:
                    return f"the range of {name!r} exploded, from {earlier:.4g} to {threshold:.4g}. Try {RANGES}."
        return None

    def _lost(self, images: Tensor) -> str | None:
        """Tensors that are all zero, or mostly beyond their range, now and at the last look."""
        observed = self.probe.clipped_shares(images) if self.probe is not None else {}
        dead = [name for name, (share, largest) in observed.items() if largest == 0]
        clipped = [name for name, (share, largest) in observed.items() if share > CLIPPED]
        again = [name for name in self.seen.suspects if name in dead + clipped]
        self.seen.suspects = dead + clipped
        if not again:
            return None
        name = again[0]
        if name in dead:
            return f"{name!r} is dead: all of it is zero, and nothing behind it learns. Try {STEADY}."
        share, limit = observed[name][0], self.seen.last[name]
        return f"{share:.0%} of {name!r} lies beyond its range of ±{limit:.4g} and is cut off. Try {RANGES}."


class _Probe:
    """An evaluation view with hooks: it rounds tensor by tensor, as written, instead of computing on integers."""

    def __init__(self, program: Program, names: list[str]) -> None:
        self.view = program.clone(for_test=True)
        self.run = Executable(self.view, self.view.graphs[EVAL])
        self.seen: dict[str, Tensor] = {}
        for name in names:
            self.view.quantizer(name).register_forward_pre_hook(partial(self._observe, name))

    def clipped_shares(self, images: Tensor) -> dict[str, tuple[float, float]]:
        """For each tensor the part of it beyond its range, and its largest value."""
        self.seen = {}
        self.run(images)
        values = torch.stack(list(self.seen.values())).tolist() if self.seen else []
        return {name: (share, largest) for name, (share, largest) in zip(self.seen, values, strict=True)}

    def _observe(self, name: str, quantizer: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(quantizer, Quantizer)
        values = inputs[0].detach().float().abs()
        share_and_largest = torch.stack([(values > quantizer.threshold).float().mean(), values.amax()])
        self.seen[name] = torch.maximum(self.seen[name], share_and_largest) if name in self.seen else share_and_largest


def _has_range(quantizer: Quantizer) -> bool:
    return not isinstance(quantizer, CustomQuantizer)


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more behind it" if len(names) > 1 else ""
