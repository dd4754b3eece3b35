"""`Recipe`: everything a training run is told, each option with a default, a rule and a sentence.

A recipe file has the same names (YAML), with the options of float training under ``train`` and those of int8-aware
training under ``quantize``::

    model: MobileNetV1
    dataset: cifar10
    data_dir: /data/cifar
    train: {num_epochs: 100, lr: 0.1}
    quantize: {num_epochs: 20, lr: 0.005, freeze_observers_epoch: 15}
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from quaver.checking import Rule, boolean, number, one_of, rate, text, whole
from quaver.config.options import like, option, shared_options
from quaver.config.quant_config import QuantConfig
from quaver.config.quantization_options import ActivationRange, SharedOptions, TargetOption, WeightRange
from quaver.image_layouts import COLORS, LAYOUTS

LR_STRATEGIES = ("piecewise_decay", "cosine_decay", "exponential_decay", "constant")
OPTIMIZERS = ("momentum", "adamw")
ANSWERS = ("stop", "rollback", "warn", "off")
STATISTICS = ("moving_max", "largest", "best_threshold", "p99.99", "p99.9", "p99", "p90")
"""The figures of an analysis that a range can start from."""
FROM_DATA = "data"
NEVER = -1
AS_WEIGHTS = -1.0
NO_TARGET = -1.0


def _rising() -> Rule:
    def allows(value: Any) -> bool:
        whole_ones = isinstance(value, tuple) and all(isinstance(entry, int) and entry > 0 for entry in value)
        return whole_ones and list(value) == sorted(set(value))

    return Rule("whole numbers above 0 in rising order, such as 30,60,90", allows)


def _mapping() -> Rule:
    return Rule(
        "a table, such as scale=0.5", lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value)
    )


def _shape() -> Rule:
    def allows(value: Any) -> bool:
        parts = value.split(",") if isinstance(value, str) else [""]
        sizes = [int(part) for part in parts if part.strip().isdigit()]
        return value == "" or (len(sizes) == len(parts) == 3 and min(sizes) > 0 and sizes[1] == sizes[2])

    return Rule("channels, height and width, such as 3,224,224, height and width the same", allows)


def _anchors() -> Rule:
    def allows(value: Any) -> bool:
        numbers = isinstance(value, tuple) and all(isinstance(side, int | float) and side > 0 for side in value)
        return numbers and len(value) in (0, 18)

    return Rule("width and height of nine boxes, in pixels: 18 numbers above 0, the smallest box first", allows)


def epoch_or_never() -> Rule:
    """An epoch counted from 0, or −1."""
    return whole(NEVER)


def _or_minus_one() -> Rule:
    positive = number()
    return Rule(f"{positive.description}, or -1", lambda value: value == -1 or positive.allows(value))


@dataclass(frozen=True, kw_only=True)
class Phase:
    """How long and how a model is trained."""

    num_epochs: int = option(4, whole(0), "Epochs.")
    max_iters: int = option(0, whole(0), "Steps, in place of epochs; 0: num_epochs says how long.")
    lr: float = option(0.05, number(), "Learning rate at the beginning.", also=("base_lr",))
    lr_strategy: str = option("cosine_decay", one_of(*LR_STRATEGIES), "How the learning rate falls.")
    lr_step_epochs: tuple[int, ...] = option(
        (30, 60, 90), _rising(), "piecewise_decay: the epochs at which it falls.", also=("step_epochs",)
    )
    lr_step_iters: tuple[int, ...] = option(
        (), _rising(), "piecewise_decay: the steps at which it falls, in place of epochs.", also=("milestones",)
    )
    lr_gamma: float = option(0.1, number(0, 1), "piecewise_decay: what it is multiplied by there.", also=("gamma",))
    lr_decay_rate: float = option(0.94, number(0, 1), "exponential_decay: what it is multiplied by per epoch.")
    warmup_epochs: float = option(0.0, number(), "Epochs in which it rises from 0 first.")
    warmup_iters: int = option(0, whole(0), "Steps in which it does, in place of epochs.", also=("warmup_steps",))
    optimizer: str = option("momentum", one_of(*OPTIMIZERS), "What makes a step of gradients; adamw wants a lower lr.")
    momentum_rate: float = option(0.9, rate(), "Momentum.")
    nesterov: bool = option(False, boolean(), "Nesterov's momentum.")
    l2_decay: float = option(1e-4, number(), "L2 regularization (weight decay).")
    clip_norm: float = option(0.0, number(), "Gradients are scaled down to this norm; 0: they are not.")
    label_smoothing: float = option(0.0, rate(), "Part of each label that is spread over all classes.")
    bf16: bool = option(False, boolean(), "Autocast to bfloat16; thresholds stay float32.")
    compile: bool = option(False, boolean(), "torch.compile, with the settings that suit quantizers.")
    record: bool = option(True, boolean(), "On an accelerator, replay a recorded step; false: launch each kernel anew.")
    ema: float = option(0.0, rate(), "Decay of an average of the weights, which then is the result; 0: no average.")
    freeze_bn_epoch: int = option(
        NEVER, epoch_or_never(), "From this epoch on batch norm uses its statistics as they are; -1: never."
    )
    reestimate_bn: int = option(
        0, whole(0), "Batches to measure batch-norm statistics anew on, after each epoch and at the end."
    )
    watchdog: str = option("stop", one_of(*ANSWERS), "What to do when training goes wrong; rollback also lowers the rate.")
    watchdog_period: int = option(100, whole(1), "Steps between two looks of the watchdog.")
    rollback_lr_factor: float = option(0.5, number(0.001, 0.999), "What a rollback multiplies the learning rate by.")


@dataclass(frozen=True, kw_only=True)
class QuantPhase(TargetOption, SharedOptions, Phase):
    """How a model is trained with quantizers, and where these are."""

    num_epochs: int = option(2, whole(0), "Epochs of training with quantizers.")
    lr: float = like(Phase, "lr", default=0.005, same_as="")
    act_quant_type: str = like(ActivationRange, "activation_quantize_type")
    wt_quant_type: str = like(WeightRange, "weight_quantize_type")
    layer_bits: dict[str, Any] = like(
        SharedOptions, "layer_bits", default={}, help="Other bits for some layers, as stem=8,fc=8."
    )
    quantize_op_types: tuple[str, ...] = like(QuantConfig, "quantize_op_types", default=())
    freeze_observers_epoch: int = option(
        NEVER, epoch_or_never(), "From this epoch on the ranges of activations stay as they are; -1: never."
    )
    target_drop: float = option(
        NO_TARGET,
        _or_minus_one(),
        "Points of accuracy that int8 may lose: calibration, a few layers in float and training are tried in turn, until it "
        "is met; -1: train.",
    )
    calibrate: bool = option(True, boolean(), "Training begins from calibrated ranges and corrected weights.")
    use_pact: bool = option(False, boolean(), "PACT: a learned clip in front of every quantizer of an activation.")
    pact_lr: float = option(AS_WEIGHTS, _or_minus_one(), "Learning rate of the clips; -1: that of the weights.")
    pact_l2_decay: float = option(AS_WEIGHTS, _or_minus_one(), "L2 regularization of the clips; -1: that of the weights.")
    analysis: bool = option(
        False,
        boolean(),
        "Look at the float model on training data, write figures and pictures, and end; PACT starts from them.",
    )
    analysis_batches: int = option(100, whole(1), "Batches that are looked at.")
    init_from: str = option(
        "", text("a path"), "Start ranges and clips from this file of quaver analyze; data: from a look at the data first."
    )
    init_by: str = option("moving_max", one_of(*STATISTICS), "The figure of the analysis that they start from.")
    distill: float = option(0.0, number(0, 1), "Weight of learning from the float model's outputs; 0: from labels alone.")
    distill_temperature: float = option(2.0, number(0.01), "Temperature of that.")
    image_layout: str = option(
        "",
        one_of("", *LAYOUTS),
        "Files in int8 take uint8 images, NHWC (channels last) or NCHW, with the data's mean and std; without, tensors.",
    )
    image_color: str = option("RGB", one_of(*COLORS), "Such images are RGB, or BGR as OpenCV gives them.")

    def quant_config(self) -> QuantConfig:
        """The part of it that `quaver.quant_aware` takes."""
        chosen = shared_options(self, QuantConfig)
        if not self.quantize_op_types:
            del chosen["quantize_op_types"]
        if self.use_pact:
            chosen["activation_preprocess_type"] = "PACT"
        return QuantConfig(**chosen)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model of a run."""

    model: str = option(
        "MobileNetV1", text("a name"), "Name in the zoo, timm/NAME, torchvision/NAME or package.module:function."
    )
    model_options: dict[str, Any] = option({}, _mapping(), "Further options of the model, as scale=0.5.")
    pretrained_fp32_model: str = option(
        "",
        text("a path"),
        "Float weights to start from: a .safetensors or .pth file.",
        also=("pretrained_model", "pretrain_weights"),
    )
    class_dim: int = option(0, whole(0), "Classes of the model; 0: as many as the data set has.")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The data of a run, and its batches."""

    dataset: str = option(
        "auto",
        text("a name"),
        "digits, cifar10, ilsvrc, folder, voc; auto: what --data_dir holds, without one digits.",
        also=("data",),
    )
    data_dir: str = option("", text("a path"), "Folder of the data set.")
    image_shape: str = option("", _shape(), "Channels, height, width, such as 3,224,224; by default the data set's.")
    anchors: tuple[float, ...] = option(
        (), _anchors(), "voc: the detector's nine boxes, as 10,13,16,30,…; by default the paper's."
    )
    total_images: int = option(0, whole(0), "Images per epoch as the learning rate counts them; 0: as many as there are.")
    batch_size: int = option(32, whole(1), "Images per step, over all machines.")
    workers: int = option(0, whole(0), "Processes that read images; 0: this one does.")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The machine, the seed, and what is written."""

    use_gpu: str = option("auto", one_of("auto", "true", "false"), "Train on an accelerator; auto: if there is one.")
    seed: int = option(0, whole(0), "Seed of weights, batches and augmentation.")
    model_save_dir: str = option(
        "output",
        text("a path"),
        "Folder for checkpoints, artefacts and report.json.",
        also=("output_dir", "checkpoint_dir", "save_dir"),
    )
    checkpoint_period: int = option(500, whole(1), "Steps between two checkpoints; one at the end of each epoch besides.")
    log_period: int = option(10, whole(1), "Batches between two log lines.")
    tensorboard: bool = option(False, boolean(), "Write TensorBoard event files, too (needs the extra of that name).")
    verify_images: int = option(1000, whole(0), "Test images that the engine and the simulation are compared on.")


@dataclass(frozen=True, kw_only=True)
class Recipe(RunOptions, DataOptions, ModelOptions):
    """A training run: a model, its data, a machine, a seed, and the two phases."""

    train: Phase = field(default_factory=Phase)
    quantize: QuantPhase = field(default_factory=QuantPhase)

    @property
    def image_size(self) -> int | None:
        """Height and width of an image; None: the data set's own."""
        return int(self.image_shape.split(",")[1]) if self.image_shape else None

    def record(self) -> dict[str, Any]:
        """All of it as plain values, for a checkpoint, but where it is written to: equal runs make equal files."""
        return {key: value for key, value in asdict(self).items() if key != "model_save_dir"}
