"""Is a file exact on every kind of x86 core? Public architectures on OpenVINO, kept to one instruction set after the other.

    python benchmarks/corpus_exact.py --workers 16 --json exact.json
    python benchmarks/corpus_exact.py --names torchvision/shufflenet_v2_x0_5 --isas AVX2,AVX512_CORE_VNNI,AVX512_CORE_AMX

The networks of `corpus.py`, with random weights and two training steps, converted and exported once; then each ISA runs the
file in a process of its own (oneDNN looks at ONEDNN_MAX_CPU_ISA once). A level that the machine does not have has no effect:
read the figures of AVX512_CORE_AMX on a machine with AMX only. For the first tensor that differs the row holds which kernel
made it. Needs torchvision, or timm on the path.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from corpus import libraries, timm_names, torchvision_names, trained

ISAS = "AVX2,AVX512_CORE_VNNI,AVX512_CORE_AMX"


def make(name: str, folder: Path) -> None:
    """Export a network, and keep the program beside it."""
    import quaver

    qat, _ = trained(name, "openvino")
    frozen = quaver.convert(qat)
    quaver.save(frozen, folder / "program")
    quaver.export(frozen, folder / "engine", target="openvino")


def compare(folder: Path) -> dict[str, object]:
    """The file against the program, on this process's instruction set."""
    import numpy as np
    import torch

    import quaver
    from quaver.export.integers import Inside, simulation

    program = quaver.load(folder / "program")
    (file,) = (folder / "engine").glob("*.xml")
    torch.manual_seed(1)
    run = quaver.runtime.load(file)
    images = torch.randn(*(2 if size is None else size for size in run.inputs[0].shape))
    ours = simulation(program)
    outputs, integers = ours.run(images)
    inside = Inside.of(file, ours.scales)
    _, theirs = inside.run(images.numpy())
    got = run(images.numpy())
    got = got[0] if isinstance(got, tuple) else got
    expected = outputs[0].numpy()
    noise = float(np.square(expected - got).sum())
    rows = [
        {
            "name": name,
            "size": whole.size,
            "differ": int((integers[name] != whole).sum()),
            "largest": int(np.abs(integers[name] - whole).max()),
        }
        for name, whole in theirs.items()
    ]
    first = next((row for row in rows if row["differ"]), None)
    return {
        "equal": bool((expected == got).all()),
        "inside_equal": first is None,
        "decibel": 10 * float(np.log10(max(float(np.square(expected).sum()), 1e-30) / noise)) if noise else None,
        "first": first,
        "differing": sum(1 for row in rows if row["differ"]),
        "tensors": len(rows),
        "kernels": kernels(inside, first["name"] if first else None),
    }


def kernels(inside: object, tensor: str | None) -> list[str]:
    """What the engine runs around a tensor."""
    from quaver.engines.openvino.runner import core

    found = []
    for part in inside.parts:
        if tensor not in part.places:
            continue
        model = core().compile_model(part.run.model, "CPU", part.run.options).get_runtime_model()
        for op in model.get_ordered_ops():
            info = {key: str(value.astype(str)) for key, value in op.get_rt_info().items()}
            if tensor in info.get("originalLayersNames", ""):
                made = [info.get(key) for key in ("layerType", "primitiveType", "outputPrecisions")]
                found.append(f"{made} {op.get_output_partial_shape(0)} [{info['originalLayersNames']}]")
    return found[:12]


def one(name: str, isas: list[str], seconds: float) -> dict[str, object]:
    row: dict[str, object] = {"model": name}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for word in ("make", *isas):
            env = os.environ | {"OMP_NUM_THREADS": "1"} | ({} if word == "make" else {"ONEDNN_MAX_CPU_ISA": word})
            command = [sys.executable, __file__, "--names", name, "--step", word, "--folder", folder]
            try:
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds)
            except subprocess.TimeoutExpired:
                row[word] = "time"
                break
            lines = done.stdout.strip().splitlines()
            if done.returncode:
                row[word] = f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
                if word == "make":
                    break
            elif word != "make":
                row[word] = json.loads(lines[-1])
    row["seconds"] = round(time.monotonic() - started, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=480, help="stop after this many seconds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--names", default="")
    parser.add_argument("--isas", default=ISAS)
    parser.add_argument("--step", default="")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    libraries()
    if options.step == "make":
        return make(options.names, options.folder)
    if options.step:
        print(json.dumps(compare(options.folder)))
        return None
    started, rows = time.monotonic(), []
    names = options.names.split(",") if options.names else [*torchvision_names(), *timm_names()]
    pool = ThreadPoolExecutor(options.workers)
    jobs = [pool.submit(one, name, options.isas.split(","), options.limit) for name in names]
    try:
        for job in as_completed(jobs, timeout=options.limit - (time.monotonic() - started)):
            rows.append(job.result())
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    except TimeoutError:
        pass
    for isa in options.isas.split(","):
        done = [row[isa] for row in rows if isinstance(row.get(isa), dict)]
        print(f"{isa}: {sum(one['equal'] for one in done)} of {len(done)} exact, of {len(names)} asked for")
    sys.stdout.flush()
    os._exit(0)  # jobs that are still running have had their time


if __name__ == "__main__":
    main()
