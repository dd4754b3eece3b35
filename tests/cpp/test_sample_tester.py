"""cpp/build/sample_tester, run as a user runs it. `make cpp` builds it; nothing is built here."""

import json
import os
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from limits import AN_HOUR
from needs import lacking
from quaver.measure.accuracy import top_k_hits

pytestmark = pytest.mark.slow

CPP = Path(__file__).parents[2] / "cpp"
# another build, for one with sanitizers
TESTER = Path(os.environ.get("QUAVER_SAMPLE_TESTER", CPP / "build" / "sample_tester"))
CLASSES = 10


@pytest.fixture(autouse=True)
def _tester_is_built():
    if not TESTER.exists():
        lacking("cpp", f"{TESTER} is not built (make cpp)")


def run(*flags, command=(str(TESTER),), **environment):
    words = [*command, *map(str, flags)]
    return subprocess.run(words, capture_output=True, text=True, timeout=AN_HOUR, env=os.environ | environment)


def figures(*flags, **environment):
    done = run(*flags, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def refusal(*flags):
    done = run(*flags)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def on(model, data, *flags):
    return f"--infer_model={model}", f"--infer_data={data}", *flags


def integers(shape, seed):
    """Small integers as floats: their sums are exact in any order, and equal logits are common."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("<f4")


def write_model(path, weight, shape=(3, 8, 8), batch="N", nodes=None, outputs=("y",), extra=(), dtype=TensorProto.FLOAT):
    nodes = nodes or [helper.make_node("Flatten", ["x"], ["rows"]), helper.make_node("MatMul", ["rows", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", dtype, [batch, *shape])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(weight, "w"), *extra],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def with_header(path, images, labels, classes=CLASSES):
    head = struct.pack("<8s5q", b"QUAVERB1", *images.shape, classes)
    path.write_bytes(head + images.tobytes() + np.asarray(labels, "<i8").tobytes())
    return path


def in_reference_layout(path, images, labels):
    path.write_bytes(struct.pack("<q", len(images)) + images.tobytes() + np.asarray(labels, "<i8").tobytes())
    return path


def top_k(logits, labels, k):
    """How many labels are among the first k of a stable descending order."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return int((order == np.asarray(labels)[:, None]).any(1).sum())


IMAGES, WEIGHT = integers((107, 3, 8, 8), 1), integers((192, CLASSES), 2)
LABELS = np.random.default_rng(3).integers(0, CLASSES, 107)
LOGITS = IMAGES.reshape(107, -1) @ WEIGHT


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model.onnx", WEIGHT)


@pytest.fixture
def data(tmp_path):
    return with_header(tmp_path / "data.bin", IMAGES, LABELS)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 107, 2147483647])
def test_hits_are_numpys_to_the_last_image_whatever_the_batch_size(model, data, batch_size):
    found = figures(*on(model, data, f"--batch_size={batch_size}"))

    assert found["top1_hits"] == top_k(LOGITS, LABELS, 1)
    assert found["top5_hits"] == top_k(LOGITS, LABELS, 5)
    assert found["top1"] == pytest.approx(top_k(LOGITS, LABELS, 1) / 107, abs=1e-9)
    assert (found["samples"], found["iterations"]) == (107, -(-107 // batch_size))


def test_the_reference_layout_is_read_without_a_header(tmp_path):
    images, weight = integers((2, 3, 224, 224), 4), integers((3 * 224 * 224, CLASSES), 5)
    logits = images.reshape(2, -1).astype(np.float64) @ weight
    labels = [int(logits[0].argmax()), int(logits[1].argmin())]
    data = in_reference_layout(tmp_path / "data.bin", images, labels)

    found = figures(*on(write_model(tmp_path / "model.onnx", weight, (3, 224, 224)), data))

    assert (found["samples"], found["top1_hits"], found["top5_hits"]) == (2, 1, 1)


def test_among_equal_outputs_the_lower_class_is_first(tmp_path, data):
    model = write_model(tmp_path / "flat.onnx", np.zeros_like(WEIGHT))

    found = figures(*on(model, data))

    assert found["top1_hits"] == (LABELS == 0).sum()
    assert found["top5_hits"] == (LABELS < 5).sum()


def test_with_fewer_than_five_classes_every_image_is_a_top_5_hit(tmp_path):
    data = with_header(tmp_path / "data.bin", IMAGES, LABELS % 3, classes=3)

    found = figures(*on(write_model(tmp_path / "model.onnx", WEIGHT[:, :3].copy()), data))

    assert found["top1_hits"] == top_k(LOGITS[:, :3], LABELS % 3, 1)
    assert found["top5_hits"] == 107


def test_ties_and_nan_count_as_in_python(tmp_path):
    logits = np.random.default_rng(12).choice(np.array([np.nan, -np.inf, -1, 0, 1, np.inf], "<f4"), (1000, 7))
    labels = np.arange(1000) % 7
    model = write_model(tmp_path / "model.onnx", WEIGHT, (7, 1, 1), nodes=[helper.make_node("Flatten", ["x"], ["y"])])
    data = with_header(tmp_path / "data.bin", logits.reshape(1000, 7, 1, 1), labels, classes=7)

    done = run(*on(model, data))

    found = json.loads(done.stdout.splitlines()[-1])
    assert found["top1_hits"] == top_k_hits(logits, labels, 1).sum()
    assert found["top5_hits"] == top_k_hits(logits, labels, 5).sum()
    assert found["samples_with_nan"] == np.isnan(logits).any(1).sum()
    assert f"warning: {found['samples_with_nan']} images have NaN" in done.stderr


def test_int8_weights_over_float_inputs_are_computed_as_the_file_says(tmp_path):
    rng = np.random.default_rng(6)
    weight, images = rng.integers(-127, 128, (512, 256)).astype(np.int8), rng.standard_normal((300, 512, 1, 1)).astype("<f4")
    scale, zero = np.full(256, 0.01, np.float32), np.zeros(256, np.int8)
    nodes = [
        helper.make_node("Flatten", ["x"], ["rows"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["float_w"], axis=1),
        helper.make_node("MatMul", ["rows", "float_w"], ["y"]),
    ]
    extra = numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(zero, "zero")
    model = write_model(tmp_path / "model.onnx", weight, (512, 1, 1), nodes=nodes, extra=extra)
    labels = (images.reshape(300, -1).astype(np.float64) @ weight).argmax(1)

    found = figures(*on(model, with_header(tmp_path / "data.bin", images, labels, classes=256)))

    assert found["top1_hits"] == 300  # OpenVINO's default rounds the inputs of such layers, and loses some


@pytest.mark.parametrize("beside", [False, True])
def test_an_ir_and_a_folder_with_one_model_are_taken(tmp_path, model, data, beside):
    openvino = pytest.importorskip("openvino")
    folder = tmp_path / "int8"
    folder.mkdir()
    openvino.save_model(openvino.convert_model(model), folder / "model.xml")
    if beside:  # the same for another engine, as `quaver convert` writes it
        (folder / "model.onnx").write_bytes(model.read_bytes())

    found = figures(*on(folder, data))

    assert found["top1_hits"] == top_k(LOGITS, LABELS, 1)
    assert found["model"] == str(folder / "model.xml")


def test_iterations_limit_the_data_and_repeat_counts_hits_once(model, data):
    found = figures(*on(model, data, "--batch_size=7", "--iterations=3", "--repeat=4", "--warmup_size=30"))

    assert (found["samples"], found["iterations"], found["repeat"]) == (21, 3, 4)
    assert found["top1_hits"] == top_k(LOGITS[:21], LABELS[:21], 1)
    assert found["batch_ms"] == pytest.approx(7 * found["sample_ms"])
    assert found["fps"] == pytest.approx(1000 / found["sample_ms"])


def test_there_is_a_line_for_every_batch_of_every_pass(model, data):
    lines = run(*on(model, data, "--repeat=2")).stdout.splitlines()

    batches = [line for line in lines if line.startswith("batch ") and " images, " in line]
    assert [line.split(" images")[0] for line in batches] == [
        f"batch {batch}/3 of pass {turn}/2: {images}" for turn in (1, 2) for batch, images in ((1, 50), (2, 50), (3, 7))
    ]
    assert ["top-1" in line for line in batches] == [True] * 3 + [False] * 3


def test_more_iterations_or_threads_than_there_are_is_said(model, data):
    done = run(*on(model, data, "--iterations=9", "--num_threads=1000000"))

    assert done.returncode == 0
    assert "note: --iterations=9: the data are 3 batches" in done.stderr
    assert "note: --num_threads=1000000: the engine uses " in done.stderr


def test_json_goes_to_the_file_that_is_named(tmp_path, model, data):
    done = run(*on(model, data, "--json", tmp_path / 'odd "name".json'))

    assert "{" not in done.stdout
    assert json.loads((tmp_path / 'odd "name".json').read_text())["samples"] == 107


def test_paths_with_quotes_stay_json(tmp_path, model):
    data = with_header(tmp_path / 'da"ta\\\n.bin', IMAGES, LABELS)

    assert figures(*on(model, data))["data"] == str(data)


def test_profile_lists_layers_slowest_first(tmp_path, data):
    sizes = {"w": (192, 3000), "small": (3000, 10), "large": (3000, 3000)}
    small, large = (numpy_helper.from_array(integers(sizes[name], 13), name) for name in ("small", "large"))
    nodes = [
        helper.make_node("Flatten", ["x"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["first"]),
        helper.make_node("MatMul", ["first", "large"], ["second"]),
        helper.make_node("MatMul", ["second", "small"], ["y"]),
    ]
    model = write_model(tmp_path / "model.onnx", integers(sizes["w"], 13), nodes=nodes, extra=[small, large])

    done = run(*on(model, data, "--profile"))

    layers = json.loads(done.stdout.splitlines()[-1])["layers"]
    assert [layer["type"] for layer in layers].count("FullyConnected") == 3
    assert layers[0]["name"] == "second"  # a hundred times the work of the last
    assert sorted(layers, key=lambda layer: -layer["us_per_batch"]) == layers
    assert "exec type" in done.stdout


@pytest.mark.parametrize("flag", ["--with_accuracy_layer=false", "--nowith_accuracy_layer", "--with_accuracy_layer"])
def test_accuracy_comes_from_the_labels_of_the_file_whatever_is_said_of_the_models_layers(model, data, flag):
    found = figures(*on(model, data, flag))

    assert (found["top1_hits"], found["top5_hits"]) == (top_k(LOGITS, LABELS, 1), top_k(LOGITS, LABELS, 5))


def test_with_speed_only_labels_and_outputs_may_be_anything(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    model = write_model(tmp_path / "model.onnx", WEIGHT, nodes=nodes, outputs=("y", "z"))
    data = with_header(tmp_path / "data.bin", IMAGES, [-1] * 107)

    done = run(*on(model, data, "--speed_only"))

    assert done.returncode == 0
    assert "top-1" not in done.stdout
    assert "top1" not in json.loads(done.stdout.splitlines()[-1])
    refused = refusal(*on(model, with_header(tmp_path / "good.bin", IMAGES, LABELS)))
    assert "it has 2 outputs" in refused
    assert "Use --speed_only" in refused


@pytest.mark.parametrize(
    "flags",
    [
        ["--batch_size", "7", "--speed_only", "true"],
        ["-batch-size=7", "--speed-only=yes"],
        ["--batch_size=9", "--batch_size=7", "--nospeed_only", "--speed_only"],
        ["--speed_only=1", "-batch_size", "7", "--noprofile"],
    ],
)
def test_flags_are_written_as_gflags_writes_them(model, data, flags):
    found = figures(*on(model, data), *flags)

    assert found["batch_size"] == 7
    assert "top1" not in found
    assert "layers" not in found


def test_help_lists_every_flag_with_its_default():
    done = run("--help")

    assert done.returncode == 0
    for flag in (
        *("infer_model=", "infer_data=", "repeat=1", "warmup_size=0", "batch_size=50", "iterations=0"),
        *("num_threads=1", "with_accuracy_layer=true", "speed_only=false", "profile=false"),
    ):
        assert f"--{flag} " in done.stdout


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--batchsize=3", "--batchsize=3: there is no such flag. Did you mean --batch_size?"),
        ("--zzz", "--zzz: there is no such flag. --help lists"),
        ("--nobatch_size", "there is no such flag"),
        ("--noprofile=true", "there is no such flag"),
        ("--batch_size=0", "--batch_size=0: this takes a whole number from 1 to 2147483647"),
        ("--iterations=", "takes a whole number"),
        ("--batch_size=5x", "takes a whole number"),
        ("--iterations=2147483648", "takes a whole number"),
        ("--iterations=-1", "takes a whole number from 0"),
        ("--repeat=1e3", "takes a whole number"),
        ("--num_threads=0", "takes a whole number from 1"),
        ("--warmup_size= 1", "takes a whole number"),
        ("--profile=maybe", "--profile=maybe: this takes true or false"),
        ("--batch_size", "--batch_size: it has no value"),
        ("more", "'more': this is not a flag"),
        ("--", "'--': this is not a flag"),
        ("-", "'-': this is not a flag"),
        ("", "'': this is not a flag"),
        ("--=3", "there is no such flag"),
        ("--json=/nowhere/at/all.json", "no file can be written there"),
        ("--json=/", "no file can be written there"),
    ],
)
def test_a_bad_flag_is_refused_in_words(model, data, flag, message):
    assert message in refusal(*on(model, data, flag))


def test_model_and_data_must_be_named(model, data):
    assert "--infer_model: it is missing" in refusal(f"--infer_data={data}")
    assert "--infer_data: it is missing" in refusal(f"--infer_model={model}")


def test_data_that_cannot_be_opened_are_refused(tmp_path, model):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()

    assert "No such file" in refusal(*on(model, tmp_path / "none.bin"))
    assert "this is not a file" in refusal(*on(model, tmp_path))
    assert "this is not a file" in refusal(*on(model, tmp_path / "pipe"))
    assert "the file is empty" in refusal(*on(model, tmp_path / "empty"))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((107, 3, 8, 8, 0), "0 classes; there must be at least 1"),
        ((107, 3, 8, 8, -5), "-5 classes; there must be at least 1"),
        ((0, 3, 8, 8, 10), "0 images of 3x8x8; there must be at least 1"),
        ((-1, 3, 8, 8, 10), "-1 images"),
        ((107, 3, 0, 8, 10), "every side must be at least 1"),
        ((107, -3, -8, 8, 10), "every side must be at least 1"),
        ((106, 3, 8, 8, 10), "which is 107 images with their labels and 0 bytes over"),
        ((2**63 - 1, 3, 8, 8, 10), "9223372036854775807 images"),
        ((107, 2**62, 4, 4, 10), "one alone would be larger than the file"),
        ((107, 2**32, 2**32, 3, 10), "one alone would be larger than the file"),
        ((1, 1, 1, 20755, 10), "which is 1 images with their labels and 4 bytes over"),
    ],
)
def test_a_header_that_does_not_fit_the_file_is_refused(tmp_path, model, numbers, message):
    data = with_header(tmp_path / "data.bin", IMAGES, LABELS)
    content = data.read_bytes()
    data.write_bytes(content[:8] + struct.pack("<5q", *numbers) + content[48:])

    assert message in refusal(*on(model, data))


def test_a_reference_file_of_another_length_is_refused(tmp_path, model):
    data = in_reference_layout(tmp_path / "data.bin", IMAGES, LABELS)

    assert "without a QUAVERB1 header" in refusal(*on(model, data))


@pytest.mark.parametrize("label", [-1, 10, 2**62, -(2**63)])
def test_a_label_outside_the_classes_is_refused(tmp_path, model, label):
    labels = LABELS.copy()
    labels[40] = label

    words = refusal(*on(model, with_header(tmp_path / "data.bin", IMAGES, labels)))

    assert f"the label of image 40 is {label}; with 10 classes it must lie in 0..9" in words


def test_a_reference_label_must_lie_below_1000(tmp_path, model):
    data = in_reference_layout(tmp_path / "data.bin", integers((1, 3, 224, 224), 7), [1000])

    assert "must lie in 0..999" in refusal(*on(model, data))


def test_a_label_the_model_has_no_output_for_is_refused(tmp_path, model):
    labels = LABELS.copy()
    labels[40] = 11

    words = refusal(*on(model, with_header(tmp_path / "data.bin", IMAGES, labels, classes=12)))

    assert "the label of image 40 is 11" in words
    assert "has outputs 0..9" in words


def test_a_model_of_another_shape_type_or_output_is_refused(tmp_path, data):
    larger = write_model(tmp_path / "larger.onnx", integers((300, 10), 8), (3, 10, 10))
    cast = [helper.make_node("Cast", ["x"], ["c"], to=1), helper.make_node("Flatten", ["c"], ["y"])]
    bytes_in = write_model(tmp_path / "bytes.onnx", WEIGHT, nodes=cast, dtype=TensorProto.UINT8)
    image_out = write_model(tmp_path / "image.onnx", WEIGHT, nodes=[helper.make_node("Relu", ["x"], ["y"])])

    assert "the images are 3x8x8" in refusal(*on(larger, data))
    assert "it takes u8 inputs" in refusal(*on(bytes_in, data))
    assert "accuracy needs float32 of one row of classes per image" in refusal(*on(image_out, data))


def test_a_fixed_batch_is_run_whole_and_never_padded(tmp_path, data):
    model = write_model(tmp_path / "fixed.onnx", WEIGHT, batch=20)

    assert "its batch is fixed at 20, and --batch_size is 50" in refusal(*on(model, data))
    assert "the last batch has 7 images, which are not padded. Use --iterations=5" in refusal(
        *on(model, data, "--batch_size=20")
    )
    found = figures(*on(model, data, "--batch_size=20", "--iterations=5"))
    assert (found["samples"], found["top1_hits"]) == (100, top_k(LOGITS[:100], LABELS[:100], 1))


def test_a_batch_that_is_fixed_further_in_is_found_before_anything_runs(tmp_path, data):
    nodes = [helper.make_node("Reshape", ["x", "fixed"], ["rows"]), helper.make_node("MatMul", ["rows", "w"], ["y"])]
    fixed = numpy_helper.from_array(np.array([50, 192]), "fixed")
    model = write_model(tmp_path / "model.onnx", WEIGHT, nodes=nodes, extra=[fixed])

    assert "it cannot carry a batch of 7 images" in refusal(*on(model, data, "--speed_only"))
    assert "it cannot carry a batch of 57 images" in refusal(*on(model, data, "--batch_size=57"))
    assert figures(*on(model, data, "--iterations=2"))["top1_hits"] == top_k(LOGITS[:100], LABELS[:100], 1)


@pytest.mark.parametrize("end", ["", "/"])
def test_of_a_program_for_pytorch_it_is_said_what_to_give_instead(tmp_path, data, end):
    (tmp_path / "float").mkdir()
    (tmp_path / "float" / "program.json").touch()  # as quaver convert leaves it

    words = refusal(*on(f"{tmp_path / 'float'}{end}", data))

    assert f"Give {tmp_path / 'int8'} for the int8 model, or {tmp_path / 'fp32'} for the float one" in words


def test_models_that_cannot_be_found_or_read_are_refused(tmp_path, model, data):
    content = model.read_bytes()
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "cut.onnx").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.xml").write_text("<net>")
    (tmp_path / "model.pte").touch()

    assert "the folder holds no .xml or .onnx" in refusal(*on(folder, data))
    (folder / "a.onnx").write_bytes(content)
    (folder / "b.xml").touch()
    assert "the folder holds 2 models (a.onnx, b.xml)" in refusal(*on(folder, data))
    assert "No such file" in refusal(*on(tmp_path / "none.onnx", data))
    assert "OpenVINO cannot read it" in refusal(*on(tmp_path / "cut.onnx", data))
    assert "OpenVINO cannot read it" in refusal(*on(tmp_path / "text.xml", data))
    assert "the tester runs .xml and .onnx files" in refusal(*on(tmp_path / "model.pte", data))


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    model = write_model(tmp_path / "model.onnx", integers((2, 3), 9), (1, 1, 2))
    data = with_header(tmp_path / "data.bin", integers((3, 1, 1, 2), 10), [0, 1, 2], classes=3)
    content = data.read_bytes()
    assert run(*on(model, data)).returncode == 0

    for length in range(len(content)):
        data.write_bytes(content[:length])
        assert str(data) in refusal(*on(model, data))


def test_flipped_bytes_of_header_and_labels_never_crash_it(tmp_path):
    model = write_model(tmp_path / "model.onnx", integers((2, 3), 9), (1, 1, 2))
    data = with_header(tmp_path / "data.bin", integers((3, 1, 1, 2), 10), [0, 1, 2], classes=3)
    content, chance = data.read_bytes(), random.Random(11)
    places = [*range(48), *range(len(content) - 24, len(content))]

    codes = set()
    for _ in range(300):
        damaged = bytearray(content)
        for place in chance.sample(places, chance.choice([1, 1, 2])):
            damaged[place] ^= 1 << chance.randrange(8)
        data.write_bytes(damaged)
        codes.add(run(*on(model, data)).returncode)

    assert codes == {0, 2}


of_the_ordinary_build = pytest.mark.skipif("QUAVER_SAMPLE_TESTER" in os.environ, reason="run.sh runs the ordinary build")
RUN_SH = ("bash", str(CPP / "run.sh"))


@of_the_ordinary_build
def test_run_sh_prints_its_command_and_passes_flags_on(model, data):
    done = run(model, data, "--iterations=2", command=RUN_SH, BATCH_SIZE="7")

    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["batch_size"], found["samples"]) == (7, 14)
    assert f"--infer_model={model} --infer_data={data} --batch_size=7" in done.stderr


@of_the_ordinary_build
def test_run_sh_takes_model_and_data_from_the_environment_too(model, data):
    done = run(command=RUN_SH, MODEL=str(model), DATA=str(data))
    as_before = run(command=RUN_SH, MODEL_DIR=str(model), DATA_DIR=str(data), SPEED_ONLY="true")
    unnamed = run(command=RUN_SH, MODEL="", DATA="")

    assert "top1" in json.loads(done.stdout.splitlines()[-1])
    assert "top1" not in json.loads(as_before.stdout.splitlines()[-1])
    assert unnamed.returncode == 2
    assert "--infer_model: it is missing" in unnamed.stderr


def on_processor(*tiles, **environment):
    """What the tester notes where AMX is announced and its tiles described like this, and the limit OpenVINO then sees."""
    clean = {"ONEDNN_MAX_CPU_ISA": "", "DNNL_MAX_CPU_ISA": ""} | environment
    done = run(*tiles, command=(str(TESTER.with_name("processor_test")),), **clean)
    assert done.returncode == 0, done.stderr
    *notes, limit = done.stdout.splitlines()
    return notes, limit.removeprefix("limit: ")


@pytest.mark.parametrize("tiles", [(0, 0, 0, 0), (1, 0, 0, 0), (1, 8, 64, 0), (1, 8, 0, 16), (1, 0, 64, 16), (0, 8, 64, 16)])
def test_an_amx_whose_tiles_are_not_described_is_kept_from_the_engine(tiles):
    (note,), limit = on_processor(*tiles)

    assert note.startswith("note: this processor announces AMX, but does not describe its tiles")
    assert limit == "AVX512_CORE_FP16"


def test_an_amx_that_is_described_is_used():
    assert on_processor(1, 8, 64, 16) == ([], "")


def test_a_limit_that_the_user_set_stays():
    assert on_processor(0, 0, 0, 0, ONEDNN_MAX_CPU_ISA="AVX512_CORE_AMX") == ([], "AVX512_CORE_AMX")
    assert on_processor(0, 0, 0, 0, DNNL_MAX_CPU_ISA="ALL") == ([], "")
