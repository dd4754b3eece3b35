import json
import re
import shutil
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from deployed import CONVOLUTIONS, Net, signed
from quaver.cli.main import app
from quaver.engines import installed
from quaver.machine.cpu import cpu
from quaver.measure.footprint import Memory

pytest.importorskip("onnxruntime")
ov = pytest.importorskip("openvino")

pytestmark = pytest.mark.slow

RECORDS = [{"name": name} for name in CONVOLUTIONS]
SKIPPED = {"name": "middle", "quantized": False, "reason": "its scope 'middle' contains the skip pattern 'mid'"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A float net and an int8 net of the same shape, each as .onnx and as .xml."""
    folder = tmp_path_factory.mktemp("made")
    for name, net in {"float": Net(quantized=False), "int8": Net()}.items():
        file = net.save(folder / name / "model.onnx", RECORDS if name == "int8" else (), stage=name)
        ov.save_model(ov.convert_model(file), folder / f"{name}_ir" / "model.xml", compress_to_fp16=False)
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A working directory with the four of them, and a folder with a program for PyTorch."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run" / "float").mkdir(parents=True)
    (tmp_path / "run" / "float" / "program.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*args, memory=False):
    quick = [] if "--rounds" in args else ["--rounds", "2", "--warmup", "0"]
    return CliRunner().invoke(app, ["bench", *args, *quick, *([] if memory else ["--no-memory"])])


def figures(*args, **options):
    done = bench(*args, "--json", "figures.json", **options)
    assert done.exit_code == 0, done.output
    with open("figures.json") as file:
        return json.load(file)


def who(rows):
    return [(row["model"], row["engine"], row["batch"]) for row in rows]


def test_of_a_folder_with_several_files_each_engine_runs_its_own(place):
    shutil.copytree("float", "fp32")
    shutil.copytree("float_ir", "fp32", dirs_exist_ok=True)

    found = figures("int8_ir", "--float", "fp32", "--batch-sizes", "1")

    baselines = [(row["model"], row["engine"]) for row in found["latencies"] if row["is_float"]]
    assert sorted(baselines) == [("fp32/model.onnx", "onnxruntime"), ("fp32/model.xml", "openvino")]


def test_a_folder_with_several_files_is_measured_by_its_first_and_the_others_are_said(place):
    shutil.copytree("int8", "both")
    shutil.copytree("int8_ir", "both", dirs_exist_ok=True)

    done = bench("both", "--batch-sizes", "1", "--json", "figures.json")

    with open("figures.json") as file:
        assert who(json.load(file)["latencies"]) == [("both/model.xml", "openvino", 1)]
    said = "both/model.xml is measured. model.onnx is there, too: name it, or its engine (--engines onnxruntime)."
    assert said in " ".join(done.stdout.split())


def test_each_engine_that_was_named_runs_its_own_file_of_a_folder(place):
    shutil.copytree("int8", "both")
    shutil.copytree("int8_ir", "both", dirs_exist_ok=True)

    found = figures("both", "--engines", "onnxruntime,openvino", "--batch-sizes", "1")
    only = figures("both", "--engines", "onnxruntime", "--batch-sizes", "1")

    assert who(found["latencies"]) == [("both/model.onnx", "onnxruntime", 1), ("both/model.xml", "openvino", 1)]
    assert who(only["latencies"]) == [("both/model.onnx", "onnxruntime", 1)]


def test_float_and_int8_are_measured_at_every_batch_size_and_float_on_every_engine_that_reads_it(place):
    found = figures("int8_ir", "--float", "float", "--batch-sizes", "1,3")

    rows = [("int8_ir/model.xml", "openvino"), ("float/model.onnx", "openvino"), ("float/model.onnx", "onnxruntime")]
    assert who(found["latencies"]) == [(*row, batch) for batch in (1, 3) for row in rows]
    assert {row["rounds"] for row in found["latencies"]} == {2}


def test_a_float_file_that_one_engine_reads_runs_on_that_one(place):
    found = figures("int8", "--float", "float_ir", "--float", "float", "--batch-sizes", "1")

    floats = [
        ("float_ir/model.xml", "openvino", 1),
        ("float/model.onnx", "openvino", 1),
        ("float/model.onnx", "onnxruntime", 1),
    ]
    assert who(found["latencies"]) == [("int8/model.onnx", "onnxruntime", 1), *floats]


def test_the_ratio_is_against_the_best_float_engine_at_the_same_batch_size(place, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("quaver.measure.latency.time.perf_counter", lambda: now[0])
    seconds = {
        ("int8_ir", 1): 1,
        ("int8_ir", 4): 2,
        ("openvino", 1): 4,
        ("openvino", 4): 5,
        ("onnxruntime", 1): 3,
        ("onnxruntime", 4): 9,
    }
    titles = iter(["int8_ir", "openvino", "onnxruntime"])

    def timed(load):
        def loaded(path, threads):
            run, name = load(path, threads), next(titles)

            def call(*batch):
                now[0] += seconds[name, len(batch[0])]

            return type("Timed", (), {"inputs": run.inputs, "__call__": lambda self, *batch: call(*batch)})()

        return loaded

    monkeypatch.setattr("quaver.cli.bench.installed", lambda engine: SimpleNamespace(load=timed(installed(engine).load)))
    found = figures("int8_ir", "--float", "float", "--batch-sizes", "1,4")

    assert [row["over_best_float"] for row in found["latencies"]] == [3.0, 0.75, 1.0, 2.5, 1.0, pytest.approx(5 / 9)]
    assert [row["is_best_float"] for row in found["latencies"]] == [False, False, True, False, True, False]
    assert [row["median_ms"] for row in found["latencies"]] == [1000, 4000, 3000, 2000, 5000, 9000]


def test_the_screen_shows_the_processor_and_a_row_for_each(place):
    done = bench("int8_ir", "--float", "float", "--batch-sizes", "2")

    text = re.sub(r"[\s│]+", " ", done.stdout)
    assert f"CPU: {cpu().words()}" in text
    assert "1 thread, 2 rounds, in turns" in text
    assert "1 (best)" in text
    assert done.stdout.count("onnxruntime") >= 1


def test_throughput_has_a_row_for_each_with_its_streams_and_the_same_ratio(place):
    found = figures("int8_ir", "--float", "float", "--batch-sizes", "2", "--throughput", "--streams", "2")

    rows = found["throughputs"]
    assert who(rows) == who(found["latencies"])
    assert [row["streams"] for row in rows] == [2] * len(rows)
    best = max(row["images_per_second"] for row in rows if row["is_float"])
    for row in rows:
        assert row["over_best_float"] == pytest.approx(row["images_per_second"] / best)


def test_without_a_float_model_there_is_no_ratio_and_a_hint(place):
    done = bench("int8_ir")

    assert "over best float" not in done.stdout
    assert "name the float model with --float" in done.stdout
    assert all(row["over_best_float"] is None for row in figures("int8_ir")["latencies"])


def test_the_figures_name_processor_engines_and_settings(place):
    found = figures("int8_ir", "--float", "float", "--threads", "2", "--rounds", "3", "--warmup", "1")

    assert found["cpu"]["words"] == cpu().words()
    assert found["versions"] == {"openvino": ov.__version__.split("-")[0], "onnxruntime": found["versions"]["onnxruntime"]}
    assert (found["threads"], found["rounds"], found["warmup"]) == (2, 3, 1)


def test_files_are_weighed_and_memory_is_measured_at_the_largest_batch(place, monkeypatch):
    asked = []
    monkeypatch.setattr("quaver.cli.bench.memory", lambda *args: asked.append(args) or Memory(load=7, run=9))

    found = figures("int8_ir", "--float", "float", "--batch-sizes", "1,5,2", memory=True)

    sizes = [sum(file.stat().st_size for file in (place / "int8_ir").iterdir())]
    sizes += [(place / "float" / "model.onnx").stat().st_size] * 2
    assert [row["file_bytes"] for row in found["footprints"]] == sizes
    assert [(row["load_bytes"], row["run_bytes"], row["batch"]) for row in found["footprints"]] == [(7, 9, 5)] * 3
    assert next((str(path), *rest) for path, *rest in asked) == ("int8_ir/model.xml", "openvino", 1, 5)


def test_a_model_made_for_one_batch_size_says_so_and_runs_at_that(place):
    Net(batch=4).save(place / "fixed" / "model.onnx")

    done = bench("fixed", "int8", "--batch-sizes", "1,4")

    assert "fixed/model.onnx on onnxruntime: made for batches of 4, and measured with these only" in done.stdout
    found = figures("fixed", "int8", "--batch-sizes", "1,2")
    expected = [("int8/model.onnx", 1), ("int8/model.onnx", 2), ("fixed/model.onnx", 4)]
    assert [(row["model"], row["batch"]) for row in found["latencies"]] == expected


def test_engines_can_be_chosen(place):
    found = figures("int8", "--engines", "openvino,onnxruntime", "--batch-sizes", "1")

    assert [row["engine"] for row in found["latencies"]] == ["openvino", "onnxruntime"]
    only = figures("int8", "--float", "float", "--engines", "onnxruntime", "--batch-sizes", "1")
    assert {row["engine"] for row in only["latencies"]} == {"onnxruntime"}


def test_layers_show_what_ran_in_float_and_why(place):
    Net(in_float=["middle"]).save(place / "mixed" / "model.onnx", [RECORDS[0], SKIPPED, RECORDS[2]])

    done = bench("mixed", "--engines", "openvino", "--layers", "--batch-sizes", "1", "--json", "figures.json")

    assert "2 of 3 convolutions and matrix products ran in int8." in done.stdout
    assert "Why isn't it faster?" in done.stdout
    assert "conv2d 'middle' stays float in the program: its scope 'middle' contains the skip pattern 'mid'" in done.stdout
    assert "what would remove it: taking the pattern out of not_quant_pattern" in done.stdout
    (profile,) = json.loads((place / "figures.json").read_text())["profiles"]
    assert (profile["int8_products"], profile["products"]) == (2, 3)
    precisions = {layer["title"]: layer["precision"] for layer in profile["layers"] if layer["type"] == "Convolution"}
    assert precisions == {"first": "u8", "middle": "f32", "last": "u8"}
    assert "middle" in [finding["layer"] for finding in profile["findings"] if finding["kind"] == "float layer"]


def test_layers_are_those_of_the_models_and_not_of_the_baseline(place):
    found = figures("int8_ir", "--float", "float", "--layers", "--batch-sizes", "1")

    assert [(profile["model"], "totals" in profile) for profile in found["profiles"]] == [("int8_ir/model.xml", False)]


def test_a_profile_has_the_time_by_type_for_float_and_int8(place):
    found = figures("int8_ir", "--float", "float_ir", "--profile", "--batch-sizes", "1")

    int8, in_float = found["profiles"]
    convolutions = {row["precision"] for row in int8["totals"] if row["type"] == "Convolution"}
    assert "u8" in convolutions
    assert convolutions <= {"u8", "i8"}  # with AMX, one that reads a signed input
    assert {row["precision"] for row in in_float["totals"] if row["type"] == "Convolution"} == {"f32"}
    assert sum(row["share"] for row in int8["totals"]) == pytest.approx(1)
    assert "layers" not in int8
    assert "Time by type of layer" in bench("int8_ir", "--profile").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.onnx"], "none.onnx: there is no such file"),
        (["."], "expected one model"),
        (["int8", "--float", "none"], "none: not a model that an engine reads"),
        (["int8", "--float", "int8"], "--float int8/model.onnx: this is the int8 model."),
        (["int8", "--float", "run/float"], "The float one is in run/fp32"),
        (["int8", "--batch-sizes", "1,x"], "--batch-sizes '1,x': takes whole numbers of at least 1"),
        (["int8", "--batch-sizes", "0"], "--batch-sizes '0': takes whole numbers"),
        (["int8", "--batch-sizes", ""], "takes whole numbers"),
        (["int8", "--engines", "openvno"], "--engines 'openvno': there is no such engine. Did you mean 'openvino'?"),
        (["int8_ir", "--engines", "onnxruntime"], "model.xml: .xml is not read by onnxruntime, but by openvino."),
        (["int8", "--json", "none/figures.json"], "there is no folder none"),
        (["int8", "--rounds", "0"], "--rounds"),
        (["int8", "--threads", "0"], "--threads"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_call_is_a_message_and_exit_code_2(place, args, message):
    done = bench(*args)

    assert done.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", done.stderr)
    assert "Traceback" not in done.output


def test_an_engine_that_is_not_installed_is_a_message(place, monkeypatch):
    monkeypatch.setattr("quaver.engines.engine.find_spec", lambda name: None)

    done = bench("int8", "--engines", "openvino")

    assert done.exit_code == 2
    assert "openvino is not installed. Install it with pip install openvino" in done.stderr


def test_a_file_that_was_changed_is_not_measured(place):
    (place / "int8" / "model.onnx.json").write_text(json.dumps(signed({"files": {"model.onnx": "0" * 64}})))

    done = bench("int8")

    assert done.exit_code == 2
    assert "the file is damaged or was changed" in done.stderr


def test_a_model_with_another_free_size_is_a_message(place):
    model = Net().model
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[2].dim_param = "height"
    (place / "free").mkdir()
    (place / "free" / "model.onnx").write_bytes(model.SerializeToString())

    done = bench("free")

    assert done.exit_code == 2
    assert "only the batch can be chosen here" in done.stderr


def test_nothing_is_written_unless_asked_for(place):
    before = sorted(place.rglob("*"))

    bench("int8", "--layers", "--profile")

    assert sorted(place.rglob("*")) == before
