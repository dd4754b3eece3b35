"""The kernels, in Triton: the very operations of the expressions that they stand for, in the same order.

What would move a bit is kept out: products and sums are not contracted (``enable_fp_fusion=False`` at every launch), `/` is
an approximation in Triton and ``div_rn`` is not, and maxima are taken over the bits of what is not negative, as integers:
these order as the numbers do, with NaN behind infinity.
"""

# ruff: noqa: N803, SIM108, SIM300 (constants are written in capitals in Triton, and it knows no conditional expression)
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

import triton
import triton.language as tl

from quaver.quantizers.arithmetic import SMALLEST_THRESHOLD

SMALLEST = tl.constexpr(SMALLEST_THRESHOLD)
ROUNDER = tl.constexpr(1.5 * 2**23)
"""Added and taken off again, it leaves a whole number, ties to even, of what is smaller than 2^22."""
ELEMENTS = {"torch.float32": tl.float32, "torch.bfloat16": tl.bfloat16, "torch.float16": tl.float16}
FIELDS = tl.constexpr(9)
"""How many numbers a row of `round_weights`' table has."""


@triton.jit
def _at_least(x, end):
    """The larger one; NaN stays."""
    return tl.maximum(x, end, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _at_most(x, end):
    """The smaller one; NaN stays."""
    return tl.minimum(x, end, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _size_bits(x):
    """The bits of |x|: as integers they are in the order of these numbers, with NaN behind infinity."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _scale_of(threshold, high, NARROW: tl.constexpr, CUDA: tl.constexpr):
    """`arithmetic.scale_of`. CUDA divides a tensor by a number as a product with the reciprocal."""
    threshold = tl.where(threshold < SMALLEST, SMALLEST, threshold)
    if CUDA:
        scale = threshold * tl.div_rn(1.0, high)
    else:
        scale = tl.div_rn(threshold, high)
    if NARROW:
        return scale
    return ((scale.to(tl.int32, bitcast=True) + 0x80) & ~0xFF).to(tl.float32, bitcast=True)


@triton.jit
def _rounded(steps, low, high, SIGNED: tl.constexpr):
    """`arithmetic.round_between`. The sign of a zero is kept where the grid has negative integers."""
    whole = (_at_most(_at_least(steps, low), high) + ROUNDER) - ROUNDER
    if SIGNED:
        sign = steps.to(tl.int32, bitcast=True) & -0x80000000
        whole = (whole.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return whole


@triton.jit
def _narrowed(x, ELEMENT: tl.constexpr, CUDA: tl.constexpr):
    """``x`` in another dtype, ties to even. To bfloat16 by hand where the interpreter would cut it off."""
    if ELEMENT == tl.bfloat16 and not CUDA:
        bits = x.to(tl.int32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
        x = tl.where(x == x, even.to(tl.float32, bitcast=True), x)
    return x.to(ELEMENT)


@triton.jit
def _clamped(x, CLAMP: tl.constexpr):
    """A ReLU (``CLAMP`` is infinity) or ReLU6 of ``x``; with 0 there is none. NaN stays."""
    if CLAMP > 0:
        x = _at_least(x, 0.0)
        if CLAMP < float("inf"):
            x = _at_most(x, CLAMP)
    return x


@triton.jit
def _observe(
    x,
    scratch,
    first,
    second,
    nonfinite,
    limit,
    scale,
    count,
    slot,
    window,
    rate,
    high,
    RULE: tl.constexpr,
    TENSORS: tl.constexpr,
    SLOTS: tl.constexpr,
    SIGNED: tl.constexpr,
    NARROW: tl.constexpr,
    LIMITED: tl.constexpr,
    CUDA: tl.constexpr,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `observe`; whether this program was the last."""
    sizes = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(x + offsets, mask=offsets < count, other=0.0).to(tl.float32)
        if SIGNED and CLAMP == 0:
            values = tl.abs(values)
        sizes = _at_least(values, sizes)
    # an activation keeps the order of values: of the largest it makes the largest
    tl.atomic_max(scratch, tl.max(_size_bits(_clamped(sizes, CLAMP)), axis=0))
    is_last = tl.atomic_add(scratch + 1, 1) == tl.num_programs(0) - 1
    if is_last:
        bits = tl.atomic_xchg(scratch, 0)
        tl.store(scratch + 1, 0)
        largest = bits.to(tl.float32, bitcast=True)
        finite = bits < 0x7F800000
        slots = tl.arange(0, SLOTS)
        there = slots < TENSORS
        own = slots == tl.where(finite, slot, -1)
        spoiled = tl.load(nonfinite) + tl.where(finite, 0, 1)
        # everything is loaded before anything is stored: warps that hold the same value do not wait for each other
        if RULE == "moving_average_abs_max":
            states = tl.load(first + slots, mask=there, other=0.0)
            accums = tl.load(second + slots, mask=there, other=0.0)
            states = tl.where(own, rate * states + 1, states)
            accums = tl.where(own, rate * accums + largest, accums)
            tl.debug_barrier()
            tl.store(first + slots, states, mask=own)
            tl.store(second + slots, accums, mask=own)
            if TENSORS == 1:
                threshold = tl.sum(tl.div_rn(accums, states), axis=0)  # of one
            else:
                threshold = tl.max(tl.div_rn(accums, tl.maximum(states, 1.0)), axis=0)
                threshold = tl.where(tl.max(states, axis=0) > 0, threshold, float("nan"))
        elif RULE == "range_abs_max":
            steps = tl.load(second + slots, mask=there, other=0)
            oldest = slot * window + tl.load(second + slot) % window
            place = tl.where(finite, oldest, -1)
            peaks = tl.zeros([BLOCK], tl.float32)
            for start in range(0, TENSORS * window, BLOCK):
                offsets = start + tl.arange(0, BLOCK)
                values = tl.load(first + offsets, mask=offsets < TENSORS * window, other=0.0)
                peaks = tl.maximum(peaks, tl.where(offsets == place, largest, values))
            steps = tl.where(own, steps + 1, steps)
            tl.debug_barrier()
            tl.store(first + place, largest, mask=finite)
            tl.store(second + slots, steps, mask=own)
            threshold = tl.where(tl.max(steps, axis=0) > 0, tl.max(peaks, axis=0), float("nan"))
        else:  # abs_max
            last = tl.where(own, largest, tl.load(first + slots, mask=there, other=0.0))
            tl.debug_barrier()
            tl.store(first + slots, last, mask=own)
            settled = tl.maximum(tl.max(last, axis=0), 0.0)
            threshold = tl.where(finite, largest, tl.where(settled > 0, settled, float("nan")))
            if TENSORS > 1:
                threshold = tl.where(threshold < settled, settled, threshold)
        tl.store(nonfinite, spoiled)
        if LIMITED:
            end = tl.load(limit)
            threshold = tl.where((end < threshold) | (end != end), end, threshold)
        tl.store(scale, _scale_of(threshold, high, NARROW, CUDA))
    return is_last


@triton.jit(do_not_specialize=["slot", "window"])
def observe(
    x,
    scratch,
    first,
    second,
    nonfinite,
    limit,
    scale,
    count,
    slot,
    window,
    rate,
    high,
    RULE: tl.constexpr,
    TENSORS: tl.constexpr,
    SLOTS: tl.constexpr,
    SIGNED: tl.constexpr,
    NARROW: tl.constexpr,
    LIMITED: tl.constexpr,
    CUDA: tl.constexpr,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """max|x|, behind an activation if there is one (`_clamped`).

    The last program to come to an end lets it into the range and writes the step. ``first`` and ``second`` are the rule's
    buffers, with ``TENSORS`` slots (``SLOTS``: the next power of two). ``scratch`` is the largest so far and the programs
    that are done: two zeros, before and behind.
    """
    _observe(
        x,
        scratch,
        first,
        second,
        nonfinite,
        limit,
        scale,
        count,
        slot,
        window,
        rate,
        high,
        RULE,
        TENSORS,
        SLOTS,
        SIGNED,
        NARROW,
        LIMITED,
        CUDA,
        CLAMP,
        BLOCK,
    )


@triton.jit
def _step(scale, offsets, inner, channels, PER_CHANNEL: tl.constexpr):
    """The step of the values at these places."""
    if PER_CHANNEL:
        step = tl.load(scale + (offsets // inner) % channels)
    else:
        step = tl.load(scale)
    return step


@triton.jit
def _saturates(steps, low, high):
    """Half a step beyond the last integer; NaN does not, as in CUDA's ``hardtanh_backward``."""
    return (steps <= low - 0.5) | (steps >= high + 0.5)


@triton.jit
def _round_block(
    block,
    offsets,
    x,
    step,
    result,
    kept,
    integers,
    count,
    low,
    high,
    SIGNED: tl.constexpr,
    MASKED: tl.constexpr,
    STORED: tl.constexpr,
    CLAMP: tl.constexpr,
    PASSES: tl.constexpr,
    CUDA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `round_to_grid`, the values at ``offsets``, which are a block's."""
    inside = offsets < count
    values = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    steps = _clamped(values, CLAMP) * tl.div_rn(1.0, step)
    whole = _rounded(steps, low, high, SIGNED)
    tl.store(result + offsets, _narrowed(whole * step, result.dtype.element_ty, CUDA), mask=inside)
    if STORED:
        tl.store(integers + offsets, whole.to(tl.int32).to(integers.dtype.element_ty), mask=inside)
    if MASKED:
        if PASSES:  # behind an activation, or nothing would be masked
            stopped = values <= 0
        elif CLAMP > 0:  # as in CUDA's backward of these: NaN is not beyond their ends
            stopped = (values <= 0) | (steps >= high + 0.5)
        else:
            stopped = _saturates(steps, low, high)
        if CLAMP > 0 and CLAMP < float("inf"):
            stopped = stopped | (values >= CLAMP)
        bits = tl.where(tl.reshape(stopped, (BLOCK // 8, 8)), 0, 1 << tl.arange(0, 8)[None, :])
        places = block * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
        tl.store(kept + places, tl.sum(bits, axis=1).to(tl.uint8), mask=places * 8 < count)


@triton.jit
def round_to_grid(
    x,
    scale,
    result,
    kept,
    integers,
    count,
    inner,
    channels,
    low,
    high,
    PER_CHANNEL: tl.constexpr,
    SIGNED: tl.constexpr,
    MASKED: tl.constexpr,
    STORED: tl.constexpr,
    CLAMP: tl.constexpr,
    PASSES: tl.constexpr,
    CUDA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``x`` rounded onto the grid and back, its ``integers``, and a bit (``kept``) for each value that gradients pass.

    An activation in front (`_clamped`) is computed with it. Gradients pass where that lets them and where the integer did
    not saturate; with ``PASSES`` the latter does not matter.
    """
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    step = _step(scale, offsets, inner, channels, PER_CHANNEL)
    _round_block(
        block, offsets, x, step, result, kept, integers, count, low, high, SIGNED, MASKED, STORED, CLAMP, PASSES, CUDA, BLOCK
    )


@triton.jit(do_not_specialize=["slot", "window"])
def observe_and_round(
    x,
    scratch,
    first,
    second,
    nonfinite,
    limit,
    scale,
    result,
    kept,
    integers,
    count,
    slot,
    window,
    rate,
    low,
    high,
    RULE: tl.constexpr,
    TENSORS: tl.constexpr,
    SLOTS: tl.constexpr,
    SIGNED: tl.constexpr,
    NARROW: tl.constexpr,
    LIMITED: tl.constexpr,
    MASKED: tl.constexpr,
    STORED: tl.constexpr,
    CLAMP: tl.constexpr,
    PASSES: tl.constexpr,
    CUDA: tl.constexpr,
    REDUCED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`observe` and `round_to_grid` in one launch: all programs are there at once, and wait for the last to write the step.

    The third of ``scratch`` is how often that has happened.
    """
    before = tl.atomic_add(scratch + 2, 0)
    is_last = _observe(
        x,
        scratch,
        first,
        second,
        nonfinite,
        limit,
        scale,
        count,
        slot,
        window,
        rate,
        high,
        RULE,
        TENSORS,
        SLOTS,
        SIGNED,
        NARROW,
        LIMITED,
        CUDA,
        CLAMP,
        REDUCED,
    )
    if is_last:
        tl.debug_barrier()
        tl.atomic_add(scratch + 2, 1)
    now = tl.atomic_add(scratch + 2, 0)
    while now == before:
        now = tl.atomic_add(scratch + 2, 0)
    step = tl.load(scale, volatile=True)
    for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        _round_block(
            block,
            offsets,
            x,
            step,
            result,
            kept,
            integers,
            count,
            low,
            high,
            SIGNED,
            MASKED,
            STORED,
            CLAMP,
            PASSES,
            CUDA,
            BLOCK,
        )


@triton.jit
def mask_gradient(gradient, kept, result, count, BLOCK: tl.constexpr):
    """The gradient where the bit is set, 0 elsewhere."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    octets = tl.load(kept + offsets // 8, mask=inside, other=0).to(tl.int32)
    values = tl.load(gradient + offsets, mask=inside, other=0.0)
    tl.store(result + offsets, tl.where((octets >> (offsets % 8)) & 1 != 0, values, 0.0), mask=inside)


@triton.jit
def values_of(integers, scale, result, count, CUDA: tl.constexpr, BLOCK: tl.constexpr):
    """What integers stand for, in steps of a single size."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    whole = tl.load(integers + offsets, mask=inside, other=0).to(tl.float32)
    tl.store(result + offsets, _narrowed(whole * tl.load(scale), result.dtype.element_ty, CUDA), mask=inside)


@triton.jit
def slope_and_mask(
    gradient,
    x,
    scale,
    result,
    slopes,
    count,
    inner,
    channels,
    low,
    high,
    PER_CHANNEL: tl.constexpr,
    SIGNED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of a learned step: the gradient as `mask_gradient`, and ``arithmetic.slope`` times it, whose sum is the step's own."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    step = _step(scale, offsets, inner, channels, PER_CHANNEL)
    steps = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32) * tl.div_rn(1.0, step)
    values = tl.load(gradient + offsets, mask=inside, other=0.0)
    between = (steps > low) & (steps < high)
    slope = _rounded(steps, low, high, SIGNED) - tl.where(between, steps, 0.0)
    tl.store(slopes + offsets, slope * values.to(tl.float32), mask=inside)
    if MASKED:
        tl.store(result + offsets, tl.where(_saturates(steps, low, high), 0.0, values), mask=inside)


@triton.jit
def round_weights(
    table,
    owners,
    neighbour_places,
    result,
    thresholds,
    pair_factor,
    ELEMENT: tl.constexpr,
    CUDA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Many weights at once, a channel each program: max|w|, more where neighbours ask for it, and all of it rounded.

    ``owners`` says whose channel it is, as a row of ``table``; ``neighbour_places``: of neighbours within a channel.
    """
    program = tl.program_id(0)
    row = table + tl.load(owners + program) * FIELDS
    channels, inner, size = tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    start = (program - tl.load(row + 1)) * inner
    weight = tl.load(row).to(tl.pointer_type(ELEMENT)) + start
    low, high = -tl.load(row + 5).to(tl.float32), tl.load(row + 5).to(tl.float32)
    result += tl.load(row + 6) + start
    neighbours, many = neighbour_places + tl.load(row + 7), tl.load(row + 8)
    sizes = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, size, BLOCK):
        index = begin + tl.arange(0, BLOCK)
        places = index // inner * inner * channels + index % inner
        values = tl.load(weight + places, mask=index < size, other=0.0).to(tl.float32)
        sizes = tl.maximum(sizes, _size_bits(values))
    largest = tl.max(sizes, axis=0)
    if many > 0:
        sums = tl.zeros([BLOCK], tl.int32)
        for begin in range(0, many, BLOCK):
            index = begin + tl.arange(0, BLOCK)
            first = tl.load(neighbours + index, mask=index < many, other=0)
            other = tl.load(neighbours + many + index, mask=index < many, other=0)
            total = tl.load(weight + first, mask=index < many, other=0.0).to(tl.float32)
            total += tl.load(weight + other, mask=index < many, other=0.0).to(tl.float32)
            sums = tl.maximum(sums, _size_bits(total))
        widest = tl.max(sums, axis=0).to(tl.float32, bitcast=True) * pair_factor
        largest = tl.maximum(largest, widest.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    threshold = largest.to(tl.float32, bitcast=True)
    tl.store(thresholds + program, threshold)
    step = _scale_of(threshold, high, True, CUDA)
    inverse = tl.div_rn(1.0, step)
    for begin in range(0, size, BLOCK):
        index = begin + tl.arange(0, BLOCK)
        places = index // inner * inner * channels + index % inner
        values = tl.load(weight + places, mask=index < size, other=0.0).to(tl.float32)
        rounded = _rounded(values * inverse, low, high, True) * step
        tl.store(result + places, _narrowed(rounded, result.dtype.element_ty, CUDA), mask=index < size)
