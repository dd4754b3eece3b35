"""What does a QAT step cost over a float step?

    python benchmarks/step.py                       CPU, eager and compiled
    python benchmarks/step.py --device cuda --batch 128 --size 224 --modes eager,recorded,compiled,expressions \
        --models torchvision/mobilenet_v2,torchvision/resnet50,torchvision/mobilenet_v3_large,torchvision/vit_b_16
    … --precision tf32 --peers fx,swap
    python benchmarks/step.py --memory --modes eager --models MobileNetV2,ResNet50 --precision bf16       memory only

Both models train in one process and take turns; medians. A step is forward, loss, backward and SGD with momentum. On an
accelerator a turn is ten steps, as a training loop runs them: the next one is prepared while the last one computes. The
precision there is bf16 (autocast) unless ``--precision`` says tf32 or fp32.

``eager`` is a loop of one's own; on an accelerator quantizers are kernels there, and ``expressions`` is the same with
QUAVER_FUSED=0. ``recorded`` has forward, loss and backward of both models replayed by `quaver.training.RecordedStep`,
``compiled`` is torch.compile, ``graphs`` that replayed as CUDA graphs, both models. ``start-up`` is making the
model ready and its first steps, compiling included. ``--peers`` measures others in our place: torch's FX QAT, and layers
swapped for torch's modules with fake quantizers. A model is a name of the zoo or torchvision/NAME, ``--live`` prepares it
by ``quaver.QAT`` instead of ``quant_aware``.

``memory`` is the peak of a step, with weights, gradients and optimizer state. On an accelerator it is torch's count; on the
CPU, where it is measured with ``--memory`` and no times are, torch.profiler's: the running sum of all that tensors allocate
and free. Scratch memory of oneDNN is not in it, nor what malloc does not give back.
"""

import gc
import os
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import quaver
from measure import Rows, arguments, interleaved, report
from quaver.models import build
from quaver.quantizers.fused import SWITCH
from quaver.training import RecordedStep, compile_training

warnings.filterwarnings("ignore", module="torch")
warnings.filterwarnings("ignore", category=DeprecationWarning)  # peers

WARM_UP = 5


def step(
    model: nn.Module, run: Callable[..., torch.Tensor], images: torch.Tensor, labels: torch.Tensor, mode: str, bf16: bool
) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def forward(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=bf16):
            return F.cross_entropy(run(images), labels)

    recorded = RecordedStep(forward, model)

    def job() -> None:
        os.environ[SWITCH] = "0" if mode == "expressions" else ""
        if mode == "recorded":
            recorded(images, labels)
        else:
            optimizer.zero_grad(set_to_none=True)
            forward(images, labels).backward()
        optimizer.step()

    return job


def peak_memory(job: Callable[[], None], model: nn.Module, cuda: bool) -> float:
    """MiB that a step needs at its peak, weights and optimizer state of this model included."""
    if not cuda:
        return (resident_bytes(model) + peak_above(job)) / 2**20
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    job()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def resident_bytes(model: nn.Module) -> int:
    """What is there between two steps: parameters with gradients and momentum, and buffers."""
    parameters = list(model.parameters())
    tensors = [*parameters, *model.buffers(), *(one.grad for one in parameters if one.grad is not None)]
    return sum(tensor.nbytes for tensor in tensors) + sum(one.nbytes for one in parameters)


def peak_above(job: Callable[[], None]) -> int:
    """Bytes that tensors on the CPU take at the peak of a job, above what they took before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        job()
    changes = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    level = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


def fx(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """FX QAT of torch, with its defaults for x86."""
    from torch.ao.quantization import get_default_qat_qconfig_mapping
    from torch.ao.quantization.quantize_fx import prepare_qat_fx

    return prepare_qat_fx(model.train(), get_default_qat_qconfig_mapping("x86"), (images,))


def swap(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """Layers swapped for torch's own with fake quantizers of weights and outputs, nothing folded."""
    from torch.ao.quantization import get_default_qat_qconfig, prepare_qat

    model.qconfig = get_default_qat_qconfig("x86")
    return prepare_qat(model.train())


def ours(model: nn.Module, images: torch.Tensor) -> nn.Module:
    return quaver.quant_aware(model, example_inputs=(images,)).train()


def live(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """The model itself, its layers quantized in their place."""
    quaver.QAT().quantize(model)
    with torch.no_grad():
        model.eval()(images)  # the first forward decides which inputs are never negative
    return model.train()


QUANTIZED = {"qat": ours, "live": live, "fx": fx, "swap": swap}


def make(name: str, kind: str, options: object) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, float or quantized, and a batch for it."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    labels = torch.randint(0, 1000, (options.batch,), device=device)
    model = build(name, num_classes=1000, image_size=options.size).to(device)
    if device.type == "cuda":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return (model if kind == "float" else QUANTIZED[kind](model, images[:2]).to(device)), images, labels


def prepared(model: nn.Module, kind: str, mode: str) -> Callable[..., torch.Tensor]:
    """The model as it is trained in a mode; the float model with the compiler's own settings, ours with ours."""
    if mode in ("eager", "expressions", "recorded"):
        return model
    if kind == "float":
        return torch.compile(model, mode="reduce-overhead" if mode == "graphs" else "default")
    return compile_training(model, cuda_graphs=mode == "graphs")


def several(job: Callable[[], None], times: int) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(times):
            job()

    return turn


def measure(name: str, mode: str, who: str, options: object) -> dict[str, object]:
    """One row: a model's steps, float and quantized, taking turns; each alone on the accelerator for its memory."""
    cuda = options.device == "cuda"
    torch._dynamo.reset()
    if options.precision != "bf16":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    gc.collect()  # what a model before left behind is no part of this one
    jobs, memory, start_up = {}, {}, {}
    resident = torch.cuda.memory_allocated() / 2**20 if cuda else 0.0
    for kind in ("float", who):
        model, images, labels = make(name, "float" if kind == "float" else kind, options)
        begin = time.perf_counter()
        jobs[kind] = step(model, prepared(model, kind, mode), images, labels, mode, options.precision == "bf16")
        for _ in range(WARM_UP if cuda else 1):
            jobs[kind]()
        if cuda:
            torch.cuda.synchronize()
        start_up[kind] = time.perf_counter() - begin
        if cuda or options.memory:
            memory[kind] = peak_memory(jobs[kind], model, cuda) - resident
        if cuda:
            resident = torch.cuda.memory_allocated() / 2**20  # the float model stays while the other is measured
    row: dict[str, object] = {"model": name, "mode": mode, "who": who, "precision": options.precision}
    if not options.memory:
        row |= timed(jobs, who, options) | {"float start-up s": start_up["float"], "qat start-up s": start_up[who]}
    if memory:
        row |= {"float MiB": memory["float"], "qat MiB": memory[who], "memory": memory[who] / memory["float"]}
    return row


def timed(jobs: dict[str, Callable[[], None]], who: str, options: object) -> dict[str, object]:
    """Milliseconds of a step, float and quantized, taking turns."""
    cuda = options.device == "cuda"
    steps = 10 if cuda else 1
    turns = {kind: several(job, steps) for kind, job in jobs.items()}
    turn = interleaved(turns, options.rounds, 5 if steps == 1 else 1, torch.cuda.synchronize if cuda else (lambda: None))
    times = {kind: seconds / steps for kind, seconds in turn.items()}
    return {"float ms": times["float"] * 1e3, "qat ms": times[who] * 1e3, "qat / float": times[who] / times["float"]}


def main() -> None:
    defaults = {"batch": 16, "size": 128, "rounds": 15, "models": "MobileNetV1,ResNet18", "modes": "eager,compiled"}
    options = arguments(__doc__, device="cpu", precision="", peers="", live=False, memory=False, **defaults)
    options.precision = options.precision or ("bf16" if options.device == "cuda" else "fp32")
    ways = [(mode, "live" if options.live else "qat") for mode in options.modes.split(",")]
    ways += [("eager", peer) for peer in options.peers.split(",") if peer]
    rows: Rows = []
    for name in options.models.split(","):
        for mode, who in ways:
            rows.append(measure(name, mode, who, options))
            print(rows[-1], flush=True)
    where = f"{options.device}, batch {options.batch}, {options.size} x {options.size}"
    report(f"QAT step over float step, {where}", rows, options.json)


if __name__ == "__main__":
    main()
