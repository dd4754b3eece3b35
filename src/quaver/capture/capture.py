"""``quaver.capture``: a model and an example of its inputs become a Program."""

import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from quaver.capture.explain import explain
from quaver.capture.functionalize import functionalize, mark_written
from quaver.capture.modules import DROPOUTS, classes_in, innermost, modal_modules, note_modules, warn_of_traced_hooks
from quaver.capture.naming import Naming
from quaver.capture.other_sizes import common_sides, has_sides
from quaver.capture.settings import settings_of
from quaver.capture.tracing import Exported, export
from quaver.errors import CaptureError, InputError, QuaverWarning
from quaver.garbage import without_collecting
from quaver.graph.annotation import note_calls
from quaver.graph.nodes import calls_noted, packet
from quaver.log_suppression import without_logs
from quaver.program import EVAL, TRAIN, InputTensor, Program, Signature
from quaver.program.devices import follow_input
from quaver.program.finite import not_finite
from quaver.program.module_calls import called_modules
from quaver.program.module_hooks import all_hooks
from quaver.program.signature import Side, step_of
from quaver.program.traced import Traced
from quaver.program.views import uncompiled, view


def capture(
    model: nn.Module, example_inputs: Any, example_kwargs: dict[str, Any] | None = None, *, dynamic: bool = False
) -> Program:
    """Turn a model into a `Program`: a training and an evaluation graph over the model's own parameters and buffers.

    ``example_inputs`` is a tuple of what the model is called with; tensors may be nested in lists, tuples and dicts. The
    batch size of the example does not matter. The model is left as it was.

    ``dynamic``: images may have another height and width than the example's, in training, in the program and in its files.
    A model that computes something else at other sizes is refused; one that wants multiples of 32, say, is asked for these.

    >>> import torch
    >>> program = capture(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (torch.zeros(1, 3, 8, 8),))
    >>> program.eval()(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 8, 6, 6])
    """
    program = capture_modes(model, example_inputs, example_kwargs, (EVAL, TRAIN), dynamic=dynamic)
    warn_of_traced_hooks(model, stacklevel=2)
    return program


@without_collecting()
def capture_modes(
    model: nn.Module,
    example_inputs: Any,
    example_kwargs: dict[str, Any] | None,
    modes: tuple[str, ...],
    *,
    dynamic: bool = False,
) -> Program:
    """`capture` with a graph for each of these modes, EVAL among them."""
    if not isinstance(model, nn.Module):
        raise InputError(f"quaver.capture takes an nn.Module, not {type(model).__name__}.")
    if isinstance(model, Program):
        raise InputError("quaver.capture was given a Program: it is captured already.")
    model = uncompiled(model)
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    leaves, spec = pytree.tree_flatten((args, example_kwargs or {}))
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        raise InputError("example_inputs holds no tensor: give a tuple of what the model is called with, such as (x,).")
    free = _batched([leaf for leaf in leaves if isinstance(leaf, Tensor)])
    _check_names(model)

    exported: dict[str, Exported] = {}
    with _left_as_it_was(model), without_logs(logging.CRITICAL):  # what matters of a failed trace goes into the CaptureError
        for mode in modes:
            model.train(mode == TRAIN)
            try:
                exported[mode] = export(model, leaves, spec, free, dynamic)
            except CaptureError:
                raise
            except Exception as error:  # a tracer can fail in any way; `explain` puts it in the user's terms
                # torch's own frames say nothing to the model's author; the place is in the message
                raise explain(model, error) from error.with_traceback(None)

    graphs = {mode: trace.graph for mode, trace in exported.items()}
    naming, places = Naming(), innermost(graphs.values())
    for mode, trace in exported.items():
        note_modules(trace.graph, model, places)
        _clean(trace.graph, evaluation=mode == EVAL)
        functionalize(trace.graph)
        mark_written(trace.graph)
        _drop_unread(trace.graph, evaluation=mode == EVAL)
        follow_input(trace.graph)
        naming.tag(trace.graph, places)

    free_batch = all(trace.free_batch for trace in exported.values())
    sides = [common_sides(traces) for traces in zip(*(trace.sides for trace in exported.values()), strict=True)]
    if dynamic:
        _refuse_fixed_sides(model, [leaf for leaf in leaves if isinstance(leaf, Tensor)], sides)
    inputs = _inputs(model, leaves, spec, free if free_batch else [False] * len(free), sides)
    called = list(map(called_modules, graphs.values()))
    modal, settings = modal_modules(graphs.values(), places, called), settings_of(model, graphs.values(), called)
    program = Program(
        view(model),
        graphs,
        Signature(inputs, spec, {mode: trace.out_spec for mode, trace in exported.items()}),
        traced=Traced(all_hooks(model), classes_in(model), modal, settings),
        attributes={name: value for name, value in vars(model).items() if not name.startswith("_")},
    )
    _add_constants(program, exported)
    program.training = model.training
    if not model.training:  # whatever some module of the model was in: the graph is that of model.eval()
        nn.Module.train(program, False)
    _warn_of_not_finite(program)
    return program


def _warn_of_not_finite(program: Program) -> None:
    bad = not_finite(program)
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        warnings.warn(
            f"capture: {bad[0]!r}{more} hold NaN or Inf, and so will every output: load other weights.",
            QuaverWarning,
            stacklevel=5,  # who called capture
        )


def _check_names(model: nn.Module) -> None:
    """Refuse names with half a character (a lone surrogate), which no file can hold; any other text is a name."""
    for path, _ in (*model.named_modules(), *model.named_parameters(), *model.named_buffers()):
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise CaptureError(f"{path!r}: this name is not text: {error.reason}. Rename the module or parameter.") from None


def _batched(tensors: list[Tensor]) -> list[bool]:
    """Which inputs have the batch in front: those as long as the first."""
    batch = next((tensor.shape[0] for tensor in tensors if tensor.dim()), None)
    return [tensor.dim() > 0 and tensor.shape[0] == batch for tensor in tensors]


@contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    """The attributes of all modules, their modes among them, are put back: a forward may leave a tracer's tensors there."""
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in before:
            for name in module.__dict__.keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)


def _clean(graph: fx.Graph, *, evaluation: bool) -> None:
    """Drop the tracer's own checks, which would refuse another dtype or device, and dropout where it does nothing."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        name = packet(node)
        if evaluation and name.rstrip("_") in DROPOUTS:
            for note in ("gives", "gives_part", "takes"):
                note_calls(node.args[0], note, calls_noted(node, note))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif name.startswith("_assert") and not node.users:
            graph.erase_node(node)


def _drop_unread(graph: fx.Graph, *, evaluation: bool) -> None:
    """Drop what nobody reads, as files do; in training only tensors, for a batch norm there still learns its statistics."""
    for node in reversed(list(graph.nodes)):
        if not node.users and (node.op == "get_attr" or (evaluation and not node.is_impure())):
            graph.erase_node(node)


def _refuse_fixed_sides(model: nn.Module, tensors: list[Tensor], sides: list[tuple[Side, ...]]) -> None:
    """Say so where images of another size are asked for, and there are none, or the model would compute something else."""
    images = [place for place, tensor in enumerate(tensors) if has_sides(tensor)]
    if not images:
        raise InputError(
            "dynamic=True: none of example_inputs is a batch of images (N x C x H x W) whose size could change."
        )
    for place in images:
        if len(sides[place]) < 2:
            height, width = tensors[place].shape[-2:]
            raise CaptureError(
                f"{type(model).__name__}: dynamic=True: its graph is that of images of {height} x {width} alone: positions "
                "that it has learned, windows or a reshape are of this size. Capture it without dynamic, once for each size."
            )


def _inputs(
    model: nn.Module, leaves: list[Any], spec: pytree.TreeSpec, free: list[bool], sides: list[tuple[Side, ...]]
) -> tuple[Any, ...]:
    names, free_axes, inputs = _input_names(model, spec), zip(free, sides, strict=True), []
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, Tensor):
            is_free, own = next(free_axes)
            shape = [None if is_free and not axis else size for axis, size in enumerate(leaf.shape)]
            inputs.append(InputTensor(name, (*shape[: leaf.dim() - len(own)], *[None] * len(own)), leaf.dtype, own))
        else:
            inputs.append(leaf)
    return tuple(inputs)


def _input_names(model: nn.Module, spec: pytree.TreeSpec) -> list[str]:
    """A name for every leaf: the argument's, with the path inside it."""
    positional = [
        parameter.name
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    call = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names = []
    for path, _ in pytree.tree_leaves_with_path(call):
        outer, inner, *rest = map(step_of, path)
        first = inner
        if outer == "0":
            first = positional[int(inner)] if int(inner) < len(positional) else f"input{inner}"
        names.append(".".join([first, *rest]))
    return names


def _add_constants(program: Program, exported: dict[str, Exported]) -> None:
    """Keep tensors that the model's code holds, not its modules; they move with the program but are no state of it."""
    constants = nn.Module()
    name = program.free_name("constants")
    for mode, trace in exported.items():
        renamed: dict[str, str] = {}
        for target, value in trace.constants.items():
            leaf = f"{mode}_{target.split('.', 1)[1]}"
            renamed[target] = f"{name}.{leaf}"
            if isinstance(value, Tensor):
                constants.register_buffer(leaf, value.detach(), persistent=False)
            else:
                constants.add_module(leaf, value)
        for node in trace.graph.nodes:
            if node.op == "get_attr" and node.target in renamed:
                node.target = renamed[node.target]
    if constants._buffers or constants._modules:
        program._modules[name] = constants
