"""What every quantizer is: a range, a grid, and two switches."""

from dataclasses import replace
from typing import Any, ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, distributed, nn

from quaver.grid import Grid, asymmetric_grid
from quaver.quantizers import fused, in_blocks
from quaver.quantizers.arithmetic import StorageFormat, fake_quantize, integers_with_gradient, scale_of
from quaver.quantizers.custom_output_checks import checked, tried
from quaver.quantizers.dtype import StaysFloat32
from quaver.quantizers.eager_calls import is_eager
from quaver.quantizers.on_grid import OffGridError, clip_bounds
from quaver.quantizers.pact import PACT
from quaver.quantizers.saturation import JUST_BELOW, LARGEST_SUM, largest_pair

SHIFTED = StorageFormat()
ACTIVATIONS = Grid(8, narrow=False)
"""The grid of signed activations, which calibration may make asymmetric."""
ZERO_POINT = "zero_point"
"""In state dicts: how many integers of an asymmetric grid are negative."""


class Common(TypedDict, total=False):
    """The options that every quantizer takes."""

    signed: bool
    narrow: bool
    pass_through: bool
    tensors: int
    pairs: int | None
    zero_point: int | None


class Quantizer(StaysFloat32):
    """Let a network feel integer rounding while it still computes in float.

    Forward: the input rounded to ``bits`` bits and back, in float32 inside whatever the dtype outside.
    Backward: gradient 1 where the integer did not saturate, 0 where it did (``pass_through=True``: 1 everywhere).

    A subclass says where the range comes from: `observe` looks at a training tensor, `threshold` is the absolute maximum
    it settled on. One quantizer can serve several tensors that must share a range (the inputs of a concatenation);
    ``tensors`` says how many, and each is observed by its own index so that none dilutes another.

    ``signed`` and ``narrow`` choose the grid (`quaver.grid.Grid`). ``pairs`` is for weights: the axis along which
    neighbours are kept from overflowing 16 bits together (`quaver.quantizers.saturation`), by a larger threshold where the
    rule takes it from the weight itself, else by cutting.

    ``preprocess`` is a user's function in front of the quantizer. `PACT` there limits the range, and the limit stays when
    its state is loaded into a quantizer without it.
    """

    kind: ClassVar[str]
    range_prevents_saturation: ClassVar[bool] = False
    """Whether the range rule by itself keeps neighbours of a weight from overflowing, so that none has to be cut."""
    by_largest: ClassVar[bool] = False
    """Whether all that the range rule asks of a tensor is its largest absolute value; said by the very class."""
    axis: int | None = None
    """Along which the range differs; None for one range."""

    def __init__(self, bits: int = 8, **options: Unpack[Common]) -> None:
        super().__init__()
        self._symmetric = Grid(bits, options.get("signed", True), options.get("narrow", True))
        self._asymmetric: list[Grid] = []  # one, or none; the same list in all views of a program, as tensors are the same
        if (zero_point := options.get("zero_point")) is not None:
            self.grid = asymmetric_grid(zero_point)
        self.pass_through = options.get("pass_through", False)
        self.tensors = options.get("tensors", 1)
        self.saturation_axis = options.get("pairs")
        self.observing = True
        self.quantizing = True
        self.synced = False  # several processes observe as one: `quaver.training.across_ranks` switches it on
        self.preprocess: nn.Module | None = None
        self.tensor = ""
        """The name of what is quantized, for messages."""
        self.made_of: tuple[Any, Any] = (None, None)
        """The user's functions it was made of: instead of the quantizer, and in front of it."""
        self.looked_at: set[str] = set()
        self.scratch: Tensor | None = None
        """Where a fused kernel counts, from zeros. It is nobody's state, so it is no buffer."""
        self.clipped_at: Tensor | None
        self.register_buffer("clipped_at", None)
        # How many observed tensors held NaN or Inf. They are left out of the range; a program names them in a warning.
        self.nonfinite: Tensor
        self.register_buffer("nonfinite", torch.zeros((), dtype=torch.int64), persistent=False)

    @property
    def grid(self) -> Grid:
        """The integers. An asymmetric grid belongs to the range: a module that shares its tensors shares it, too."""
        return self._asymmetric[0] if self._asymmetric else self._symmetric

    @grid.setter
    def grid(self, grid: Grid) -> None:
        self._asymmetric[:] = [grid] if grid.is_asymmetric else []
        if not grid.is_asymmetric:
            self._symmetric = grid

    def observe(self, x: Tensor, tensor: int = 0) -> None:
        """Take one training tensor into account."""
        raise NotImplementedError

    @property
    def own_threshold(self) -> Tensor:
        """What the range rule settled on."""
        raise NotImplementedError

    @property
    def threshold(self) -> Tensor:
        """The absolute maximum: what lies on the grid's largest integer."""
        return self.bounded(self.own_threshold)

    def bounded(self, threshold: Tensor) -> Tensor:
        """``threshold``, or the limit of a clip where that is less."""
        limit = self.limit
        return threshold if limit is None else torch.minimum(threshold, limit)

    @property
    def limit(self) -> Tensor | None:
        """Where a clip ends the range, if there is one."""
        return self.preprocess.limit.detach() if isinstance(self.preprocess, PACT) else self.clipped_at

    @property
    def clamped_axis(self) -> int | None:
        """The axis along which neighbours may have to be cut: None where the range leaves nothing to cut."""
        return None if self.range_prevents_saturation and self.limit is None else self.saturation_axis

    @property
    def seen(self) -> Tensor | None:
        """Whether there is a range yet, as a tensor so that asking costs no synchronisation. None: there always is."""
        return None

    @property
    def scale(self) -> Tensor:
        """The step between neighbouring integers."""
        return scale_of(self.threshold, self.grid)

    def range_for(self, x: Tensor, tensor: int | None) -> tuple[Tensor, Tensor | None]:
        """Threshold for ``x``, observed first when training, and `seen` (None: no need to ask).

        Just observed, there is a range, unless the very first batch held NaN or Inf: then NaN says so to everyone.
        """
        if self.training and self.observing and tensor is not None:
            with torch.no_grad():
                self.observe(x, tensor)
                return self.bounded(self.threshold_or_nan()), None
        return self.threshold, self.seen

    def scale_for(self, x: Tensor, tensor: int | None) -> tuple[Tensor, Tensor | None]:
        """The step for ``x``, in a shape that broadcasts against it, from `range_for`; and `seen`."""
        scale = self.observed_scale(x, tensor)
        if scale is not None:
            return scale, None
        threshold, seen = self.range_for(x, tensor)
        return self.per_channel(scale_of(threshold, self.grid), x), seen

    def observed_scale(self, x: Tensor, tensor: int | None) -> Tensor | None:
        """The step with ``x`` observed, from one kernel; None where `range_for` has to find it, and nothing was observed."""
        if tensor is None or not (self.training and self.observing and fused.suits(x)):
            return None
        from quaver.quantizers.fused.range_observers import observed_scale  # needs Triton

        return observed_scale(self, x, tensor)

    def threshold_or_nan(self) -> Tensor:
        """`own_threshold`, NaN where there is none yet."""
        seen = self.seen
        return self.own_threshold if seen is None else torch.where(seen, self.own_threshold, torch.nan)

    def begin(self, weight: Tensor) -> None:
        """Find the range of a weight before the first step, so that a compiled step finds it in its place and shape."""
        self.range_for(weight, None)

    def per_channel(self, values: Tensor, like: Tensor) -> Tensor:
        """``values`` in a shape that broadcasts against ``like``: along the channel axis if there is one."""
        if self.axis is None or values.dim() == 0:
            return values
        shape = [1] * like.dim()
        shape[self.axis] = -1
        return values.view(shape)

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """``x`` rounded onto the grid and back; ``tensor`` is its index, None for one that was observed already."""
        if tensor is not None and self.training and self.observing and fused.suits(x):
            from quaver.quantizers.fused.range_observers import rounded  # needs Triton

            value = rounded(self, x, tensor)
            if value is not None:
                return value
        x = self.preprocessed(x)
        scale, seen = self.scale_for(x, tensor)
        if not self.quantizing:
            return x
        if seen is not None and x.is_cpu and is_eager(x):  # asking costs nothing there
            if not seen:
                return x
            seen = None
        result = fake_quantize(x, scale, self.grid, pass_through=self.passes_all, saturation_axis=self.clamped_axis)
        return result if seen is None else torch.where(seen, result, x)

    def in_one(
        self, x: Tensor, clamp: in_blocks.Clamp | None, tensor: int | None = 0, multiplied: bool = False
    ) -> Tensor | None:
        """What `forward` gives for ``clamp(x)``, without computing that: one tensor less to write, to read and to keep.

        ``multiplied``: only products read it, and under autocast it may come in the dtype that they read it in. None where
        it has to be computed: the range rule asks for more than max|x|, or expressions round the tensor.
        """
        by_largest = vars(type(self)).get("by_largest", False)  # what is derived from a rule may observe otherwise
        if not (by_largest and self.preprocess is None and self.quantizing and self.saturation_axis is None):
            return None
        if fused.suits(x):
            from quaver.quantizers.fused.range_observers import rounded  # needs Triton

            watched = tensor is not None and self.training and self.observing
            return rounded(self, x, tensor, clamp, multiplied) if watched else None  # type: ignore[arg-type]
        if clamp is None or not (x.is_cpu and is_eager(x)):
            return None
        with torch.no_grad():  # of the ends of x the clamp makes the ends of what it gives
            ends = x.amax() if clamp.low >= 0 else torch.stack(torch.aminmax(x))
            scale, seen = self.scale_for(clamp(ends), tensor)
        if seen is not None and not seen:
            return clamp(x)
        return in_blocks.fake_quantize(x, scale, self.grid, self.passes_all, clamp)

    @property
    def passes_all(self) -> bool:
        """Whether gradients pass wherever a value lies.

        A clip masks gradients by itself; masked once more behind it, nothing would arrive that could raise its limit.
        """
        return self.pass_through or isinstance(self.preprocess, PACT)

    def preprocessed(self, x: Tensor) -> Tensor:
        """``x`` as the user's function in front of the quantizer leaves it."""
        return x if self.preprocess is None else self.called(self.preprocess, x, "preprocess function")

    def called(self, function: nn.Module, x: Tensor, role: str) -> Tensor:
        """What a user's function makes of ``x``, if it can be used; its values are looked at once, at first use."""
        if isinstance(function, PACT):
            return function(x)  # type: ignore[no-any-return]
        who = f"{self.tensor!r}: its {role}" if self.tensor else f"the {role}"
        look = role not in self.looked_at and not torch.compiler.is_compiling()
        result: Any = tried(function, x, who) if look else function(x)
        checked(result, x, who, values=look)
        if look:
            self.looked_at.add(role)
        return result  # type: ignore[no-any-return]

    def integers(self, x: Tensor, how: StorageFormat = SHIFTED) -> tuple[Tensor, Tensor]:
        """Integers (as float32) and the step, so that ``integers · step`` is what `forward` gives; never observes.

        ``how`` the engine stores them decides the last bit. Switched off, or with no range yet, these are ``x`` itself and
        the step it is counted in, or 1.
        """
        if self.preprocess is not None and not (self.quantizing and isinstance(self.preprocess, PACT)):
            given, values = x, self.preprocessed(x if how.unit is None else x * how.unit)
            absorbing = self.absorbing(given.dim(), given.device)
            if absorbing is not None:  # rounded as an engine rounds; the gradient is the function's
                whole, scale = absorbing.integers(given.detach(), how)
                return whole + (values - values.detach()) / scale if values.requires_grad else whole, scale
            x, how = values, replace(how, unit=None)
        own = torch.as_tensor(1.0 if how.unit is None else how.unit, device=x.device)
        if not self.quantizing:
            return x.float(), own
        threshold, seen = self.range_for(x, None)
        scale = scale_of(threshold, self.grid)
        steps = self.per_channel(scale, x)
        whole = integers_with_gradient(
            x, steps, self.grid, pass_through=self.pass_through, saturation_axis=self.clamped_axis, how=how
        )
        if seen is None:
            return whole, scale
        return torch.where(seen, whole, x.float()), torch.where(seen, scale, own)

    @property
    def function_in_front(self) -> nn.Module | None:
        """The user's function in front of the quantizer, if it is another than `PACT`, which the range absorbs."""
        return None if isinstance(self.preprocess, PACT) else self.preprocess

    def absorbing(self, rank: int, device: torch.device) -> "FixedStep | None":
        """A quantizer that does by itself what a user's clip in front of this one does, and what this one does behind it.

        None where the function is no clip, or the tensor (of this rank) is a weight, whose integers are stored anyway.
        """
        function = self.function_in_front
        if function is None or self.grid.narrow or not self.quantizing or torch.compiler.is_compiling():
            return None
        seen = self.seen
        if seen is not None and not seen:
            return None
        step = float(self.scale)
        try:
            bounds = clip_bounds(function, step, self.grid, rank, device)
        except OffGridError:
            return None
        return FixedStep(step, replace(self.grid, bounds=bounds)).to(device)

    def largest(self, x: Tensor) -> Tensor:
        """max|x| in float32, or the larger threshold that keeps neighbours of a weight from overflowing together."""
        if not self.grid.signed:
            return x.amax().clamp_min(0).float()
        low, high = torch.aminmax(x)
        return self.with_neighbours(torch.maximum(-low, high).float(), x)

    def with_neighbours(self, largest: Tensor, x: Tensor) -> Tensor:
        """``largest``, or more where the sum of two neighbours would otherwise overflow 16 bits (`saturation_axis`)."""
        if self.saturation_axis is None or not self.widens_range:
            return largest
        pair = largest_pair(x.detach().float(), self.saturation_axis, by_filter=largest.dim() > 0)
        return torch.maximum(largest, pair * self.pair_factor)

    @property
    def widens_range(self) -> bool:
        """Whether neighbours may ask for a wider range: few bits never come that far."""
        return self.saturation_axis is not None and 2 * self.grid.high > LARGEST_SUM

    @property
    def pair_factor(self) -> float:
        """What the sum of two neighbours is multiplied with to be the threshold that it needs."""
        return self.grid.high / (LARGEST_SUM * JUST_BELOW)

    def largest_over_ranks(self, x: Tensor) -> Tensor:
        """max|x| over the batches of all processes, the same bits in each; Inf where one of them holds NaN or Inf."""
        own = self.largest(x) if x.numel() else torch.full((), -torch.inf, device=x.device)
        largest = torch.where(torch.isnan(own), torch.inf, own)  # NaN has no place in an order
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        return largest

    def observed_largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """max|x|, and whether it can be used: it is counted, not used, where it is NaN or Inf."""
        if self.synced:
            largest = self.largest_over_ranks(x)
        elif x.numel() == 0:  # an empty batch says nothing about the range, and has no maximum
            return torch.zeros((), device=x.device), torch.zeros((), dtype=torch.bool, device=x.device)
        else:
            largest = self.largest(x)
        finite = largest < torch.inf  # what isfinite takes four operations for: it is not negative
        self.nonfinite.add_(~finite)
        return largest, finite

    def options(self) -> dict[str, Any]:
        """What `quaver.quantizers.build` needs to make this quantizer again."""
        clip = {"preprocess": "PACT"} if isinstance(self.preprocess, PACT) else {}
        return clip | {
            "kind": self.kind,
            "bits": self.grid.bits,
            "signed": self.grid.signed,
            "narrow": self.grid.narrow,
            "pass_through": self.pass_through,
            "tensors": self.tensors,
            "pairs": self.saturation_axis,
            **({"zero_point": self.grid.zero_point} if self.grid.is_asymmetric else {}),
        }

    def extra_repr(self) -> str:
        """The options, as ``print`` shows them."""
        shown = {key: value for key, value in self.options().items() if key != "kind" and value is not None}
        return ", ".join(f"{key}={value!r}" for key, value in shown.items())

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """As any module; and the zero point of an asymmetric grid, which calibration chose: training starts from tensors."""
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        if self.grid.is_asymmetric:
            destination[prefix + ZERO_POINT] = torch.tensor(self.grid.zero_point)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """As any module; what PACT learned becomes a limit of the range where there is no PACT, and the grid is the state's.

        A state without any tensor of the quantizer, a float model's, leaves the grid as it is.
        """
        zero_point = state_dict.pop(prefix + ZERO_POINT, None)
        if zero_point is not None:
            self._take_zero_point(zero_point, prefix, args[-1])
        elif any(name.startswith(prefix) for name in state_dict):
            self._asymmetric.clear()
        learned, limit = prefix + "preprocess.pact_threshold", prefix + "clipped_at"
        if self.preprocess is None and learned in state_dict:
            state_dict[limit] = state_dict.pop(learned).detach().abs()
        if limit in state_dict and self.clipped_at is None:
            self.clipped_at = torch.zeros((), device=self.nonfinite.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[no-untyped-call]

    def _take_zero_point(self, zero_point: Tensor, prefix: str, problems: list[str]) -> None:
        """Have the asymmetric grid of a state; or say, with the other problems of it, why not."""
        try:
            grid = asymmetric_grid(int(zero_point))
        except (ValueError, OverflowError, RuntimeError) as error:  # it may be anything
            problems.append(f"{prefix}{ZERO_POINT}: {error}")
            return
        if self._symmetric != ACTIVATIONS:
            ends = f"{self._symmetric.low} to {self._symmetric.high}"
            problems.append(f"{prefix}{ZERO_POINT}: the quantizer's integers are {ends}.")
        elif self.grid != grid:  # the same one stays, for compiled code knows it
            self.grid = grid


class FixedStep(Quantizer):
    """A step and a grid that are known, and stay."""

    kind = "fixed_step"

    def __init__(self, step: float, grid: Grid) -> None:
        super().__init__(grid.bits, signed=grid.signed, narrow=grid.narrow)
        self.grid = grid
        self.own: Tensor
        self.register_buffer("own", torch.tensor(step * grid.high))
        self.eval()

    @property
    def own_threshold(self) -> Tensor:
        """What lies on the largest integer."""
        return self.own
