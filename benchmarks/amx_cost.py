"""What do files that are the same on AMX cost there? Signed tensors written from zero, and as OpenVINO would choose.

    OMP_NUM_THREADS=1 python benchmarks/amx_cost.py          on a processor with AMX; elsewhere both run the same kernels

Networks of the zoo with random weights at 224 x 224, one thread, both files by turns, medians in milliseconds.
"""

import tempfile
import warnings

import numpy as np
import torch

import quaver
from measure import Rows, arguments, interleaved, report
from quaver.models import build

warnings.filterwarnings("ignore")

WAYS = {"from zero": True, "OpenVINO's choice": False}


def main() -> None:
    options = arguments(__doc__, models="mobilenet_v2,mobilenet_v3_small", batches="1,16", rounds=40)
    rows: Rows = []
    for name in options.models.split(","):
        torch.manual_seed(0)
        images = torch.randn(2, 3, 224, 224)
        qat = quaver.quant_aware(build(name, num_classes=1000), example_inputs=(images,)).train()
        for _ in range(2):
            qat(images)
        frozen = quaver.convert(qat.eval())
        with tempfile.TemporaryDirectory() as folder:
            files = {way: quaver.export(frozen, f"{folder}/{same}", same_on_amx=same) for way, same in WAYS.items()}
            for batch in map(int, options.batches.split(",")):
                given = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
                runs = {way: quaver.runtime.load(file) for way, file in files.items()}
                jobs = {way: lambda run=run, given=given: run(given) for way, run in runs.items()}
                medians = interleaved(jobs, max(options.rounds // batch, 7), 3, lambda: None)
                rows.append({"model": name, "batch": batch} | {way: 1e3 * took for way, took in medians.items()})
    report("Milliseconds, signed tensors written two ways", rows, options.json)


if __name__ == "__main__":
    main()
