"""Folders of runs for the report: a small net, really quantized and analysed; the engine's records are written by hand."""

import json
import math

import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.program import OpRecord
from quaver.program.outline import OpOutline, Outline
from quaver.report import Run

EVIL = "<script>alert(1)</script>"


class Residual(nn.Module):
    """A residual block, and a layer that stays float."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = F.relu(self.block(x) + x)
        return self.head(x.mean((2, 3)))


def write_run(folder, bits=8, seed=0):
    torch.manual_seed(seed)
    batches = [(torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))) for _ in range(2)]
    config = {"weight_bits": bits, "not_quant_pattern": ["head"]}
    qat = quaver.quant_aware(Residual(), config, example_inputs=(batches[0][0],)).train()
    for images, _ in batches:
        qat(images)
    quaver.analyze(qat.eval(), batches, sensitivity_images=16, target_drop=1.0).save(folder / "analysis.json")
    quaver.save(quaver.convert(qat, save_int8=True)[1], folder / "int8")
    figures = {
        "fp32_top1": 0.9,
        "int8_top1": 0.895,
        "deployed_top1": 0.8949,
        "fp32_bytes": 4_000_000,
        "int8_bytes": 1_000_000,
        "test_images": 1234,
    }
    layers = [
        {"ops": ["stem"], "precision": "u8", "kernel": "gemm", "microseconds": 12.5, "share": 0.25},
        {"ops": ["head"], "precision": "f32", "kernel": "jit", "microseconds": 37.5, "share": 0.75},
    ]
    findings = [{"kind": "float layer", "layer": "head", "why": "it was asked for", "remedy": "asking", "share": 0.75}]
    rows = [
        {"model": name, "engine": "openvino", "batch": 1, "median_ms": ms, "is_float": is_float}
        for name, ms, is_float in (("int8.xml", 0.5, False), ("float.xml", 1.5, True))
    ]
    bench = {
        "cpu": {"words": "Some CPU: AVX2"},
        "versions": {"openvino": "1.2.3"},
        "latencies": rows,
        "footprints": [],
        "profiles": [{"is_float": False, "layers": layers, "findings": findings}],
    }
    verify = {
        "agreement": 0.999,
        "integers_equal": 0.99,
        "accuracy_simulated": 0.895,
        "accuracy_deployed": 0.8949,
        "images": 1234,
        "engine": "openvino",
        "layers": [{"name": "stem", "size": 1000, "differ": 10, "largest": 1}],
    }
    metrics = [
        {"phase": phase, "epoch": step // 5, "step": step, "loss": math.exp(-step / 5), "lr": 0.1}
        for phase in ("train", "quantize")
        for step in range(10)
    ]
    metrics.insert(5, {"phase": "train", "epoch": 0, "step": 4, "evaluation": {"top1": 0.5}})
    metrics.append({"phase": "quantize", "epoch": 1, "step": 9, "evaluation": {"top1": 0.9}})
    for name, record in (("report", figures), ("bench", bench), ("verify", verify)):
        (folder / f"{name}.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in metrics))
    return folder


def deep_run(path, layers):
    """A run with as many layers, without any file."""
    names = [f"block{index // 4}.layer{index % 4}" for index in range(layers)]
    reads = [
        ("x",) if not index else (names[index - 1], names[index - 4]) if index % 4 == 0 else (names[index - 1],)
        for index in range(layers)
    ]
    records = tuple(
        OpRecord(name, "conv2d", name, "net.py:1", True, None, {"input": [float(i)]}) for i, name in enumerate(names)
    )
    ops = tuple(OpOutline(name, "conv2d", read) for name, read in zip(names, reads, strict=True))
    return Run(path, program=Outline("int8", (), {"x": (None, 3, 8, 8)}, ops, records), program_folder="int8")
