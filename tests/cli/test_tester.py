import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from quaver.cli.main import app
from quaver.data.binary import BinaryWriter

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def model(path, image=(1, 2, 4), batch="N", outputs=("logits",), step=None):
    """A model whose logits are the pixels themselves, rounded to int8 with a step if there is one."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    classes = int(np.prod(image))
    constants = []
    nodes = [make.make_node("Flatten", ["x"], ["flat" if step else "logits"])]
    if step:
        constants = [
            onnx.numpy_helper.from_array(np.float32(step), "step"),
            onnx.numpy_helper.from_array(np.int8(0), "zero"),
        ]
        nodes += [
            make.make_node("QuantizeLinear", ["flat", "step", "zero"], ["integers"]),
            make.make_node("DequantizeLinear", ["integers", "step", "zero"], ["logits"]),
        ]
    nodes += [make.make_node("Neg", ["logits"], ["negated"])] if "negated" in outputs else []
    nodes += [make.make_node("Relu", ["x"], ["image"])] if "image" in outputs else []
    shapes = {"logits": [batch, classes], "negated": [batch, classes], "image": [batch, *image]}
    graph = make.make_graph(
        nodes,
        "pixels",
        [make.make_tensor_value_info("x", kind, [batch, *image])],
        [make.make_tensor_value_info(name, kind, shapes[name]) for name in outputs],
        constants,
    )
    built = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(built)
    onnx.save(built, path)


def write(path, images, labels, classes=8):
    with BinaryWriter(path, image_shape=images.shape[1:], classes=classes, layout="header") as writer:
        for image, label in zip(images, labels, strict=True):
            writer.add(image, label)


IMAGES = np.random.default_rng(3).standard_normal((23, 1, 2, 4)).astype(np.float32)
LABELS = np.random.default_rng(4).integers(0, 8, 23)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a model and a data file of 23 images in 8 classes."""
    monkeypatch.chdir(tmp_path)
    model("model.onnx")
    write("data.bin", IMAGES, LABELS)
    return tmp_path


def run(*args, model="model.onnx", data="data.bin"):
    return CliRunner().invoke(app, ["test", "--infer_model", model, "--infer_data", data, *args])


def figures(*args, **places):
    done = run(*args, "--json", "figures.json", **places)
    assert done.exit_code == 0, done.output
    with open("figures.json") as file:
        return json.load(file)


def hits(logits, labels, k):
    order = np.argsort(-logits.reshape(len(labels), -1), axis=1, kind="stable")[:, :k]
    return int((order == labels[:, None]).sum())


@pytest.mark.parametrize("batch_size", [1, 2, 5, 22, 23, 24, 1000])
def test_totals_are_exact_whatever_the_batch_size(place, batch_size):
    found = figures("--batch_size", str(batch_size))

    assert (found["hits1"], found["hits5"]) == (hits(IMAGES, LABELS, 1), hits(IMAGES, LABELS, 5))
    assert (found["acc1"], found["acc5"]) == (found["hits1"] / 23, found["hits5"] / 23)
    assert found["images"] == found["timed_images"] == 23
    assert found["batches"] == -(-23 // batch_size)


def test_a_short_last_batch_weighs_as_much_as_it_has_images(place):
    # four right in the first batch of four, none in the last batch of one: 4 of 5, and not the mean of 1 and 0
    images = np.zeros((5, 1, 2, 4), np.float32)
    images[:, 0, 0, 3] = 1
    write("five.bin", images, [3, 3, 3, 3, 7])

    done = run("--batch_size", "4", data="five.bin")

    assert re.findall(r"acc1: ([\d.]+), acc5: ([\d.]+)", done.stdout) == [("1.0000",) * 2, ("0.0000",) * 2, ("0.8000",) * 2]
    assert "4 top-1 hits and 4 top-5 hits in 5 images, 5 timed" in done.stdout


def test_there_is_a_line_for_every_batch(place):
    done = run("--batch_size", "10", "--skip_batch_num", "1")

    expected = r"acc1: \d\.\d{4}, acc5: \d\.\d{4}, latency: \d+\.\d{4} ms/sample, fps: \d+\.\d\d"
    starts = ["batch 1 (warm-up), ", "batch 2, ", "batch 3, ", "total, "]
    lines = done.stdout.splitlines()[2:6]
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * 4
    assert all(re.search(f"^[^,]+, {expected}$", line) for line in lines)


class Clock:
    """A clock that an engine moves: a quarter of a second per image, and much more for the first batch of each size."""

    def __init__(self, monkeypatch):
        self.now, self.sizes = 0.0, []
        monkeypatch.setattr("quaver.cli.test.time.perf_counter", lambda: self.now)

    def engine(self, run):
        def timed(batch):
            self.now += 0.25 * len(batch) + (0 if len(batch) in self.sizes else 100.0)
            self.sizes.append(len(batch))
            return run(batch)

        return timed


@pytest.fixture
def clock(place, monkeypatch):
    import quaver.runtime

    clock = Clock(monkeypatch)
    works = quaver.runtime.Runner.__call__
    monkeypatch.setattr(quaver.runtime.Runner, "__call__", lambda self, batch: clock.engine(lambda x: works(self, x))(batch))
    return clock


def test_warm_up_counts_in_the_accuracy_but_not_in_the_latency(clock):
    found = figures("--batch_size", "10", "--skip_batch_num", "1")

    assert (found["images"], found["timed_images"]) == (23, 13)
    assert found["hits1"] == hits(IMAGES, LABELS, 1)
    assert (found["seconds"], found["latency_ms"], found["fps"]) == (3.25, 250.0, 4.0)


@pytest.mark.parametrize(
    ("batch_size", "batch_num", "sizes"), [(10, 0, {10, 3}), (10, 2, {10}), (10, 1, {10}), (23, 0, {23}), (1000, 0, {23})]
)
def test_the_engine_compiles_for_every_size_of_batch_before_the_clock_starts(clock, batch_size, batch_num, sizes):
    found = figures("--batch_size", str(batch_size), "--batch_num", str(batch_num))

    assert set(clock.sizes) == sizes
    assert (found["latency_ms"], found["fps"]) == (250.0, 4.0)
    assert found["seconds"] == 0.25 * found["timed_images"]


def test_without_warm_up_the_first_batch_counts_too(clock):
    assert figures("--batch_size", "10")["timed_images"] == 23


@pytest.mark.parametrize(("given", "batches"), [("0", 5), ("-3", 5), ("1", 1), ("4", 4), ("5", 5), ("99", 5)])
def test_batch_num_limits_the_batches_and_0_is_all(place, given, batches):
    found = figures("--batch_size", "5", "--batch_num", given)

    count = min(5 * batches, 23)
    assert (found["batches"], found["images"]) == (batches, count)
    assert found["hits1"] == hits(IMAGES[:count], LABELS[:count], 1)


def test_flags_may_be_spelled_either_way(place):
    underscores = figures("--batch_size", "4", "--skip_batch_num", "1", "--batch_num=3", "--with_accuracy_layer=true")
    hyphens = figures("--batch-size", "4", "--skip-batch-num", "1", "--batch-num=3", "--with-accuracy-layer=true")

    assert underscores.keys() == hyphens.keys()
    assert all(underscores[key] == hyphens[key] for key in underscores.keys() - {"seconds", "latency_ms", "fps"})


@pytest.mark.parametrize("spelling", ["false", "False", "true"])
def test_accuracy_comes_from_the_labels_of_the_file_whatever_is_said_of_the_models_layers(place, spelling):
    found = figures(f"--with_accuracy_layer={spelling}")

    assert (found["hits1"], found["hits5"]) == (hits(IMAGES, LABELS, 1), hits(IMAGES, LABELS, 5))


def test_with_speed_only_labels_are_not_looked_at(place):
    content = (place / "data.bin").read_bytes()
    (place / "strange.bin").write_bytes(content[:-8] + b"\xff" * 8)

    assert "has label -1" in run(data="strange.bin").stderr
    found = figures("--speed_only", data="strange.bin")
    done = run("--speed-only", data="strange.bin")

    assert not {"acc1", "acc5", "hits1", "hits5"} & found.keys()
    assert found["images"] == 23
    assert "acc" not in done.stdout
    assert "latency: " in done.stdout


def test_top_5_of_fewer_than_5_classes_is_all_of_them(place):
    model("three.onnx", image=(1, 1, 3))
    write("three.bin", IMAGES.reshape(23, 1, 2, 4)[:, :, :1, :3], LABELS % 3, classes=3)

    found = figures(model="three.onnx", data="three.bin")

    assert found["acc5"] == 1.0
    assert found["hits1"] == hits(IMAGES[:, :, :1, :3], LABELS % 3, 1)


def test_ties_go_to_the_lower_class(place):
    images = np.zeros((3, 1, 2, 4), np.float32)
    images[:, 0, 1, 1:] = 1  # classes 5, 6 and 7
    write("ties.bin", images, [5, 6, 1])

    found = figures(data="ties.bin")

    assert (found["hits1"], found["hits5"]) == (1, 3)


def test_an_int8_model_is_run_like_a_float_one(place):
    model("int8.onnx", step=0.5)

    found = figures("--batch_size", "4", model="int8.onnx")

    rounded = np.round(IMAGES / 0.5) * 0.5
    assert (found["hits1"], found["hits5"]) == (hits(rounded, LABELS, 1), hits(rounded, LABELS, 5))
    assert found["engine"] == "onnxruntime"


def test_another_engine_gives_the_same_figures(place):
    openvino = pytest.importorskip("openvino")
    (place / "folder").mkdir()
    openvino.save_model(openvino.convert_model("model.onnx"), "folder/model.xml")

    one, other = figures("--batch_size", "4"), figures("--batch_size", "4", model="folder")

    assert other["engine"] == "openvino"
    assert (one["hits1"], one["hits5"]) == (other["hits1"], other["hits5"])


def test_the_first_output_is_the_logits_unless_another_is_asked_for(place):
    model("two.onnx", outputs=("logits", "negated"))
    write("right.bin", IMAGES, IMAGES.reshape(23, 8).argmax(1))

    first, second = (figures("--output", output, model="two.onnx", data="right.bin") for output in "01")

    assert (first["acc1"], second["acc1"]) == (1.0, 0.0)
    assert figures(model="two.onnx", data="right.bin")["acc1"] == 1.0


def test_an_output_that_is_no_logits_is_refused_unless_only_speed_is_asked_for(place):
    model("image.onnx", outputs=("image",))

    done = run("--batch_size", "4", model="image.onnx")

    assert done.exit_code == 2
    assert "image.onnx: output 0 has shape 4x1x2x4 for 4 images; logits are images x classes" in done.stderr
    assert "only measure speed with --speed_only" in done.stderr
    assert run("--speed_only", model="image.onnx").exit_code == 0


def test_logits_that_are_not_numbers_are_never_hits_and_are_mentioned(place):
    images = IMAGES.copy()
    images[2:5] = np.nan
    write("nan.bin", images, np.zeros(23, int))

    found = figures(data="nan.bin")

    keep = np.r_[0:2, 5:23]
    assert found["hits1"] == hits(IMAGES[keep], np.zeros(20, int), 1)
    assert found["not_a_number"] == 3
    assert "3 images gave logits that are not numbers" in run(data="nan.bin").stdout


def test_a_model_for_another_image_size_is_refused_and_both_are_named(place):
    model("other.onnx", image=(1, 4, 2))

    done = run(model="other.onnx")

    assert done.exit_code == 2
    assert (
        "other.onnx: its input 'x' takes float32 of shape ?x1x4x2, but data.bin has float32 of shape ?x1x2x4" in done.stderr
    )


def test_a_model_with_fewer_classes_than_labels_is_refused(place):
    write("data.bin", IMAGES, np.r_[LABELS[:22], 8], classes=9)

    done = run("--batch_num", "1")

    assert done.exit_code == 2
    assert "data.bin: there are labels up to 8, but output 0 of model.onnx has 8 classes" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--batch_size", "5"), "takes batches of 4, not of 5. Use --batch_size 4."),
        (("--batch_size", "4"), "of 23 images 3 are left over. Export it for batches of any size, or leave them out with"),
    ],
)
def test_a_model_for_batches_of_one_size_says_so(place, args, message):
    model("fixed.onnx", batch=4)

    done = run(*args, model="fixed.onnx")

    assert done.exit_code == 2
    assert message in done.stderr
    assert figures("--batch_size", "4", "--batch_num", "5", model="fixed.onnx")["images"] == 20


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--infer_data", "none.bin"), "none.bin: there is no such file"),
        (("--infer_data", "model.onnx"), "no data file"),
        (("--infer_model", "none.onnx"), "none.onnx: there is no such file"),
        (("--infer_model", "data.bin"), "data.bin: not a model"),
        (("--output", "1"), "--output 1: model.onnx has 1 output, counted from 0"),
        (("--skip_batch_num", "23"), "none is left to be timed"),
        (("--batch_num", "2", "--skip_batch_num", "2"), "2 batches of data.bin will be run"),
        (("--json", "none/figures.json"), "there is no folder none"),
        (("--batch_size", "0"), "--batch_size"),
        (("--threads", "0"), "--threads"),
        (("--with_accuracy_layer", "maybe"), "--with_accuracy_layer"),
        (("--batch_sise", "3"), "--batch_size"),
        (("--batch_size", "many"), "--batch_size"),
    ],
)
def test_a_wrong_call_is_a_message_and_exit_code_2(place, args, message):
    done = run(*args)

    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize("flag", ["--infer_model", "--infer_data"])
def test_model_and_data_must_be_named(place, flag):
    done = CliRunner().invoke(app, ["test", flag, "model.onnx"])

    assert done.exit_code == 2
    assert "Missing option" in done.stderr


def test_nothing_is_written_unless_asked_for(place):
    before = sorted(path.name for path in place.iterdir())

    run()

    assert sorted(path.name for path in place.iterdir()) == before
