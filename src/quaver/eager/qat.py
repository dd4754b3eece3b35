"""``quaver.QAT``: quantization-aware training of a live model."""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy

from quaver.config.qat_config import QATConfig
from quaver.config.scopes import contains
from quaver.eager.conversion import frozen_program
from quaver.eager.fast_path import allow_fast_path, leave_fast_path
from quaver.eager.input_spec import Specs, specs_of
from quaver.eager.later_parametrizations import refuse_later_parametrizations
from quaver.eager.layers_by_name import Named, named_layers
from quaver.eager.quantized_layers import ROUNDING, WEIGHTED, Swapped, kind_of, swap, swap_back, taken_name
from quaver.eager.quantizer_factory import QuantizerFactory
from quaver.eager.sign_tracking import unwatch, watch
from quaver.engines import DEFAULT, ENGINES
from quaver.errors import ConfigError, InputError, QuaverWarning
from quaver.export import export_each
from quaver.nn import AdaptiveAvgPool2d, Add, AvgPool2d, MaxPool2d
from quaver.pipeline import preprocess
from quaver.program import Program
from quaver.program.views import uncompiled
from quaver.quantizers import Quantizer
from quaver.quantizers.pact import warn_of_unknown

_OF_QUAVER = (Add, AvgPool2d, AdaptiveAvgPool2d, MaxPool2d)


class QAT:
    """Quantize a model where it stands, train it with any loop, write it for the engines.

    ``config`` is a dict or a `quaver.config.QATConfig`. The functions are a user's own, instead of the quantizers or in
    front of them, as in `quaver.quant_aware`. A layer with ``layer.skip_quant = True``, or inside a module with it, stays
    float.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> quanter = QAT({"weight_bits": 8})
    >>> [type(layer).__name__ for layer in quanter.quantize(net)]
    ['QuantizedConv2d', 'ReLU']
    >>> [type(layer).__name__ for layer in quanter.remove(net)]
    ['Conv2d', 'ReLU']
    """

    def __init__(
        self,
        config: QATConfig | Mapping[str, Any] | None = None,
        *,
        weight_quantize_func: Any = None,
        act_quantize_func: Any = None,
        weight_preprocess_func: Any = None,
        act_preprocess_func: Any = None,
        optimizer_func: Any = None,
    ) -> None:
        self.config = QATConfig.of(config)
        if not (optimizer_func is None or callable(optimizer_func)):
            raise ConfigError(f"optimizer_func={optimizer_func!r}: takes a function from parameters to an optimizer.")
        self.optimizer_func = optimizer_func
        self.factory = QuantizerFactory(
            self.config,
            weight_quantize_func=weight_quantize_func,
            act_quantize_func=act_quantize_func,
            weight_preprocess_func=preprocess(self.config.weight_preprocess_type, weight_preprocess_func, "weight"),
            act_preprocess_func=preprocess(self.config.activation_preprocess_type, act_preprocess_func, "activation"),
        )
        self._optimizers: WeakKeyDictionary[nn.Module, tuple[list[nn.Parameter], Any]] = WeakKeyDictionary()

    # there and back

    def quantize(self, net: nn.Module, inplace: bool = True) -> nn.Module:
        """The model with quantizers in its layers; with ``inplace=False`` a copy of it.

        Layers stay the objects they are, under all their names, in the mode they are in. What is quantized already is left
        alone.
        """
        net = net if inplace else copy.deepcopy(_eager_model(net, "quantize"))
        model = _eager_model(net, "quantize")
        layers, chosen = named_layers(model), []
        self.config.warn_of_unmatched((name for layer in layers for name in layer.names), stacklevel=2)
        for named in layers:
            kind = kind_of(named.layer)
            if kind is None or isinstance(named.layer, Swapped) or (kind in ROUNDING and self.why_not(named)):
                continue
            if not named.calls_its_own(kind):
                _warn_of_own_forward(named)
                continue
            _refuse_what_cannot_be_swapped(named, kind)
            chosen.append((named.layer, kind, self.factory.quantizers(named, kind) if kind in ROUNDING else {}))
        for layer, kind, quantizers in chosen:  # all or none
            swap(layer, kind, quantizers)
        if not any(layer.own() for layer in model.modules() if isinstance(layer, Swapped)):
            warnings.warn("QAT.quantize found no layer to quantize: look at quantizer.why_float(net).", QuaverWarning, 2)
        tensors = [module.tensor for module in model.modules() if isinstance(module, Quantizer)]
        for function in (self.factory.options.act_preprocess_func, self.factory.options.weight_preprocess_func):
            warn_of_unknown(function, tensors, stacklevel=2)
        watch(model, [layer for layer, _, _ in chosen])
        leave_fast_path(model)
        return net

    def remove(self, net: nn.Module) -> nn.Module:
        """The model as it was before `quantize`, with the weights as they are now."""
        model = _eager_model(net, "remove")
        refuse_later_parametrizations(model)
        unwatch(model)
        allow_fast_path(model)
        for layer in [module for module in model.modules() if isinstance(module, Swapped)]:
            swap_back(layer)
        return net

    def why_float(self, net: nn.Module) -> dict[str, str]:
        """The layers that stay float, by name, and why."""
        weighted = [named for named in named_layers(_eager_model(net, "why_float")) if kind_of(named.layer) in WEIGHTED]
        reasons = {named.name: self.why_not(named) for named in weighted if not isinstance(named.layer, Swapped)}
        return {name: reason or "its class has a forward of its own" for name, reason in reasons.items()}

    def why_not(self, named: Named) -> str:
        """Why a layer is not to be quantized, or nothing."""
        if named.skipped:
            return f"{named.skipped} has skip_quant = True"
        for pattern in self.config.patterns:
            if any(contains(name, pattern) for name in named.names):
                return f"its name contains the pattern {pattern!r}"
        if isinstance(named.layer, _OF_QUAVER):
            return "weights alone are quantized" if self.config.quant_weight_only else ""
        if isinstance(named.layer, NonDynamicallyQuantizableLinear):
            return "MultiheadAttention reads its weight and never calls it"
        wanted = [getattr(nn, name) for name in self.config.layer_types]
        if not isinstance(named.layer, tuple(wanted)):
            return f"{type(named.layer).__name__} is not among the layer types to quantize"
        return ""

    # training

    def quantizer_parameters(self, net: nn.Module) -> Iterator[nn.Parameter]:
        """The parameters that quantizers and custom functions brought along."""
        for module in _eager_model(net, "quantizer_parameters").modules():
            if isinstance(module, Swapped):
                for child in (module._modules[name] for name in module.own()):
                    yield from () if child is None else child.parameters()

    def parameter_groups(self, net: nn.Module, **options: Any) -> list[dict[str, Any]]:
        """What to give an optimizer: the model's parameters, and the quantizers' with ``options`` of their own.

        With an ``optimizer_func`` the quantizers' are left out: `quantizer_optimizer` has them.
        """
        own = list(self.quantizer_parameters(net))
        own_ids = {id(parameter) for parameter in own}
        groups = [{"params": [parameter for parameter in net.parameters() if id(parameter) not in own_ids]}]
        return groups if not own or self.optimizer_func is not None else [*groups, {"params": own} | options]

    def quantizer_optimizer(self, net: nn.Module) -> Any:
        """What ``optimizer_func`` made of a model's `quantizer_parameters`; None without one, or without parameters.

        It is made once, and anew when there are other parameters: after `remove` and `quantize`, say.
        """
        model = _eager_model(net, "quantizer_optimizer")
        own = list(self.quantizer_parameters(model))
        if self.optimizer_func is None or not own:
            return None
        parameters, optimizer = self._optimizers.get(model, ([], None))
        if [id(parameter) for parameter in parameters] != [id(parameter) for parameter in own]:
            optimizer = self.optimizer_func(own)
            self._optimizers[model] = own, optimizer
        return optimizer

    # writing

    def convert(
        self,
        net: nn.Module,
        input_spec: Specs,
        batches: Iterable[Any] = (),
    ) -> Program:
        """The model as a frozen program, which computes what ``net.eval()`` computes. The model is left as it was.

        ExecuTorch rounds every layer's output, also where the model does not. ``batches``, a few of the training data, show
        the ranges for that.
        """
        return frozen_program(_eager_model(net, "convert"), specs_of(input_spec), self.config, batches)

    def save_quantized_model(self, net: nn.Module, path: str | Path, input_spec: Specs) -> Path:
        """Write the model for the engines, with int8 weights: ``model.xml`` (OpenVINO) and ``model.onnx`` in a folder.

        ``path`` is the folder, or one of the two files to give them another name. Gives the ``.xml``. If anything fails,
        both files are as they were.
        """
        if not isinstance(path, str | PathLike):
            raise InputError(f"QAT.save_quantized_model: path={path!r}: takes a folder, or the name of a file in one.")
        path = Path(path)
        engines = [engine for engine in ENGINES.values() if engine.folder == DEFAULT.folder]
        file = path.with_suffix("") if path.suffix in (engine.suffix for engine in engines) else path / "model"
        frozen = self.convert(_eager_model(net, "save_quantized_model"), input_spec).to("cpu")
        files = {engine.name: file.with_name(f"{file.name}{engine.suffix}") for engine in engines}
        return export_each(frozen, files)[0]


def _eager_model(net: Any, method: str) -> nn.Module:
    """The model that a user gave, or the one that ``torch.compile`` made it of."""
    if not isinstance(net, nn.Module) or isinstance(net, Program):
        raise InputError(f"QAT.{method} takes a live nn.Module, not {type(net).__name__}.")
    return uncompiled(net)


def _refuse_what_cannot_be_swapped(named: Named, layer_class: type[nn.Module]) -> None:
    layer = named.layer
    if any(is_lazy(tensor) for tensor in layer.parameters(recurse=False)):
        raise InputError(
            f"{named.name!r} ({type(layer).__name__}) does not know its shape yet. Run one batch through the model first."
        )
    taken = taken_name(layer, layer_class)
    if taken:
        raise InputError(
            f"{named.name!r} ({type(layer).__name__}) has an attribute {taken!r} of its own, a name that a quantized layer "
            "needs. Rename it, or set skip_quant = True on the layer."
        )


def _warn_of_own_forward(named: Named) -> None:
    warnings.warn(
        f"{named.name!r} stays float: {type(named.layer).__name__} has a forward of its own, and what it computes is not "
        "known. Let it call the forward of its base class, or set skip_quant = True on it.",
        QuaverWarning,
        stacklevel=3,  # whoever called quantize
    )
