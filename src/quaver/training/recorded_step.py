"""A step's gradients, replayed from a recording: on an accelerator, launching kernels may take longer than running them."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from quaver.errors import ConfigError, QuaverWarning

WARM_UP = 3
"""Steps as they are in front of a recording: libraries choose and allocate in them what may not change any more."""
RECORDINGS = 2
"""Recordings at most, each for tensors of other shapes; what comes in yet another is computed as it is."""

SETTINGS = ("training", "observing", "quantizing", "momentum", "eps", "p")
"""What is set on modules between two steps, and read by each: modes, switches of quantizers, of norms and dropouts."""


class RecordedStep:
    """``compute(*tensors)`` and the gradients of what it gives first, the loss.

    What it gives is given back, detached, and holds until the next call. Gradients of ``model`` are in their places: those
    of this call, not added to what was there. On an accelerator, after some calls with tensors of the same shapes, one is
    recorded as a CUDA graph, and all others replay it. Who steps, clips or averages does so between two calls, as ever.

    The recording has what Python decided in it: numbers that ``compute`` read, modes, the places of parameters and buffers.
    What of the model moves, or is set otherwise (`SETTINGS`), is noticed, and the step recorded anew; for all else there is
    `forget`. Where something cannot be recorded (it waits for the accelerator, say) a warning names the error, and steps are
    computed as they are, as they always are with ``recorded=False``.

    >>> layer = nn.Linear(2, 1)
    >>> step = RecordedStep(lambda x: layer(x).square().mean(), layer)
    >>> loss = step(torch.ones(4, 2))
    >>> layer.weight.grad.shape
    torch.Size([1, 2])
    """

    def __init__(self, compute: Callable[..., Any], model: nn.Module, *, recorded: bool = True) -> None:
        self.compute, self.model, self.recorded = compute, model, recorded
        self._recordings: dict[Hashable, _Recording] = {}
        self._seen: dict[Hashable, int] = {}

    def __call__(self, *tensors: Any) -> Any:
        """What ``compute`` gives for these tensors, with gradients in their places."""
        leaves, structure = pytree.tree_flatten(tensors)
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not (self.recorded and given) or not all(recordable(tensor) for tensor in given):
            return self._as_it_is(tensors)
        form = _form(leaves, structure)
        recording = self._recordings.get(form)
        if recording is not None and recording.still_holds():
            return recording.replay(given)
        self._recordings.pop(form, None)
        seen = self._seen[form] = self._seen.get(form, 0) + 1
        if seen <= WARM_UP:
            return beside(lambda: self._as_it_is(tensors))
        if len(self._recordings) >= RECORDINGS:
            return self._as_it_is(tensors)
        return self._recorded(form, tensors, given)

    def forget(self) -> None:
        """Record anew: something that ``compute`` reads is another."""
        self._recordings.clear()
        self._seen.clear()

    def _as_it_is(self, tensors: tuple[Any, ...]) -> Any:
        self.model.zero_grad(set_to_none=True)
        given = self.compute(*tensors)
        loss = given[0] if isinstance(given, tuple) and given else given
        if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
            raise ConfigError(
                f"RecordedStep: its function gave {described(loss)} where the loss should be. Let it return the loss, one "
                "number with a gradient, or a tuple that begins with it."
            )
        loss.backward()  # type: ignore[no-untyped-call]
        return pytree.tree_map_only(Tensor, Tensor.detach, given)

    def _recorded(self, form: Hashable, tensors: tuple[Any, ...], given: list[Tensor]) -> Any:
        """Record, then replay: recording computes nothing."""
        buffers = _buffers(self.model)
        try:
            self._recordings[form] = recording = _Recording(self._as_it_is, tensors, self.model)
        except RuntimeError as error:  # torch's, where something cannot be part of a recording
            self.recorded = False
            for table, name, tensor in buffers:
                table[name] = tensor  # what a recording left half-way holds nothing
            reason = str(error).splitlines()[0]
            warnings.warn(
                f"this step cannot be recorded, and is computed as it is, kernel by kernel: {reason}",
                QuaverWarning,
                stacklevel=4,
            )
            return self._as_it_is(tensors)
        return recording.replay(given)


class _Recording:
    """A step for tensors of these shapes, as a CUDA graph, and everything that it reads and writes."""

    def __init__(self, run: Callable[[tuple[Any, ...]], Any], tensors: tuple[Any, ...], model: nn.Module) -> None:
        leaves, structure = pytree.tree_flatten(tensors)
        copies = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.inputs = [copy for copy in copies if isinstance(copy, Tensor)]
        self.watched = [(vars(module), name) for module in model.modules() for name in SETTINGS if name in vars(module)]
        self.parameters = list(model.parameters())
        self.before = self._now()
        model.zero_grad(set_to_none=True)  # so that the recording gives gradients their places
        self.graph, self.given = record(lambda: run(pytree.tree_unflatten(copies, structure)))
        self.gradients = [parameter.grad for parameter in self.parameters]
        self.buffers = _buffers(model)  # some are written by putting another tensor in their place

    def still_holds(self) -> bool:
        """Whether settings, and the places of parameters, are those of the recording."""
        return self._now() == self.before

    def _now(self) -> list[Any]:
        return [values[name] for values, name in self.watched] + [value.data_ptr() for value in self.parameters]

    def replay(self, given: list[Tensor]) -> Any:
        """What the step gives for these tensors, with gradients in their places."""
        for tensor, new in zip(self.inputs, given, strict=True):
            tensor.copy_(new)
        for table, name, tensor in self.buffers:
            current = table.get(name)
            if current is not tensor and isinstance(current, Tensor):
                if current.shape == tensor.shape:  # whoever put another there meant it
                    tensor.copy_(current)
                table[name] = tensor
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.given


def described(value: Any) -> str:
    """What a value is, in a message."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of shape {list(value.shape)}" + ("" if value.requires_grad else " without a gradient")


def record(job: Callable[[], Any]) -> tuple[Any, Any]:
    """What a job launches, as a graph, and what it gives, which a replay writes anew."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given = job()
    return graph, given


def recordable(tensor: Tensor) -> bool:
    """Whether it is where recordings are made."""
    return tensor.is_cuda


def beside(job: Callable[[], Any]) -> Any:
    """Run on a stream of its own, as steps before a recording must be."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        given = job()
    torch.cuda.current_stream().wait_stream(stream)
    return given


def _form(leaves: list[Any], structure: pytree.TreeSpec) -> Hashable:
    """What tensors of one recording have in common; what is no tensor is part of it."""
    forms = [
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else repr(leaf)
        for leaf in leaves
    ]
    return (tuple(forms), str(structure), torch.is_autocast_enabled("cuda"))


def _buffers(model: nn.Module) -> list[tuple[dict[str, Tensor | None], str, Tensor]]:
    """All buffers, each with the table and the name it stands by."""
    found = []
    for module in model.modules():
        found += [(module._buffers, name, tensor) for name, tensor in module._buffers.items() if tensor is not None]
    return found
