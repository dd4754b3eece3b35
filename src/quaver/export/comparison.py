"""Simulation against engine, tensor by tensor: what is counted, and what is let pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quaver.engines import Engine
from quaver.errors import InputError
from quaver.export.exactness import exactness
from quaver.export.integers import Inside, Integers, Rounded, Simulated, simulation
from quaver.image_input import ImageInput
from quaver.program import Program
from quaver.runtime import Runner
from quaver.runtime.artefact import provenance

FLOAT_STEPS = 0.01
"""Steps by which an engine's value may be off before it is rounded, where its float arithmetic is its own. The largest seen
over all of `benchmarks/engine_patterns.py` is 1.8e-3 (a transposed convolution that ONNX Runtime sums in float), most are
below 1e-4; a filter of 9 weights of which one is a step off is off by 0.1 and more."""
EXACT_STEPS = 1e-4
"""The same where the engine is exact: the last bit of a float32, 3e-5 steps in 255, which breaks a tie now and then
(SqueezeNet's stem: 2 of 524,288 integers)."""
RARE, SMALL = 1e-3, 2.0
"""The part of a tensor, and the steps, up to which differences may come of sums rounded otherwise, and of no other network:
a tie broken in a tensor that is not looked at is one step there, and up to two in the sum behind it. The most seen are 5e-4
and 1.66 (MobileViT and MobileOne, untrained)."""
NOISE_DB = 10.0
"""Decibels: outputs nearer to the noise than this are not the program's. Rounding alone comes near 20 in an untrained
network, which amplifies what differs from layer to layer; this is asked where nothing nearer can be."""


@dataclass(frozen=True)
class Allowed:
    """What is let pass at a tensor: values up to ``steps`` off before they are rounded, and a ``share`` of any others.

    Without ``steps`` it is `EXACT_STEPS` where the engine is exact, and `FLOAT_STEPS` where it is not.
    """

    steps: float | None = None
    share: float = 0.0

    def at(self, exact: bool) -> float:
        """The steps at a tensor."""
        return self.steps if self.steps is not None else EXACT_STEPS if exact else FLOAT_STEPS


@dataclass(frozen=True)
class LayerDifference:
    """How a tensor of the engine differs from the simulation's: of ``size`` integers, ``differ``, by at most ``largest``
    steps.

    A difference in one tensor makes others in all behind it. So ``beyond`` counts what differs from what follows from the
    engine's own tensors in front, by more than is allowed, and ``farthest`` says by how many steps at most. ``exact``: the
    engine is held to every bit. ``not_finite`` counts NaN and Inf. Of an output, the step is its largest value / 127.
    """

    name: str
    size: int
    differ: int
    largest: float
    exact: bool = True
    beyond: int = 0
    farthest: float = 0.0
    not_finite: int = 0
    is_output: bool = False

    @property
    def share(self) -> float:
        """The part of the integers that differ."""
        return self.differ / self.size if self.size else 0.0

    @property
    def is_rare(self) -> bool:
        """Whether what is beyond may come of float arithmetic: hardly off, or no more than `SMALL` and seldom.

        One integer is seldom in any tensor; outputs, which are not rounded, are either right or not.
        """
        few = self.beyond <= max(RARE * self.size, 0 if self.is_output else 1)
        return not self.not_finite and (self.farthest <= FLOAT_STEPS or (few and self.farthest <= SMALL))

    def failure(self, allowed: Allowed) -> str:
        """What is wrong, in words; nothing where nothing is."""
        what = f"output {self.name!r}" if self.is_output else f"{self.name!r}"
        if self.not_finite:
            return f"{what}: {self.not_finite} of {self.size} values are NaN or Inf"
        if not self.size or self.beyond <= allowed.share * self.size:
            return ""
        kind, least = ("values", "the step is its largest value / 127") if self.is_output else ("integers", "")
        wanted = allowed.at(self.exact)
        limit = f"{wanted:g} are allowed"
        note = "; ".join(filter(None, (limit, least)))
        return f"{what}: {self.beyond} of {self.size} {kind} differ, by up to {self.farthest:.3g} steps ({note})"


class Comparison:
    """Batches through a program and through its file, counted tensor by tensor.

    ``program`` is in the form that the file holds. Without ``layers`` only outputs are compared, and so they are for engines
    that do not show their inside. Without ``all_shortcuts`` those that the engine computes exactly, which cost a model each,
    are not looked at: what is wrong with one shows in the sum. What follows from such a shortcut is computed from the
    simulation's: in a model that ends there, the engine may choose another kernel than in the one that runs. With
    ``engines_shortcuts`` it is computed from the engine's all the same: an integer that a tie moved there explains others.
    Where the file takes bytes as ``image`` says, batches hold these, and the program is given what they stand for.
    """

    def __init__(
        self,
        program: Program,
        file: Path,
        engine: Engine,
        run: Runner,
        allowed: Allowed,
        *,
        layers: bool = True,
        all_shortcuts: bool = True,
        engines_shortcuts: bool = False,
        threads: int = 1,
        image: ImageInput | None = None,
    ) -> None:
        own = run.engine == engine.package  # a file may be read by another engine, in whose arithmetic it is not
        self.run, self.allowed, self.image, self.caveat = run, allowed, image, engine.caveat
        self.size = [int(size or 0) for size in program.signature.tensors[0].shape[2:]]
        claims, self.exact_outputs, elsewhere = exactness(program, engine)
        self.is_held = own and not elsewhere
        if not engine.is_exact_here(provenance(file)):
            claims = dict.fromkeys(claims, False)
        self.all_exact = self.is_held and bool(claims) and all(claims.values())
        inexact = {name for name, claim in claims.items() if not claim}
        asked_for = list(claims) if layers and own else []
        revealed = engine.reveal(file, asked_for, threads, claims if all_shortcuts else inexact) if asked_for else None
        self.simulation = simulation(program, inside=revealed is not None)
        self.inside = Inside(revealed, self.simulation.scales) if revealed is not None else None
        apart = self.inside.apart if self.inside else set()
        self.exact = {name: claim and name not in apart for name, claim in claims.items()}
        self.simulated_best = set() if engines_shortcuts else apart - inexact
        self.tensors = {name: _Counts() for name in (self.inside.names if self.inside else ())}
        self.output_names = program.output_names
        self.outputs = [_Counts() for _ in self.exact_outputs]
        self.signal = self.noise = self.largest_difference = 0.0
        self.unseen = 0  # values of outputs as deployed that differ where nothing does that the engine shows

    @property
    def note(self) -> str:
        """Why nothing nearer than noise is asked of the outputs, where that is so; what else has to be said."""
        if not self.is_held:
            return f"the program was made for another engine: {self.run.engine} rounds elsewhere, so outputs alone decide"
        if self.inside is None and not self.all_exact:
            return f"the outputs alone decide, and {self.run.engine} has a float arithmetic of its own: they may be off"
        return self.caveat

    def prepared(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """What the program takes, of what the file takes."""
        if self.image is None:
            return tensors
        return tuple(torch.from_numpy(self.image.prepared(tensor.numpy(), self.size)) for tensor in tensors)

    def add(self, *tensors: Tensor, simulated: Simulated | None = None) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Compare a batch, of which the program may have been asked before; the outputs of both."""
        prepared = self.prepared(*tensors)
        ours, integers = simulated or self.simulation.run(*prepared)
        arrays = [tensor.numpy() for tensor in tensors]
        got = self.run(*arrays)
        outputs, deployed = [output.numpy() for output in ours], list(got if isinstance(got, tuple) else (got,))
        self._refuse_other_shapes(dict(zip(self.output_names, outputs, strict=True)), deployed)
        self._count_noise(outputs, deployed)
        if self.inside is None:
            self._count_outputs(outputs, deployed, outputs, deployed)
            return outputs, deployed
        shown_outputs, shown = self.inside.run(*arrays)
        self._refuse_other_shapes({name: integers[name] for name in shown}, list(shown.values()))
        equal = all(np.array_equal(integers[name], whole) for name, whole in shown.items())
        if equal:
            for name, whole in shown.items():
                self.tensors[name].add(integers[name], whole)
            is_seen = self.all_exact or not all(map(np.array_equal, outputs, shown_outputs))
            self._count_outputs(outputs, deployed, outputs, deployed if is_seen else shown_outputs)
            self.unseen += 0 if is_seen else sum(map(len, map(unequal, outputs, deployed)))
            return outputs, deployed
        given = {name: laid_as(whole, integers[name]) for name, whole in shown.items() if name not in self.simulated_best}
        behind_outputs, behind = self.simulation.run_behind(given, self.inside.dropped, *prepared)
        for name, whole in shown.items():
            excess = _excess(integers[name], behind[name], whole) if self.is_held else None
            self.tensors[name].add(integers[name], whole, excess, self.allowed.at(self.exact[name]))
        self._count_outputs(outputs, deployed, [output.numpy() for output in behind_outputs], shown_outputs)
        return outputs, deployed

    def _refuse_other_shapes(self, ours: dict[str, NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> None:
        wanted, got = list(map(np.shape, ours.values())), list(map(np.shape, theirs))
        if wanted != got:
            place = next((place for place, pair in enumerate(zip(wanted, got, strict=False)) if len(set(pair)) > 1), 0)
            raise InputError(
                f"what {self.run.engine} computes from the file is not what the program computes: {list(ours)[place]!r} has "
                f"the shape {got[place]} and not {wanted[place]}, or is not there. They are not of one model."
            )

    def _count_outputs(
        self,
        simulated: Sequence[NDArray[Any]],
        deployed: Sequence[NDArray[Any]],
        behind: Sequence[NDArray[Any]],
        shown: Sequence[NDArray[Any]],
    ) -> None:
        """What differs as deployed; what is beyond, from what follows from the engine's own tensors where they are seen."""
        for counts, exact, ours, theirs, near, seen in zip(
            self.outputs, self.exact_outputs, simulated, deployed, behind, shown, strict=True
        ):
            step = max(float(np.abs(_finite(ours)).max(initial=0.0)) / 127, 1e-30)
            distance = distances(near, seen) / step
            is_held = self.all_exact or (self.is_held and self.inside is not None)
            counts.add(ours, theirs, distance if is_held else None, self.allowed.at(exact), step)

    def _count_noise(self, simulated: Sequence[NDArray[Any]], deployed: Sequence[NDArray[Any]]) -> None:
        for ours, theirs in zip(simulated, deployed, strict=True):
            self.largest_difference = max(self.largest_difference, float(distances(ours, theirs).max(initial=0.0)))
            with np.errstate(invalid="ignore", over="ignore"):
                self.signal += float((ours.astype(np.float64) ** 2).sum())
                self.noise += float(((ours.astype(np.float64) - theirs.astype(np.float64)) ** 2).sum())

    @property
    def signal_to_noise_db(self) -> float:
        """How far the outputs as deployed are from the noise; infinite where they are equal."""
        return 10 * float(np.log10(max(self.signal, 1e-30) / self.noise)) if self.noise else float("inf")

    def layers(self) -> list[LayerDifference]:
        """Every quantized tensor that was seen."""
        return [counts.difference(name, self.exact[name]) for name, counts in self.tensors.items()]

    def results(self) -> list[LayerDifference]:
        """Every output."""
        named = zip(self.output_names, self.outputs, self.exact_outputs, strict=True)
        return [counts.difference(name, exact, is_output=True) for name, counts, exact in named]

    def failures(self) -> list[str]:
        """What is wrong, tensor by tensor."""
        failures = [failure for tensor in self._differences() if (failure := tensor.failure(self.allowed))]
        return failures or ([] if self.all_exact else self._lost_in_noise() or self._not_seen())

    def clear_failures(self) -> list[str]:
        """Those that come of no rare rounding."""
        clear = [tensor for tensor in self._differences() if not tensor.is_rare]
        failures = [failure for tensor in clear if (failure := tensor.failure(self.allowed))]
        # where each tensor and output follows from the engine's own in front, noise is what an untrained net amplifies
        is_followed = self.is_held and self.inside is not None and not self.unseen
        return failures or ([] if is_followed else self._lost_in_noise())

    def _differences(self) -> list[LayerDifference]:
        return [*self.layers(), *self.results()]

    def _not_seen(self) -> list[str]:
        if not self.unseen:
            return []
        return [
            f"the outputs: {self.unseen} values differ, though every tensor that {self.run.engine} shows is the "
            "program's: it computes otherwise when it shows them, for a float op (a GELU, say) has another kernel then. The "
            f"outputs are at {self.signal_to_noise_db:.0f} dB: judge the file by its accuracy"
        ]

    def _lost_in_noise(self) -> list[str]:
        if self.signal_to_noise_db >= NOISE_DB:
            return []
        return [
            f"the outputs: a signal-to-noise ratio of {self.signal_to_noise_db:.1f} dB, {NOISE_DB:.0f} are the least. A "
            "network that has learnt nothing can amplify the last bit of a rounding so far: train it longer"
        ]


class _Counts:
    """Differences at one tensor, over all batches."""

    def __init__(self) -> None:
        self.size = self.differ = self.beyond = self.not_finite = 0
        self.largest = self.farthest = 0.0

    def add(
        self,
        ours: NDArray[Any],
        theirs: NDArray[Any],
        excess: NDArray[Any] | None = None,
        allowed: float = 0.0,
        step: float = 1.0,
    ) -> None:
        """Count a batch: what differs at all, and what is in ``excess`` of what is allowed."""
        self.size += ours.size
        if not (_all_finite(ours) and _all_finite(theirs)):
            self.not_finite += int((~(np.isfinite(ours) & np.isfinite(theirs))).sum())
        there = unequal(ours, theirs)
        self.differ += len(there)
        self.largest = max(
            self.largest, float(distances(ours.ravel()[there], theirs.ravel()[there]).max(initial=0.0)) / step
        )
        if excess is not None:
            self.beyond += int((excess > allowed).sum())
            self.farthest = max(self.farthest, float(excess.max(initial=0.0)))

    def difference(self, name: str, exact: bool, *, is_output: bool = False) -> LayerDifference:
        """What was counted."""
        largest = self.largest if is_output else int(np.ceil(min(self.largest, 1e9)))
        return LayerDifference(
            name, self.size, self.differ, largest, exact, self.beyond, self.farthest, self.not_finite, is_output
        )


def laid_as(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """A tensor that lies in memory as another does: a graph may view its dimensions as others, and so as they lie."""
    laid = np.empty_like(like, values.dtype)
    laid[...] = values
    return laid


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(values), values, 0)


def _all_finite(values: NDArray[Any]) -> bool:
    """Whether all of them are, for sure: their sum says so, which takes less time than asking each."""
    return bool(torch.from_numpy(np.ascontiguousarray(values)).sum().isfinite())


def unequal(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.int64]:
    """The places, counted along all dimensions, where two tensors differ: few of many, which are found on all cores."""
    one, other = (torch.from_numpy(np.ascontiguousarray(values)).reshape(-1) for values in (ours, theirs))
    places: NDArray[np.int64] = (one != other).nonzero()[:, 0].numpy()
    return places


def distances(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
    """How far two tensors are apart; as far as float32 goes where one of them is NaN or Inf."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    return np.where(ours == theirs, 0.0, np.where(np.isfinite(distance), distance, np.finfo(np.float32).max))


def _excess(ours: Integers, behind: Rounded, theirs: Integers) -> NDArray[Any]:
    """By how many steps the engine's values must have been off for its integers, of those that are others.

    None where they are the simulation's, or what follows from the engine's tensors in front; else, how far the value that
    follows is from being rounded to them. What is on no grid is off by all it differs.
    """
    there = unequal(ours, theirs)
    steps, integers, theirs = (values.ravel()[there] for values in (behind.steps, behind.integers, theirs))
    on_grid = theirs == np.rint(theirs)
    beyond_rounding = np.maximum(distances(steps, theirs) - 0.5, np.finfo(np.float32).tiny)  # a tie, broken otherwise
    excess = np.where(on_grid, beyond_rounding, distances(integers, theirs))
    return np.where(integers == theirs, 0.0, excess)
