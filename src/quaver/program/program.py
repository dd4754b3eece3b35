"""Program: a model as graphs over its own tensors, with the stage it has reached."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn

from quaver.engines import DEFAULT, ENGINES, Engine
from quaver.errors import StageError
from quaver.graph.copying import copy_graph
from quaver.preprocessing import Preprocessing
from quaver.program.empty_batch import empty_shape
from quaver.program.history import PassApplied
from quaver.program.module_guards import module_guards, refuse_changed_modes, refuse_changed_settings
from quaver.program.module_hooks import HookWatch
from quaver.program.op_record import OpRecord, ops_of, recorded_ops
from quaver.program.placements import Placements
from quaver.program.printer import table
from quaver.program.runtime_graph import evaluation_graph, training_graph
from quaver.program.seen_data import seen_data, warn_of_ranges
from quaver.program.signature import Signature
from quaver.program.stage import Stage
from quaver.program.stateful_ops import is_training, settle_eps, stateful_nodes
from quaver.program.traced import Traced
from quaver.program.training_code import TrainingCode
from quaver.program.views import Executable, graph_module, read, value_of, view
from quaver.quantizers import Quantizer

TRAIN, EVAL = "train", "eval"
_OWN = frozenset(
    {"graphs", "signature", "stage", "placements", "records", "history", "for_test", "training", "optimizer_func"}
    | {"preprocessing", "traced", "attributes"}
    | {"_compiled", "_quantizer_optimizer", "_hooks", "_guards"}
)


class Program(nn.Module):
    """A captured model: a training and an evaluation graph over one set of tensors.

    It is used like the model it came from. ``.train()`` and ``.eval()`` choose the graph; ``state_dict()`` has the
    model's own names, and the quantizers' beside them; parameters and buffers *are* the model's. Its modules are the
    model's, too: batch norms and dropouts compute in their own mode and with their own settings, and hooks are called. The
    model's plain attributes (``names``, ``config``), by which other libraries know it, are the program's as long as it is
    not saved.

    In evaluation, quantized ops run in the arithmetic of an engine: integers are convolved and rescaled once. A prepared
    program has the default engine's, and so has a frozen one that is meant for it: what is measured on the one is what the
    other computes, bit for bit. Meant for another engine, the frozen one computes as that engine does.

    ``preprocessing`` may say how its images are prepared: what is made of the program, files too, carries it on.
    """

    accepts_loss_kwargs: ClassVar = False
    """What Hugging Face's Trainer asks before it gives more than the data: a graph takes what it was captured with."""

    def __init__(
        self,
        tensors: nn.Module,
        graphs: Mapping[str, fx.Graph],
        signature: Signature,
        *,
        stage: Stage = Stage.FLOAT,
        placements: Placements | None = None,
        records: tuple[OpRecord, ...] = (),
        history: tuple[PassApplied, ...] = (),
        for_test: bool = False,
        preprocessing: Preprocessing | None = None,
        traced: Traced | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._compiled: dict[tuple[str, tuple[str, ...]], Executable] = {}
        self._parameters = tensors._parameters
        self._buffers = tensors._buffers
        self._non_persistent_buffers_set = tensors._non_persistent_buffers_set
        self._modules = dict(tensors._modules)
        self.graphs = dict(graphs)
        self.signature = signature
        self.stage = stage
        self.placements = placements or Placements()
        self.records = records
        self.history = history
        self.for_test = for_test
        self.preprocessing = preprocessing
        self.training = stage.trains and not for_test
        self.optimizer_func: Any = None
        self.traced = (
            traced if traced and stage.trains else Traced()
        )  # what does not train has modules that only hold tensors
        self._quantizer_optimizer: Any = None
        self._hooks = HookWatch()
        self.attributes = {name: value for name, value in (attributes or {}).items() if not hasattr(self, name)}
        self.__dict__.update(self.attributes)
        self._refresh_guards()

    def __setattr__(self, name: str, value: Any) -> None:
        """As any module, but a program's own fields stay its own where the model has a child of that name."""
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    # running

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives back, in the structure the model gives it."""
        tensors = self.signature.flatten(args, kwargs)
        mode = TRAIN if self.training else EVAL
        return self.signature.unflatten(self._run(mode, tensors), mode)

    def flat(self, *tensors: Tensor) -> list[Any]:
        """The outputs as a flat list, for tensors given in the order of the signature."""
        return list(self._run(TRAIN if self.training else EVAL, tensors))

    def with_features(self, names: tuple[str, ...], *args: Any, **kwargs: Any) -> tuple[Any, list[Tensor]]:
        """What the model gives back, and the tensors of modules or ops on the way; `quaver.feature_extractor` calls it."""
        tensors = self.signature.flatten(args, kwargs)
        mode = TRAIN if self.training else EVAL
        outputs = list(self._run(mode, tensors, names))
        return self.signature.unflatten(outputs[: len(outputs) - len(names)], mode), outputs[len(outputs) - len(names) :]

    def _run(self, mode: str, tensors: Sequence[Tensor], features: tuple[str, ...] = ()) -> Any:
        self._build(mode, features)
        run = self._compiled[mode, features]
        refuse_changed_modes(self._guards, self.training)
        try:
            return run(*tensors)
        except RuntimeError:  # torch cannot tell what view(n, -1) makes of nothing
            if mode == TRAIN or not self.signature.is_empty(tensors):
                raise
        outputs_of_one, outputs_of_two = (run(*self.signature.zeros(count)) for count in (1, 2))
        return [
            a if a.shape == b.shape else a.new_empty(empty_shape(a.shape, b.shape))
            for a, b in zip(outputs_of_one, outputs_of_two, strict=True)
        ]

    def _refresh_guards(self) -> None:
        self._guards = module_guards(self, self.graphs.values(), self.traced, self.attributes)

    def _find_hooks(self) -> bool:
        return self._hooks.find(self, self.graphs.values(), self.traced.hooks)

    def settle(self) -> None:
        """Write batch norms' eps of now into the graphs, for those who know them by the graphs alone: passes and files.

        Settings that a graph cannot have are refused.
        """
        refuse_changed_settings(self, self._guards)
        settle_eps(self, *self.graphs.values())

    def forget_code(self) -> None:
        """Build the graphs anew when they next run: they, or what they were built with, changed."""
        self._compiled.clear()

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _build(self, mode: str, features: tuple[str, ...] = ()) -> bool:
        """Turn a graph into code, once; ``torch.compile`` runs this instead of tracing it, and finds only the code.

        Hooks are looked for each time, and settings; those that come after it compiled, ``torch.compile`` sees in no module.
        """
        refuse_changed_settings(self, self._guards)
        if self._hooks.is_due() and self._find_hooks():
            self.forget_code()
        if (mode, features) not in self._compiled:
            self.traced.refuse_others(self)
            self._find_hooks()  # some may have been removed
            if mode == EVAL:
                code = Executable(self, self.lowered(features))
            else:
                code = TrainingCode(self, training_graph(self, features, self._hooks.hooked))
            self._compiled[mode, features] = code
        return True

    def build(self) -> "Program":
        """Turn the graphs into code now; without it, each is when it first runs."""
        for mode in self.graphs:
            self._build(mode)
        return self

    def lowered(self, features: tuple[str, ...] = ()) -> fx.Graph:
        """The evaluation graph as it is computed: on integers, in the arithmetic of the engine that it is meant for."""
        return evaluation_graph(self, features, self._hooks.hooked)

    @property
    def engine(self) -> Engine:
        """The engine in whose arithmetic the program evaluates: the default one; once frozen, the one it is meant for."""
        return DEFAULT if self.stage.trains else ENGINES[self.placements.target]

    def made_for(self, target: str) -> "Program":
        """The program, meant for this engine."""
        same = target == self.placements.target
        return self if same else self.copy(placements=replace(self.placements, target=target))

    def graph_module(self) -> fx.GraphModule:
        """The evaluation graph as it is written (quantize and dequantize ops), for exporters and the curious.

        A tensor or module whose path cannot be written there as it is, or is taken, stands at another.
        """
        return graph_module(self, copy_graph(self.graphs[EVAL]), self.free_name("renamed"))

    def train(self, mode: bool = True) -> "Program":
        """Choose the training graph, or with ``mode=False`` the evaluation graph."""
        return self._switch(mode)

    def eval(self) -> "Program":
        """Choose the evaluation graph."""
        return self._switch(False)

    def _switch(self, mode: bool) -> "Program":
        if mode and self.for_test:
            raise StageError("this program is an evaluation view: call .train() on the program it was cloned from.")
        if mode and not self.stage.trains:
            raise StageError(f"a {self.stage.value} program cannot be trained: train the prepared one, then convert it.")
        if self.training and not mode:
            warn_of_ranges(self, stacklevel=3)  # whoever called train or eval
        self.traced.refuse_others(self)
        super().train(mode)
        if mode:
            for node, _, module in stateful_nodes(self, self.graphs[TRAIN]):
                if not is_training(node):  # the model's own train() left it so, or quaver.freeze_batch_norm did
                    module.eval()
        self._refresh_guards()  # some may have taken the place of others
        refuse_changed_settings(self, self._guards)
        return self

    def clone(self, for_test: bool = False) -> "Program":
        """Another program over the same parameters, buffers and quantizers; nothing is reset.

        With ``for_test`` it is an evaluation view: always in eval mode, however the original trains on.
        """
        return self.copy(for_test=for_test)

    def copy(self, *, tensors: nn.Module | None = None, **changes: Any) -> "Program":
        """A program with graphs and modules of its own over the same tensors; the passes' way to begin."""
        graphs = changes.pop("graphs", None)
        if graphs is None:  # a pass, which gives its own, has settled them
            self.settle()
            graphs = {mode: copy_graph(graph) for mode, graph in self.graphs.items()}
        fields: dict[str, Any] = {
            "stage": self.stage,
            "placements": self.placements,
            "records": self.records,
            "history": self.history,
            "for_test": self.for_test,
            "preprocessing": self.preprocessing,
            "traced": self.traced,
            "attributes": self.attributes,
        }
        twin = Program(tensors or self._modules_viewed(), graphs, self.signature, **(fields | changes))
        twin.training = self.training and twin.stage.trains and not twin.for_test
        if not twin.training:
            nn.Module.train(twin, False)
        twin.optimizer_func = self.optimizer_func
        return twin

    def _modules_viewed(self) -> nn.Module:
        """The tensors, in modules that have their own mode, settings and hooks from here on."""
        seen: dict[int, nn.Module] = {}
        root = nn.Module()
        root._parameters, root._buffers = self._parameters, self._buffers
        root._non_persistent_buffers_set = self._non_persistent_buffers_set
        root._modules = {name: None if module is None else view(module, seen) for name, module in self._modules.items()}
        return root

    def __deepcopy__(self, memo: dict[int, Any]) -> "Program":
        tensors = nn.Module()
        tensors._parameters = copy.deepcopy(self._parameters, memo)
        tensors._buffers = copy.deepcopy(self._buffers, memo)
        tensors._non_persistent_buffers_set = set(self._non_persistent_buffers_set)
        tensors._modules = copy.deepcopy(self._modules, memo)
        twin = self.copy(tensors=tensors)
        memo[id(self)] = twin
        return twin

    # looking inside

    def free_name(self, name: str) -> str:
        """``name`` for a child of the program's own, changed where the model has such a child itself."""
        while name in self._modules or name in self._parameters or name in self._buffers:
            name += "_"
        return name

    def quantizers(self) -> Iterator[tuple[str, Quantizer]]:
        """Every quantizer with the name of its tensor."""
        placed = self.placements.quantizers
        return zip(placed, [read(self, path) for path in placed.values()], strict=True)

    def quantizer(self, name: str) -> Quantizer:
        """The quantizer of a tensor."""
        module = read(self, self.placements.quantizers[name])
        assert isinstance(module, Quantizer)
        return module

    def weight(self, name: str) -> Tensor:
        """The weight that the quantizer of this name rounds, as it is now: a parameter, or what the model computes."""
        path = self.placements.weights[name]
        if path:
            return read(self, path)  # type: ignore[no-any-return]
        rounding = next(iter(self.graphs[EVAL].find_nodes(op="call_module", target=self.placements.quantizers[name])))
        with torch.no_grad():
            return value_of(self, rounding.args[0])  # type: ignore[no-any-return]

    def quantizer_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that quantizers and custom functions brought along, for an optimizer group of their own."""
        for _, quantizer in self.quantizers():
            yield from quantizer.parameters()

    def parameter_groups(self, **options: Any) -> list[dict[str, Any]]:
        """What to give an optimizer: the model's parameters, and the quantizers' with ``options`` of their own.

        ``torch.optim.SGD(program.parameter_groups(lr=0.1, weight_decay=1e-4), lr=0.01)``. With an ``optimizer_func`` the
        quantizers' are left out: `quantizer_optimizer` has them.
        """
        own = list(self.quantizer_parameters())
        own_ids = {id(parameter) for parameter in own}
        groups = [{"params": [parameter for parameter in self.parameters() if id(parameter) not in own_ids]}]
        return groups if not own or self.optimizer_func is not None else [*groups, {"params": own} | options]

    @property
    def quantizer_optimizer(self) -> Any:
        """What ``optimizer_func`` made of `quantizer_parameters`, for a loop to step beside its own; None without one."""
        own = list(self.quantizer_parameters())
        if self._quantizer_optimizer is None and self.optimizer_func is not None and own:
            self._quantizer_optimizer = self.optimizer_func(own)
        return self._quantizer_optimizer

    @property
    def output_names(self) -> list[str]:
        """What the tensors that it gives back in evaluation are called in files: a dict's keys, or numbers."""
        outputs: Any = self.graphs[EVAL].output_node().args[0]
        return self.signature.output_names(EVAL, outputs)

    def ops(self) -> list[OpRecord]:
        """A record per op: name, type, scope, whether it is quantized, why not, thresholds."""
        return list(self.records) or recorded_ops(self)

    def scopes(self) -> set[str]:
        """Where its ops come from."""
        return {op.scope for op in self.records or ops_of(self.graphs)}

    def unseen(self) -> list[str]:
        """Names of the quantized tensors that have not seen any data."""
        return [name for name, seen in seen_data(dict(self.quantizers()), self.placements.weights).items() if not seen]

    def __repr__(self) -> str:
        return table(self)

    def __getstate__(self) -> dict[str, Any]:
        raise StageError(
            "a Program is not pickled: write it with quaver.save(program, folder) and read it with quaver.load."
        )
