"""Every reader of files: what it is given when all is well, how that is damaged, and how it is read.

Each `Reader` writes whole files once, damages a copy of one of them for each case, and reads it as the commands do, down to
running what was read.
"""

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torch import nn

import quaver
from fuzz.mutations import INF, NAN, changed_bytes, changed_value, nested
from quaver.config.load import load_recipe
from quaver.data import open_dataset, write_shapes
from quaver.data.binary import BinaryWriter, load_binary
from quaver.data.image_list import read_image_list, refuse_missing
from quaver.data.images import read_image
from quaver.errors import StorageError
from quaver.experiment.start import start
from quaver.models import load_weights
from quaver.program.outline import outline
from quaver.report import gather, page
from quaver.runtime.artefact import checked, checksum
from quaver.training.checkpoint import Checkpoints
from quaver.training.trainer import Trainer
from runs import Residual, write_run
from tiny import Noise, Tiny, tiny_job, tiny_program


@dataclass(frozen=True)
class Reader:
    """How whole files are written into a folder, how a folder is damaged, and how it is read."""

    write: Callable[[Path], None]
    damage: Callable[[Random, Path], None]
    read: Callable[[Path], Any]


def one_of(random: Random, folder: Path, *patterns: str) -> Path:
    """One of the files in a folder."""
    return random.choice(
        [path for pattern in patterns or ("**/*",) for path in sorted(folder.glob(pattern)) if path.is_file()]
    )


def damage_bytes(random: Random, folder: Path, *patterns: str) -> None:
    """Change the bytes of one file."""
    path = one_of(random, folder, *patterns)
    path.write_bytes(changed_bytes(random, path.read_bytes()))


def plain(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


def damage_sealed(random: Random, path: Path, key: str) -> None:
    """Change a value of a sealed file and mend its checksum, as someone does who edits by hand."""
    whole = json.loads(path.read_text())
    whole[key] = changed_value(random, whole[key])
    whole["sha256"] = hashlib.sha256(plain(whole[key]).encode()).hexdigest()
    path.write_text(plain(whole))


def damage_tensors(random: Random, path: Path, record: Path, key: str, name: str) -> None:
    """Change a file of tensors, and mend the checksum of it that its record holds."""
    content = changed_bytes(random, path.read_bytes()) if random.random() < 0.5 else other_tensors(random, path)
    path.write_bytes(content)
    whole = json.loads(record.read_text())
    whole[key][name] = hashlib.sha256(content).hexdigest()
    whole["sha256"] = hashlib.sha256(plain(whole[key]).encode()).hexdigest()
    record.write_text(plain(whole))


def other_tensors(random: Random, path: Path) -> bytes:
    """A file of tensors in which one is of another shape, of another dtype, full of NaN, or gone."""
    import safetensors.torch

    tensors = safetensors.torch.load_file(path)
    name = random.choice(sorted(tensors))
    old = tensors[name]
    change = random.randrange(7)
    if change == 0:
        del tensors[name]
    else:
        tensors[name] = (
            old.flatten()[:-1].clone(),
            torch.zeros(0),
            old.to(random.choice([torch.int64, torch.bool, torch.float16, torch.complex64, torch.uint8])),
            torch.full(old.shape, random.choice([NAN, INF, -1.0])),
            torch.zeros((*old.shape, 2)),
            torch.randn(3, 5),
        )[change - 1]
    return safetensors.torch.save(tensors)


# data


def write_pickles(folder: Path) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (3, 3072), dtype=np.uint8)
    for protocol in (0, 2, 3, 4, 5):
        table = {b"data": pixels, b"labels": [1, 2, 3], b"filenames": [b"a", b"b", b"c"], b"batch_label": b"one"}
        (folder / f"test_batch_{protocol}").write_bytes(pickle.dumps(table, protocol))
    (folder / "test_batch.bin").write_bytes(b"\1" + pixels[0].tobytes())


def damage_pickle(random: Random, folder: Path) -> None:
    """One of the files, all others taken away; a number of its head changed, or bytes anywhere."""
    chosen = one_of(random, folder, "test_batch*")
    for path in folder.iterdir():
        if path != chosen:
            path.unlink()
    content = chosen.read_bytes()
    if random.random() < 0.7:  # where the instructions are, not the pixels
        zone = min(400, len(content)) if random.random() < 0.7 else 60
        head, tail = (content[:zone], content[zone:]) if random.random() < 0.7 else (content[:-zone], content[-zone:])
        parts = (changed_bytes(random, head), tail) if random.random() < 0.5 else (head, changed_bytes(random, tail))
        content = b"".join(parts)
    else:
        content = changed_bytes(random, content)
    chosen.unlink()
    (folder / ("test_batch.bin" if chosen.suffix else "test_batch")).write_bytes(content)


def read_pickle(folder: Path) -> None:
    data = open_dataset("cifar10", "val", data_dir=folder)
    data.batch(range(len(data)))


def write_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    for ending in ("png", "jpg", "bmp", "gif", "tif", "webp", "ppm"):
        image.save(folder / f"rgb.{ending}")
        image.convert("L").save(folder / f"grey.{ending}")
    image.convert("P").save(folder / "palette.png")
    image.convert("CMYK").save(folder / "cmyk.jpg")
    image.convert("RGBA").save(folder / "alpha.webp")
    image.save(folder / "deflate.tif", compression="tiff_deflate")


def damage_image(random: Random, folder: Path) -> None:
    chosen = one_of(random, folder)
    content = changed_bytes(random, chosen.read_bytes())
    for path in folder.iterdir():
        path.unlink()
    chosen.write_bytes(content)


def read_images(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        assert np.isfinite(read_image(path, 32)).all()


def write_binaries(folder: Path) -> None:
    with BinaryWriter(folder / "data.bin", image_shape=(3, 5, 4), classes=7, layout="header") as writer:
        for label in range(5):
            writer.add(np.full((3, 5, 4), label, np.float32), label)


def damage_binary(random: Random, folder: Path) -> None:
    path = folder / "data.bin"
    content = path.read_bytes()
    part = random.choice([slice(0, 48), slice(48, -40), slice(-40, None), slice(0, None)])
    begin, end, _ = part.indices(len(content))
    path.write_bytes(content[:begin] + changed_bytes(random, content[begin:end]) + content[end:])


def read_binary(folder: Path) -> None:
    data = load_binary(folder / "data.bin")
    for images, labels in data.batches(2):
        assert len(images) == len(labels)


def write_lists(folder: Path) -> None:
    (folder / "train").mkdir()
    for name in ("one.png", "two words.png", "drei ß.png"):
        Image.new("RGB", (8, 8)).save(folder / "train" / name)
    text = "train/one.png 0\ntrain/two words.png 1\n\ntrain/drei ß.png 2\n"
    (folder / "train_list.txt").write_text(text, "utf-8")
    (folder / "val_list.txt").write_text(text.split("\n")[0], "utf-8")


def read_lists(folder: Path) -> None:
    images = read_image_list(folder / "train_list.txt", 1000)
    refuse_missing(folder, images)
    data = open_dataset("ilsvrc", "train", data_dir=folder, image_size=8)
    data.batch(range(min(len(data), 3)))


def write_voc(folder: Path) -> None:
    write_shapes(folder, train=2, val=1, size=32)


ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True))
    + "]><annotation><object><name>&i;</name></object></annotation>"
)
ODD_XML = [
    ENTITIES,
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation><object><name>&x;</name></object></annotation>',
    "<a>" * 100_000,
    "<a>" * 5000 + "</a>" * 5000,
    "<annotation/>",
    "",
]


def damage_voc(random: Random, folder: Path) -> None:
    """Bytes anywhere, another encoding, an odd number in a box, or XML that grows."""
    path = one_of(random, folder, "**/*.xml", "**/*.xml", "**/*.txt")
    text, how = path.read_text("utf-8"), random.random()
    if path.suffix == ".xml" and how < 0.1:
        path.write_text(random.choice(ODD_XML))
    elif how < 0.3:
        path.write_bytes(f"{text}é".encode(random.choice(["utf-16", "latin-1", "utf-32", "cp037", "utf-8-sig"])))
    elif how < 0.6 and path.suffix == ".xml":
        odd = random.choice(["inf", "nan", "-1e400", "1e39", "0x10", "1_0", "", " 7 ", "٣", "-5", "1" * 5000])
        numbers = [word for word in text.replace(">", "<").split("<") if word.strip().isdigit()]
        path.write_text(text.replace(f">{random.choice(numbers)}<", f">{odd}<", random.choice([1, 99])), "utf-8")
    else:
        damage_bytes(random, folder, "**/*.xml", "**/*.txt", "**/*.jpg", "**/*.png")


def read_voc(folder: Path) -> None:
    for split in ("train", "val"):
        data = open_dataset("voc", split, data_dir=folder, image_size=32, augment=split == "train")
        for _, targets in (data.batch([index]) for index in range(len(data))):
            assert all(np.isfinite(target.boxes).all() for target in targets)


# recipes

RECIPE = {
    "model": "MobileNetV1",
    "dataset": "digits",
    "batch_size": 32,
    "seed": 1,
    "train": {"num_epochs": 1, "lr": 0.1, "lr_strategy": "cosine_decay"},
    "quantize": {"num_epochs": 2, "lr": 0.01, "weight_bits": 8, "not_quant_pattern": ["skip"], "distill": 0.5},
}
ODD_YAML = [
    "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "train: &t {num_epochs: 1, <<: *t}\n",
    "train: &t [*t]\n",
    "".join(f"key{number}: {number}\n" for number in range(20_000)),
    "train:\n" + "".join(f"  key{number}: {number}\n" for number in range(20_000)),
    "[" * 5000,
    "{a: " * 3000,
    "\n".join("  " * depth + "a:" for depth in range(2000)),
    "- " * 3000,
    "lr: 2026-13-45\n",
    "lr: 2026-02-30 25:61:61\n",
    "seed: 0b12\n",
    "seed: 1:99:99\n",
    "seed: " + "1" * 5000 + "\n",
    "seed: 0x" + "f" * 20_000 + "\n",
    "train: {lr: .nan, momentum_rate: .inf}\n",
    "seed: !!binary '*'\n",
    "seed: !!python/object/apply:os.system [ls]\n",
    "seed: !!timestamp words\n",
    "seed: !!int words\n",
    "seed: !!float words\n",
    "seed: !!bool words\n",
    "? [a, b]\n: 3\n",
    "? {a: b}\n: 3\n",
    "no: yes\non: off\n~: ~\n1: 2\n2.5: 3\n2026-01-01: 4\n",
    "train: {no: yes, 1: 2}\n",
    "train: !!set {a, b}\nquantize: !!omap [a: 1]\n",
    "%YAML 9.9\n---\na: 1\n",
    "a: 1\n---\nb: 2\n",
    "\x00",
    "\ufeffmodel: MobileNetV1\n",
    "model: \x07\n",
    "<<: 3\n",
    "train: {<<: [1, 2]}\n",
    "=: 3\n",
    "model: " + "x" * 2_000_000 + "\n",
    "model: 'MobileNetV1\n",
]


def write_recipe(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))


def damage_recipe(random: Random, folder: Path) -> None:
    path, how = folder / "recipe.yaml", random.random()
    if how < 0.2:
        path.write_text(random.choice(ODD_YAML), "utf-8")
    elif how < 0.7:
        try:
            path.write_text(yaml.safe_dump(changed_value(random, RECIPE), allow_unicode=True), "utf-8", "surrogatepass")
        except (yaml.YAMLError, ValueError):  # a number too long to be written
            damage_bytes(random, folder)
    else:
        damage_bytes(random, folder)


def read_recipe(folder: Path) -> None:
    for command in ("train", "quantize"):
        load_recipe(folder / "recipe.yaml", {}, command).record()


# weights, programs, checkpoints


def write_weights(folder: Path) -> None:
    torch.manual_seed(0)
    torch.save(Tiny().state_dict(), folder / "new.pth")
    torch.save({"state_dict": Tiny().state_dict(), "epoch": 3}, folder / "wrapped.pth")
    torch.save(Tiny().state_dict(), folder / "old.pth", _use_new_zipfile_serialization=False)
    import safetensors.torch

    safetensors.torch.save_file(Tiny().state_dict(), folder / "new.safetensors")


def odd_tensors(like: torch.Tensor) -> list[Any]:
    """What may stand in the place of a tensor."""
    return [
        like.to(torch.complex64),
        like.to(torch.bool),
        like.to(torch.int8),
        like.to(torch.int64),
        like.to(torch.float16),
        like.to(torch.bfloat16),
        like.to(torch.float8_e4m3fn),
        like.to("meta"),
        like.to_sparse(),
        torch.quantize_per_tensor(like.float(), 0.1, 0, torch.qint8),
        like.expand(2, *like.shape),
        like.flatten()[:1].expand(like.shape) if like.dim() else like,
        torch.full_like(like, NAN) if like.is_floating_point() else like,
        torch.full_like(like, INF) if like.is_floating_point() else like,
        torch.full_like(like, -1.0) if like.is_floating_point() else like,
        nn.Parameter(like.float()),
        like.numpy(),
        None,
        3,
        "words",
        [like],
        {"x": like},
        torch.zeros(0),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    ]


def damage_weights(random: Random, folder: Path) -> None:
    if random.random() < 0.5:
        damage_bytes(random, folder)
        return
    torch.manual_seed(random.randrange(1000))
    state: dict[Any, Any] = dict(Tiny().state_dict())
    name = random.choice(sorted(state))
    state[name] = random.choice(odd_tensors(state[name]))
    if random.random() < 0.3:
        state[random.choice([3, "x", ("a", 1), "module.x", ""])] = state.pop(name)
    content = random.choice([state, state, {"model": state}, {"state_dict": {"model": state}}, [state], state.get(name, 1)])
    try:
        torch.save(content, folder / "new.pth")
    except (RuntimeError, NotImplementedError):  # what torch itself cannot write
        damage_bytes(random, folder)


def read_weights(folder: Path) -> None:
    """Every file that may have been changed, into a model that is then run."""
    problems = []
    for path in sorted(folder.iterdir()):
        model = Tiny().eval()
        try:
            load_weights(model, path)
        except StorageError as error:
            problems.append(error)
            continue
        assert torch.isfinite(model(torch.zeros(2, 3, 8, 8))).all()
    if problems:
        raise problems[0]


def write_programs(folder: Path) -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 8, 8)
    qat = quaver.quant_aware(Residual(), {"weight_preprocess_type": "PACT"}, example_inputs=(images,)).train()
    qat(images)
    frozen, int8 = quaver.convert(qat.eval(), save_int8=True)
    other = quaver.quant_aware(
        Residual(),
        {"activation_quantize_type": "range_abs_max", "window_size": 5, "weight_quantize_type": "abs_max"},
        example_inputs=(images,),
    ).train()
    other(images)
    programs = {
        "float": quaver.capture(Residual(), (images,)),
        "trained": qat,
        "ranges": other.eval(),
        "frozen": frozen,
        "int8": int8,
    }
    for name, program in programs.items():
        quaver.save(program, folder / name)


def damage_program(random: Random, folder: Path) -> None:
    place = random.choice(sorted(folder.iterdir()))
    for other in folder.iterdir():
        if other != place:
            for path in other.iterdir():
                path.unlink()
            other.rmdir()
    (weights,) = place.glob("weights-*.safetensors")
    how = random.random()
    if how < 0.15:
        damage_bytes(random, place)
    elif how < 0.8:
        damage_sealed(random, place / "program.json", "program")
    else:
        damage_tensors(random, weights, place / "program.json", "program", "weights_sha256")


def read_program(folder: Path) -> None:
    (place,) = folder.iterdir()
    program = quaver.load(place)
    args, kwargs = program.signature.example()
    with torch.no_grad():
        program.clone(for_test=True)(*args, **kwargs)
    if program.stage.trains and not program.for_test:
        program.train()(*args, **kwargs)
    repr(program)
    program.ops()
    outline(place)


def write_checkpoints(folder: Path) -> None:
    job = tiny_job(tiny_program(), checkpoints=Checkpoints(folder), checkpoint_period=3, num_epochs=1, ema=0.9)
    Trainer(job).run()


def damage_checkpoint(random: Random, folder: Path) -> None:
    newest = sorted(folder.glob("*.json"))[-1]
    how = random.random()
    if how < 0.15:
        damage_bytes(random, folder, newest.name)
    elif how < 0.75:
        damage_sealed(random, newest, "checkpoint")
    else:
        name = json.loads(newest.read_text())["checkpoint"]["tensors"]
        damage_tensors(random, folder / name, newest, "checkpoint", "tensors_sha256")
    for path in sorted(folder.glob("*.json"))[:-1]:
        path.unlink()


def read_checkpoint(folder: Path) -> None:
    checkpoint = Checkpoints(folder).newest(lambda words: None)
    if checkpoint is not None:
        job = tiny_job(tiny_program(), num_epochs=2, ema=0.9)
        Trainer(job).run(checkpoint)


# what a run leaves


def write_started(folder: Path) -> None:
    start("quantize", None, {"model_save_dir": str(folder / "run"), "dataset": "digits", "model": "MobileNetV1"}, "", print)


def damage_started(random: Random, folder: Path) -> None:
    if random.random() < 0.2:
        damage_bytes(random, folder)
    else:
        damage_sealed(random, folder / "run" / "run.json", "run")


def read_started(folder: Path) -> None:
    start("quantize", None, {}, str(folder / "run"), lambda words: None)


def damage_plain(random: Random, folder: Path, *patterns: str) -> None:
    """Change a JSON file without a checksum, or one of lines."""
    path = one_of(random, folder, *patterns)
    if path.suffix == ".safetensors" or random.random() < 0.25:
        damage_bytes(random, folder, *patterns)
    elif path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        at = random.randrange(len(lines))
        lines[at] = json.dumps(changed_value(random, json.loads(lines[at])))
        path.write_text("\n".join(lines))
    elif path.name == "program.json":
        damage_sealed(random, path, "program")
    else:
        path.write_text(random.choice([json.dumps, plain])(changed_value(random, json.loads(path.read_text()))))


def write_analysis(folder: Path) -> None:
    torch.manual_seed(0)
    images = torch.randn(6, 3, 8, 8)
    quaver.analyze(tiny_program(quantized=False).eval(), [(images, torch.zeros(6).long())], sensitivity_images=6).save(
        folder / "analysis.json"
    )


def read_analysis(folder: Path) -> None:
    analysis = quaver.Analysis.load(folder / "analysis.json")
    program = tiny_program()
    try:
        analysis.initialise(program)
    except UserWarning:
        return
    analysis.thresholds()
    repr(analysis)
    (images, _), *_ = Noise(1).epoch(0)
    program.eval()(images)


def write_report(folder: Path) -> None:
    write_run(folder)


def read_report(folder: Path) -> None:
    run = gather(folder)
    page([run]).encode()
    if run.troubles:
        raise StorageError(run.troubles[0])


def write_artefact(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"not read here")
    digest = hashlib.sha256(b"not read here").hexdigest()
    content = {"files": {"model.onnx": digest}, "ops": [{"name": "a"}], "quaver": "1", "engine": {"name": "onnx"}}
    (folder / "model.onnx.json").write_text(json.dumps(content | {"checksum": checksum(content)}))


def damage_artefact(random: Random, folder: Path) -> None:
    path = folder / "model.onnx.json"
    content = json.loads(path.read_text())
    content.pop("checksum")
    how = random.random()
    if how < 0.25:
        damage_bytes(random, folder)
        return
    content = {"files": nested(random.choice([90, 300]))} if how < 0.3 else changed_value(random, content)
    path.write_text(json.dumps(content | {"checksum": checksum(content)}))


def read_artefact(folder: Path) -> None:
    checked(folder / "model.onnx")


READERS = {
    "cifar10": Reader(write_pickles, damage_pickle, read_pickle),
    "images": Reader(write_images, damage_image, read_images),
    "binary": Reader(write_binaries, damage_binary, read_binary),
    "lists": Reader(write_lists, partial(damage_bytes), read_lists),
    "voc": Reader(write_voc, damage_voc, read_voc),
    "recipe": Reader(write_recipe, damage_recipe, read_recipe),
    "weights": Reader(write_weights, damage_weights, read_weights),
    "program": Reader(write_programs, damage_program, read_program),
    "checkpoint": Reader(write_checkpoints, damage_checkpoint, read_checkpoint),
    "run": Reader(write_started, damage_started, read_started),
    "analysis": Reader(write_analysis, damage_plain, read_analysis),
    "report": Reader(write_report, damage_plain, read_report),
    "artefact": Reader(write_artefact, damage_artefact, read_artefact),
}
