"""Which real architectures go float → QAT → int8 untouched?

    python benchmarks/corpus.py --workers 16 --json corpus.json

Every torchvision classifier, and of each timm family (a module of timm.models) its smallest model, with random weights:
capture, quant_aware with no config, two training steps, convert. A model passes if the frozen program gives the bits of
the trained one and the int8 program those of the frozen one. Needs torchvision and timm; neither is needed to use Quaver.
"""

import argparse
import json
import os
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

WEIGHTED = ("conv1d", "conv2d", "depthwise_conv2d", "conv2d_transpose", "mul")


def torchvision_names() -> list[str]:
    import torchvision.models as zoo

    return [f"torchvision/{name}" for name in zoo.list_models(module=zoo)]


def timm_names() -> list[str]:
    """The smallest model of each family, judged by its parameters on the meta device."""
    import timm
    import torch

    chosen = []
    for family in timm.list_modules():
        sizes = {}
        for name in timm.list_models(module=family):
            try:
                with torch.device("meta"):
                    model = timm.create_model(name)
            except Exception:  # some cannot be built without memory; another of the family can
                continue
            sizes[name] = sum(parameter.numel() for parameter in model.parameters())
        names = sorted(sizes, key=sizes.__getitem__) or timm.list_models(module=family)[:1]
        chosen += [f"timm/{family}/{names[0]}"] if names else []
    return chosen


def build(name: str):
    library, *_, model = name.split("/")
    if library == "torchvision":
        import torchvision.models as zoo

        return zoo.get_model(model, weights=None), (3, *INPUT_SIZES.get(model, (224, 224)))
    import timm

    made = timm.create_model(model)
    return made, made.default_cfg["input_size"]


INPUT_SIZES = {"inception_v3": (299, 299)}


def try_model(name: str) -> dict[str, object]:
    import torch

    import quaver
    from quaver.program.reason import ONLY_IN_TRAINING

    torch.set_num_threads(1)
    torch.manual_seed(0)
    start, stage = time.perf_counter(), "build"
    row: dict[str, object] = {"model": name}
    try:
        model, size = build(name)
        images = torch.randn(2, *size)
        stage = "quant_aware"
        qat = quaver.quant_aware(model, example_inputs=(images,)).train()
        stage = "train"
        optimizer = torch.optim.SGD(qat.parameters(), lr=1e-4)
        for _ in range(2):
            outputs = torch.utils._pytree.tree_leaves(qat(images))
            loss = sum(output.float().square().mean() for output in outputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stage = "convert"
        frozen, int8 = quaver.convert(qat.eval(), save_int8=True)
        stage = "compare"
        with torch.no_grad():
            results = [torch.utils._pytree.tree_leaves(program(images))[0] for program in (qat, frozen, int8)]
        weighted = [op for op in int8.ops() if op.type in WEIGHTED and op.why != ONLY_IN_TRAINING]
        row["weighted ops"] = len(weighted)
        row["quantized"] = sum(op.quantized for op in weighted)
        row["reasons"] = dict(Counter(op.reason for op in weighted if not op.quantized))
        row["equal"] = torch.equal(results[0], results[1]) and torch.equal(results[1], results[2])
        row["outcome"] = "ok" if row["equal"] else "differs"
    except Exception as error:  # a survey goes on
        row["outcome"] = f"{stage}: {type(error).__name__}: {str(error)[:300]}"
        row["trace"] = traceback.format_exc()[-1500:]
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def survey(description: str) -> argparse.ArgumentParser:
    """The options of a survey of networks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=480, help="stop after this many seconds")
    parser.add_argument("--json", type=Path)
    return parser


def main() -> None:
    options = survey(__doc__).parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    started, rows = time.monotonic(), []
    with ProcessPoolExecutor(options.workers) as pool:
        timm_job = pool.submit(timm_names)
        jobs = [pool.submit(try_model, name) for name in torchvision_names()]
        jobs += [pool.submit(try_model, name) for name in timm_job.result()]
        try:
            for job in as_completed(jobs, timeout=options.limit - (time.monotonic() - started)):
                rows.append(job.result())
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1) + "\n")
        except TimeoutError:
            for process in pool._processes.values():
                process.kill()
    for library in ("torchvision", "timm"):
        own = [row for row in rows if str(row["model"]).startswith(library)]
        done = [row for row in own if row["outcome"] == "ok"]
        print(f"{library}: {len(done)} of {len(own)} bit-equal, {sum(1 for job in jobs) - len(rows)} jobs unfinished in all")
        for row in own:
            if row["outcome"] != "ok":
                print(f"  {row['model']}: {row['outcome']}")


if __name__ == "__main__":
    main()
