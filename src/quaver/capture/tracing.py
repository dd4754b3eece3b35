"""One export of a model, in training or in evaluation mode, as a plain graph over the model's own tensors."""

from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any
from warnings import catch_warnings, filterwarnings, warn

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree

from quaver.capture.finite_branches import FiniteBranches
from quaver.capture.inline import inline_no_grad
from quaver.capture.modules import calls_marked, momenta_as_numbers
from quaver.capture.other_sizes import OtherSizes, has_sides
from quaver.errors import CaptureError, QuaverWarning
from quaver.program.signature import Side


@dataclass(frozen=True)
class Exported:
    """A graph that reads parameters by name, the constants it needs, and the structure of what it gives back."""

    graph: fx.Graph
    constants: dict[str, Any]
    free_batch: bool
    sides: list[tuple[Side, ...]]
    out_spec: pytree.TreeSpec


class _Structure:
    """Where a traced forward leaves the structure of its outputs; the tracer would take back an attribute of the module."""

    spec: pytree.TreeSpec


class _Flat(nn.Module):
    """The model as a function of nothing but its tensor inputs, in order."""

    def __init__(self, model: nn.Module, leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.model = model
        self.leaves = leaves
        self.spec = spec
        self.structure = _Structure()

    def forward(self, *tensors: Tensor) -> list[Any]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        buffers = dict(self.model.named_buffers())
        outputs, self.structure.spec = pytree.tree_flatten(self.model(*args, **kwargs))
        for path, before in buffers.items():  # `self.mean = new` is a write to the buffer, to be done in place
            owner, _, name = path.rpartition(".")
            after = self.model.get_submodule(owner)._buffers[name]
            if after is not before and after is not None:
                self._keep(path, before, after)
                self.model.get_submodule(owner)._buffers[name] = before
        return outputs

    def _keep(self, path: str, before: Tensor, after: Tensor) -> None:
        """Write what a buffer holds now into its memory, unless that has another shape."""
        if after.shape == before.shape:
            before.copy_(after)
            return
        warn(
            f"capture: buffer {path!r} gets another shape in forward. A program computes it anew in each call and does not "
            "keep it: a table is the same then, a memory is not. Call the model once before capture: it has its shape then.",
            QuaverWarning,
            stacklevel=2,
        )


def export(model: nn.Module, leaves: list[Any], spec: pytree.TreeSpec, free: list[bool], dynamic: bool) -> Exported:
    """Trace the model with a free batch size in the inputs marked ``free``; where it insists on one, with the one given.

    ``dynamic``: height and width of images are free, too, within what ``sides`` of the result says.
    """
    flat = _Flat(model, leaves, spec)
    # copies: one tensor given for two inputs would be traced as one input
    tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor)]
    if any(free):
        # A batch of one would be taken for a constant: trace with two of it.
        several = [torch.cat([t, t]) if is_free and t.shape[0] == 1 else t for t, is_free in zip(tensors, free, strict=True)]
        try:
            traced = _trace(flat, several, free, dynamic)
        except Exception:  # whatever it is, tracing with the batch as given decides whether it matters
            traced = None
        if traced is not None and (sizes := OtherSizes(_inputs(traced))).free_batches() == free:
            return _unlift(flat, traced, sizes.sides(), free_batch=True)
    traced = _trace(flat, tensors, [False] * len(free), dynamic)
    return _unlift(flat, traced, OtherSizes(_inputs(traced)).sides(), free_batch=False)


def _trace(flat: _Flat, tensors: list[Tensor], free: list[bool], dynamic: bool) -> ExportedProgram:
    axes = [
        ((0,) if is_free else ()) + ((2, 3) if dynamic and has_sides(t) else ())
        for t, is_free in zip(tensors, free, strict=True)
    ]
    shapes = (tuple(dict.fromkeys(several, Dim.AUTO) or None for several in axes),)
    try:
        traced = _trace_as_it_is(flat, tensors, shapes)
    except GuardOnDataDependentSymNode:
        with FiniteBranches():
            traced = _trace_as_it_is(flat, tensors, shapes)
    _free_shapes(traced)
    return traced


def _trace_as_it_is(flat: _Flat, tensors: list[Tensor], shapes: tuple[Any, ...]) -> ExportedProgram:
    # torch's own account of a failed trace stays off the screen: what matters of it goes into the CaptureError
    with (
        traceback.preserve_node_meta(),
        redirect_stderr(StringIO()),
        catch_warnings(),
        calls_marked(flat.model),
        momenta_as_numbers(flat.model),
    ):
        filterwarnings("ignore", "The tensor attribute", UserWarning)  # a pruned layer's weight, say: `capture` puts it back
        return torch.export.export(flat, tuple(tensors), dynamic_shapes=shapes, strict=False)


def _free_shapes(traced: ExportedProgram) -> None:
    """Free what torch keeps about the sizes of a trace together with the trace.

    It holds the inputs, whose sizes hold it: a cycle in C++, which no garbage collector sees. Some of torch's caches, which
    have no bound, hold it as well (both seen in 2.13: 0.3 MB for each capture of two layers).
    """
    for node in traced.graph.nodes:
        sizes = getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None)
        if sizes is not None and sizes.tracked_fakes:
            sizes.tracked_fakes.clear()
    for method in vars(ShapeEnv).values():
        if hasattr(method, "cache_clear"):
            method.cache_clear()


def _inputs(traced: ExportedProgram) -> list[Any]:
    """The model's own inputs, as the trace has them."""
    kinds = [spec.kind for spec in traced.graph_signature.input_specs]
    nodes = [node for node, kind in zip(traced.graph.nodes, kinds, strict=False) if kind is InputKind.USER_INPUT]
    return [node.meta["val"] for node in nodes]


def _unlift(flat: _Flat, traced: ExportedProgram, sides: list[tuple[Side, ...]], *, free_batch: bool) -> Exported:
    """Let the graph read parameters and buffers by their names in the model instead of taking them as inputs."""
    graph, constants = traced.graph, dict[str, Any]()
    inline_no_grad(graph, traced.graph_module)
    tensors = [*flat.model.named_parameters(), *flat.model.named_buffers()]
    first_name = {id(tensor): name for name, tensor in reversed(tensors)}  # tied weights go by their first name
    stored = dict(flat.named_parameters(remove_duplicate=False)) | dict(flat.named_buffers(remove_duplicate=False))
    readers: dict[str, fx.Node] = {}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, traced.graph_signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            continue
        assert spec.target is not None
        if spec.target in stored:
            name = first_name[id(stored[spec.target])]
        else:
            name = f"constants.{spec.target.replace('.', '_')}"
            constants[name] = traced.constants[spec.target]
        if node.users:
            if name not in readers:
                with graph.inserting_before(node):
                    readers[name] = graph.create_node("get_attr", name)
                readers[name].meta = dict(node.meta)
            node.replace_all_uses_with(readers[name])
        graph.erase_node(node)
    own = set(readers.values())
    for node in list(graph.nodes):
        if node.op == "get_attr" and node not in own:  # the body of a torch.no_grad() block or the like
            constants[f"constants.{node.target}"] = traced.graph_module.get_submodule(node.target)
            node.target = f"constants.{node.target}"
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in traced.graph_signature.output_specs):
        raise CaptureError(
            f"{type(flat.model).__name__}: its forward writes into one of its inputs. Let it write into a copy."
        )
    return Exported(graph, constants, free_batch, sides, flat.structure.spec)
