"""``quaver.save`` and ``quaver.load``: a program as a JSON file and a safetensors file.

``program.json`` names its weights file by content, and is the one file whose replacement makes a save valid: whenever a
crash comes, or another who saves there, the folder holds a whole program, the old or the new. Nothing is pickled, nothing
from the file is executed.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from quaver.engines import ENGINES, mobile_engine
from quaver.errors import StorageError
from quaver.formats import Format
from quaver.preprocessing import Preprocessing
from quaver.program.dry_run import try_out
from quaver.program.graph_json import decode, decode_graph, decode_structure, encode, encode_graph, encode_structure
from quaver.program.history import PassApplied
from quaver.program.module_json import SavedModule, describe_modules
from quaver.program.op_record import read_record
from quaver.program.placements import OpPlan, Options, Placements
from quaver.program.program import Program
from quaver.program.signature import InputTensor, Side, Signature
from quaver.program.stage import Stage
from quaver.program.traced import Traced
from quaver.program.views import parent_module, read, set_submodule
from quaver.quantizers import KINDS, PACT, Quantizer, build
from quaver.records import decoded
from quaver.stores import Store, UnconfirmedError

FORMAT = Format("quaver.program", 1, "a program", "quaver.save", "quaver.save writes one.", "Save the program again.")
JSON_NAME = "program.json"


def save(program: Program, folder: str | Path) -> Path:
    """Write a program, at any stage, into a folder; a program that was there before is replaced in one step."""
    if not isinstance(program, Program):
        raise StorageError(
            f"quaver.save takes a Program, not {type(program).__name__}. quaver.capture makes one of a model."
        )
    folder = Path(folder)
    tensors, kinds = _tensors(program)
    import safetensors.torch  # at first use: everything but save and load works without it

    content = safetensors.torch.save(tensors, metadata={"format": "pt"})
    try:
        _store(folder).put(JSON_NAME, "weights", _describe(program) | {"tensors": kinds}, content)
    except UnconfirmedError as error:
        raise StorageError(f"{folder}: the program was written, but the disk did not confirm it: {error}.") from error
    except OSError as error:
        raise StorageError(f"{folder}: the program could not be written: {error}. What was there is untouched.") from error
    return folder


def load(folder: str | Path) -> Program:
    """Read a program; the model's class is not needed. A damaged or foreign file is an error that says so."""
    import safetensors.torch

    folder = Path(folder)
    if folder.is_file():
        raise StorageError(f"{folder}: cannot be read: this is a file, and a program is a folder, as quaver.save writes it.")
    body, content = _store(folder).get(JSON_NAME)
    try:
        return _rebuild(body, safetensors.torch.load(content))
    except Exception as error:  # a file that was tampered with can make torch fail in any way
        raise StorageError(f"{folder}: the program cannot be read: {type(error).__name__}: {error}.") from error


def weights_file(folder: Path) -> Path:
    """The file with the weights of the program in a folder."""
    file = _store(folder).tensors_of(folder / JSON_NAME)
    if file is None:
        raise StorageError(f"{folder}: holds no program, or a damaged one.")
    return file


def _store(folder: Path) -> Store:
    return Store(folder, FORMAT, "weights")


def _tensors(program: Program) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Every tensor once, and what each name is: tied names point to the first."""
    tensors: dict[str, Tensor] = {}
    first: dict[int, str] = {}
    kinds = []
    state = set(program.state_dict(keep_vars=True))
    every: list[tuple[str, str, Tensor]]
    every = [("parameter", *pair) for pair in program.named_parameters(remove_duplicate=False)]
    every += [("buffer", *pair) for pair in program.named_buffers(remove_duplicate=False)]
    for kind, name, tensor in every:
        entry: dict[str, Any] = {"name": name, "kind": kind}
        if id(tensor) in first:
            entry["same_as"] = first[id(tensor)]
        else:
            first[id(tensor)] = name
            tensors[name] = tensor.detach().cpu().contiguous().clone()
        if kind == "parameter":
            entry["trains"] = tensor.requires_grad
        else:
            entry["persistent"] = name in state
        kinds.append(entry)
    return tensors, kinds


def _describe(program: Program) -> dict[str, Any]:
    quantizers = {}
    for name, quantizer in program.quantizers():
        if quantizer.kind not in KINDS or not (quantizer.preprocess is None or isinstance(quantizer.preprocess, PACT)):
            raise StorageError(
                f"{name!r}: a custom function is code, which is not saved. Save program.state_dict() instead."
            )
        switches = {"observing": quantizer.observing, "quantizing": quantizer.quantizing}
        quantizers[name] = {"options": quantizer.options(), "switches": switches}
    placements = asdict(program.placements)
    placements["quantized"] = sorted(placements["quantized"])
    placements["plan"] = {
        name: {"weight": _in_words(planned.weight), "inputs": [[k, _in_words(value)] for k, value in planned.inputs.items()]}
        for name, planned in program.placements.plan.items()
    }
    signature = program.signature
    inputs = [
        {"name": leaf.name, "shape": leaf.shape, "dtype": encode(leaf.dtype)}
        | ({"sides": [asdict(side) for side in leaf.sides]} if leaf.sides else {})
        if isinstance(leaf, InputTensor)
        else encode(leaf)
        for leaf in signature.inputs
    ]
    program.settle()
    return {
        "stage": program.stage.value,
        "for_test": program.for_test,
        "training": program.training,
        "history": [vars(step) for step in program.history],
        "graphs": {mode: encode_graph(graph) for mode, graph in program.graphs.items()},
        "inputs": inputs,
        "call": encode_structure(signature.in_spec),
        "results": {mode: encode_structure(spec) for mode, spec in signature.out_specs.items()},
        "quantizers": quantizers,
        "modules": describe_modules(program, program.graphs.values()),
        "modal": {path: {} for path in sorted(program.traced.modal)},
        "placements": placements,
        "records": [asdict(record) for record in program.records],
        **({"preprocessing": program.preprocessing.record()} if program.preprocessing is not None else {}),
    }


def _in_words(options: Options | None) -> Options | None:
    """A quantizer's options as they can be written: PACT by its name, for what it has learned is among the tensors."""
    return options | {"preprocess": "PACT"} if options and "preprocess" in options else options


def _rebuild(body: dict[str, Any], tensors: dict[str, Tensor]) -> Program:
    plans = body["placements"].pop("plan")
    placements: Placements = decoded(Placements, body["placements"])
    if Stage(body["stage"]) is Stage.MOBILE:  # until 0.1 a mobile program named the engine that it was frozen for
        placements = replace(placements, target=mobile_engine().name)
    if placements.target not in ENGINES:
        raise ValueError(f"it was made for the engine {placements.target!r}, which is not known here")
    entries: list[_TensorEntry] = decoded(list[_TensorEntry], body["tensors"])
    quantizers = {placements.quantizers[name]: _quantizer(saved) for name, saved in body["quantizers"].items()}
    modules: dict[str, SavedModule] = decoded(dict[str, SavedModule], body.get("modules", {}))
    root = _module_tree(entries, tensors, quantizers, {path: saved.made() for path, saved in modules.items()})
    plan = {
        name: OpPlan(
            decoded(Options | None, planned["weight"]),
            {int(place): decoded(Options, options) for place, options in planned["inputs"]},
        )
        for name, planned in plans.items()
    }
    readable = {entry.name for entry in entries}
    graphs = {mode: decode_graph(nodes, readable, placements.quantizers.values()) for mode, nodes in body["graphs"].items()}
    program = Program(
        root,
        graphs,
        Signature(
            tuple(_input(leaf) for leaf in body["inputs"]),
            decode_structure(body["call"]),
            {mode: decode_structure(structure) for mode, structure in body["results"].items()},
        ),
        stage=Stage(body["stage"]),
        placements=replace(placements, plan=plan),
        records=tuple(read_record(record) for record in body["records"]),
        history=decoded(tuple[PassApplied, ...], body["history"]),
        for_test=bool(body["for_test"]),
        preprocessing=decoded(Preprocessing | None, body.get("preprocessing")),
        traced=Traced(modal=frozenset(decoded(dict[str, dict[str, float]], body.get("modal", {})))),
    )
    _refuse_misfits(program)
    _try_out(program)
    torch.nn.Module.train(program, body["training"])
    for path, saved in modules.items():
        read(program, path).training = saved.training and program.training
    return program.build()


@dataclass(frozen=True)
class _TensorEntry:
    """What a name of a tensor is; ``same_as`` is the name that its values are stored under."""

    name: str
    kind: str
    same_as: str = ""
    trains: bool = False
    persistent: bool = True


def _module_tree(
    entries: list[_TensorEntry], tensors: dict[str, Tensor], quantizers: dict[str, Quantizer], modules: dict[str, nn.Module]
) -> nn.Module:
    """The tensors, quantizers, batch norms and dropouts at their paths.

    They are in the order they were saved in: an optimizer finds its own by position.
    """
    root = nn.Module()
    waiting: dict[str, nn.Module] = {**modules, **quantizers}
    kept: dict[str, nn.Parameter] = {}
    for entry in entries:
        owner = entry.name.rpartition(".")[0].removesuffix(".preprocess")
        if owner in waiting:
            set_submodule(root, owner, waiting.pop(owner))
        container, leaf = parent_module(root, entry.name)
        source = entry.same_as or entry.name
        expected = container._parameters.get(leaf) if entry.kind == "parameter" else container._buffers.get(leaf)
        if expected is not None and not _fits(tensors[source], expected):
            raise ValueError(f"{entry.name!r} has shape {tuple(tensors[source].shape)} and {tensors[source].dtype}")
        if entry.kind == "parameter":
            if source not in kept:
                kept[source] = nn.Parameter(tensors[source], requires_grad=entry.trains)
            container._parameters[leaf] = kept[source]
        elif leaf in container._buffers:
            container._buffers[leaf] = tensors[source]
        else:
            container.register_buffer(leaf, tensors[source], persistent=entry.persistent)
    bare = [name for name, tensor in (*root.named_parameters(), *root.named_buffers()) if tensor.is_meta]
    bare += [path for path in waiting if path in quantizers]
    if bare:
        raise ValueError(f"the tensors of a quantizer are missing: {bare[0]!r}")
    for path, module in waiting.items():  # those without tensors
        set_submodule(root, path, module)
    return root


def _quantizer(saved: dict[str, Any]) -> Quantizer:
    """A quantizer without memory: how much it needs, its tensors in the file say, and not a number beside them."""
    with torch.device("meta"):
        quantizer = build(**saved["options"])
    decoded(_Options, {key: value for key, value in saved["options"].items() if key in _Options.__annotations__})
    switches = decoded(dict[str, bool], saved["switches"])
    quantizer.observing, quantizer.quantizing = switches["observing"], switches["quantizing"]
    return quantizer


@dataclass(frozen=True)
class _Options:
    """The options of quantizers that nobody else checks."""

    signed: bool = True
    narrow: bool = True
    pass_through: bool = False
    tensors: int = 1
    pairs: int | None = None
    axis: int | None = None


def _fits(tensor: Tensor, expected: Tensor) -> bool:
    """A quantizer's tensor as it was made; one that was empty then has a value per channel since."""
    same = tensor.shape == expected.shape or (expected.shape == (0,) and tensor.dim() == 1)
    return same and tensor.dtype == expected.dtype


def _input(leaf: Any) -> Any:
    if not is_tensor(leaf):
        return decode(leaf, {})
    shape = decoded(tuple[int | None, ...], leaf["shape"])
    dtype = decode(leaf["dtype"], {})
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype {dtype!r}")
    sides = decoded(tuple[Side, ...], leaf.get("sides", []))
    if any(side.multiple < 1 or not side.takes(side.captured) for side in sides) or shape[-2:].count(None) < len(sides):
        raise ValueError(f"the sides of {leaf['name']!r} do not fit its shape")
    return InputTensor(decoded(str, leaf["name"]), shape, dtype, sides)


def _refuse_misfits(program: Program) -> None:
    """The graphs must take what the signature says, and give back what it says."""
    signature = program.signature
    if len(signature.inputs) != signature.in_spec.num_leaves or not program.graphs.keys() <= signature.out_specs.keys():
        raise ValueError("its inputs do not fit its signature")
    pytree.tree_unflatten(list(signature.inputs), signature.in_spec)[1].keys()
    for mode, graph in program.graphs.items():
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        (results,) = next(node for node in reversed(graph.nodes) if node.op == "output").args
        if len(inputs) != len(signature.tensors) or len(results) != signature.out_specs[mode].num_leaves:
            raise ValueError("a graph does not fit its signature")


def _try_out(program: Program) -> None:
    """What the graphs compute must fit together, and fit into memory."""
    shapes = [(leaf.sizes(2), leaf.dtype) for leaf in program.signature.tensors]
    for graph in program.graphs.values():
        try_out(graph, lambda path: read(program, path), shapes)


def is_tensor(leaf: Any) -> bool:
    """Whether an input in a file is a tensor, and not a constant."""
    return isinstance(leaf, dict) and "shape" in leaf
