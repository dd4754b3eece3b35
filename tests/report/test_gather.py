import json
import re
from dataclasses import replace

import pytest

from quaver.errors import StorageError
from quaver.program import OpRecord
from quaver.program.outline import outline
from quaver.program.reason import ComputedWith, Folded
from quaver.report import gather, page
from quaver.report.headline import figures_of
from quaver.report.layer_rows import Row, rows_of
from runs import deep_run


def test_everything_that_is_there_is_read(made):
    run = gather(made[1])

    assert run.missing == []
    assert run.troubles == []
    assert run.program.stage == "int8"
    assert len(run.metrics) == 22
    assert run.analysis.images == 16


@pytest.mark.parametrize(
    ("file", "what", "command"),
    [
        ("report.json", "Accuracy and size", "quaver quantize"),
        ("metrics.jsonl", "Training curves", "quaver quantize"),
        ("analysis.json", "Errors and histograms", "quaver analyze"),
        ("verify.json", "Simulated against deployed", "quaver verify"),
        ("bench.json", "Executed precision, time of each layer, memory", "quaver bench"),
        ("int8/program.json", "Layers and network", "quaver convert"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(folder, file, what, command):
    (folder / file).unlink()

    ((missing, made_by),) = gather(folder).missing

    assert missing == what
    assert made_by.startswith(command)
    assert str(folder) in made_by


@pytest.mark.parametrize("file", ["report.json", "analysis.json", "verify.json", "bench.json", "int8/program.json"])
@pytest.mark.parametrize(
    "content", ["{", "[]", "\ud800", '{"profiles": 3, "layers": 4, "latencies": [5], "agreement": "x"}']
)
def test_a_damaged_file_is_left_out_and_the_rest_is_there(folder, file, content):
    (folder / file).write_bytes(content.encode("utf-8", "surrogatepass"))

    run = gather(folder)

    assert "stem" in page([run])
    assert run.troubles or file == "report.json"  # whose figures are taken one by one


NOT_FINITE = [float("nan"), float("inf"), -1.0]


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("report.json", ["fp32_top1"]),
        ("report.json", ["int8_bytes"]),
        ("verify.json", ["accuracy_deployed"]),
        ("verify.json", ["layers", 0, "differ"]),
        ("bench.json", ["latencies", 0, "median_ms"]),
        ("bench.json", ["profiles", 0, "layers", 1, "share"]),
        ("bench.json", ["profiles", 0, "layers", 0, "microseconds"]),
    ],
)
def test_a_figure_that_is_none_is_left_out_and_named_once(folder, file, place, value):
    record = json.loads((folder / file).read_text())
    part = record
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    (folder / file).write_text(json.dumps(record))
    run = gather(folder)

    text = page([run])

    body = text[text.index("<main") : text.index('id="missing"')]
    assert not re.search(r"\b(nan|inf|−1|-1\.0)\b", body)
    (trouble,) = run.troubles
    assert str(value) in trouble


def test_a_finding_whose_share_is_none_is_still_told(folder):
    record = json.loads((folder / "bench.json").read_text())
    record["profiles"][0]["findings"][0]["share"] = float("nan")
    (folder / "bench.json").write_text(json.dumps(record))

    text = page([gather(folder)])

    assert "it was asked for" in text
    assert "nan\u202f%" not in text


def test_a_line_that_was_cut_off_is_passed_over(folder):
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text[:-10])

    assert len(gather(folder).metrics) == 21


def test_a_damaged_line_in_between_is_a_trouble(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join(["{", *lines]))

    run = gather(folder)

    assert run.metrics == []
    assert "line 1 cannot be read" in run.troubles[0]


def test_a_folder_that_is_no_runs_is_refused(tmp_path):
    with pytest.raises(StorageError, match="there is no such folder"):
        gather(tmp_path / "none")
    (tmp_path / "test.json").write_text("{}")  # quaver test --json
    with pytest.raises(StorageError, match="holds none of the files of a run") as caught:
        gather(tmp_path)
    for file in ("report.json", "metrics.jsonl", "analysis.json", "verify*.json", "bench*.json", "int8/program.json"):
        assert file in str(caught.value)


def test_a_folder_whose_files_are_all_damaged_is_refused_with_what_is_wrong(tmp_path):
    (tmp_path / "report.json").write_text("{")

    with pytest.raises(StorageError, match=r"report\.json: cannot be read"):
        gather(tmp_path)


# layers


def test_a_row_joins_what_all_records_say(made):
    rows = {row.name: row for row in rows_of(gather(made[1]))}

    stem = rows["stem"]
    assert (stem.precision, stem.executed, stem.bits, stem.kernel) == ("int8", "u8", "W8 A8", "gemm")
    assert (stem.microseconds, stem.share, stem.differ) == (12.5, 0.25, 0.01)
    assert stem.fused == ["batch_norm", "relu"]
    assert stem.tensors == ["x"]
    assert stem.sqnr_db < stem.input_sqnr_db
    assert "skip pattern" in rows["head"].reason
    assert rows["head"].is_float
    assert (rows["bn"].precision, rows["bn"].host) == ("fused", "stem")


@pytest.mark.parametrize("name", ["stem", "it's", 'a "b"', "back\\slash", "two\nlines", "'folded into'"])
def test_a_fused_op_finds_its_host_whatever_that_is_called(tmp_path, name):
    run = deep_run(tmp_path, 3)
    records = [
        OpRecord(name, "conv2d", "", "", True),
        OpRecord("bn", "batch_norm", "", "", False, Folded(name)),
        OpRecord("relu", "relu", "", "", False, ComputedWith(name)),
    ]
    run.program = replace(run.program, records=tuple(records))

    host, *fused = rows_of(run)

    assert [row.host for row in fused] == [name] * 2
    assert host.fused == ["batch_norm", "relu"]


def test_without_an_analysis_bits_are_what_the_passes_were_asked_for(made, folder):
    (folder / "analysis.json").unlink()

    rows = {row.name: row for row in rows_of(gather(folder))}

    assert rows["stem"].bits == "W8 A8"
    assert rows["stem"].sqnr_db is None


def test_without_a_program_layers_are_those_of_the_analysis(folder):
    (folder / "int8" / "program.json").unlink()

    rows = rows_of(gather(folder))

    assert rows[0].name == "stem"
    assert "input" in rows[0].thresholds


@pytest.mark.parametrize(
    ("precision", "executed", "is_float"),
    [("int8", "f32", True), ("int8", "bf16", True), ("float", "u8", False), ("float", "", True), ("int8", "", False)],
)
def test_the_engines_word_on_what_runs_in_float_goes_before_the_programs(precision, executed, is_float):
    assert Row(0, "conv", "conv2d", precision=precision, executed=executed).is_float is is_float


# figures


def test_figures_come_from_what_measured_them(made):
    figures = figures_of(gather(made[1]))

    assert (figures.float_top1, figures.simulated_top1, figures.deployed_top1) == (0.9, 0.895, 0.8949)
    assert (figures.float_ms, figures.int8_ms, figures.speedup, figures.smaller) == (1.5, 0.5, 3.0, 4.0)
    assert (figures.engine, figures.cpu, figures.images) == ("openvino", "Some CPU: AVX2", 1234)


def test_a_report_that_tells_the_agreement_needs_no_verification(folder):
    (folder / "verify.json").unlink()
    asked = [what for what, _ in gather(folder).missing]
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps(report | {"agreement": 1.0}))

    missing = [what for what, _ in gather(folder).missing]

    assert "Simulated against deployed" in asked
    assert "Simulated against deployed" not in missing


@pytest.mark.parametrize(("images", "simulated"), [(100, 0.97), (5000, 0.97), (1234, 0.97), (100, 0.895)])
def test_what_was_verified_on_other_images_does_not_stand_for_the_test_set(folder, images, simulated):
    record = json.loads((folder / "verify.json").read_text())
    (folder / "verify.json").write_text(
        json.dumps(record | {"images": images, "accuracy_simulated": simulated, "accuracy_deployed": 0.98})
    )

    figures = figures_of(gather(folder))

    assert (figures.simulated_top1, figures.deployed_top1, figures.images) == (0.895, 0.8949, 1234)
    assert (figures.elsewhere_top1, figures.elsewhere_images) == (0.98, images)
    assert (figures.agreement, figures.deployed_images) == (0.999, images)


def test_what_was_verified_on_the_test_set_stands_for_it_but_for_an_image_in_a_thousand(folder):
    record = json.loads((folder / "verify.json").read_text())
    (folder / "verify.json").write_text(json.dumps(record | {"accuracy_simulated": 0.8958, "accuracy_deployed": 0.88}))

    figures = figures_of(gather(folder))

    assert (figures.simulated_top1, figures.deployed_top1) == (0.8958, 0.88)
    assert figures.elsewhere_top1 is None


def test_a_report_says_on_how_many_images_the_engine_was_measured(folder):
    (folder / "verify.json").unlink()
    record = json.loads((folder / "report.json").read_text())
    for verified, deployed, elsewhere in ((1234, 0.8949, None), (100, None, 0.8949)):
        (folder / "report.json").write_text(json.dumps(record | {"verified_images": verified}))

        figures = figures_of(gather(folder))

        assert (figures.deployed_top1, figures.elsewhere_top1) == (deployed, elsewhere)


def test_figures_of_a_wrong_type_are_not_figures(folder):
    (folder / "report.json").write_text(json.dumps({"fp32_top1": "high", "int8_bytes": True, "engine": 3}))
    (folder / "verify.json").unlink()

    figures = figures_of(gather(folder))

    assert (figures.float_top1, figures.int8_bytes, figures.engine) == (None, None, "")


def test_the_processor_of_a_verification_is_put_in_words(folder):
    (folder / "bench.json").unlink()
    record = json.loads((folder / "verify.json").read_text())
    record["cpu"] = {"model": "Some CPU", "abilities": ["AVX2"], "known": True, "onednn_limit": ""}
    (folder / "verify.json").write_text(json.dumps(record))

    assert figures_of(gather(folder)).cpu == "Some CPU: AVX2, but no AVX512, no VNNI and no AMX"


# the outline of a program


def test_an_outline_says_which_op_reads_which(made):
    found = outline(made[1] / "int8")

    reads = {op.name: op.reads for op in found.ops}
    assert reads["stem"] == ("x",)
    assert reads["block"] == ("relu",)
    assert set(reads["elementwise_add"]) == {"block", "relu"}
    assert found.inputs == {"x": (None, 3, 8, 8)}
    assert {record.name for record in found.records} >= set(reads)


def test_the_outline_of_a_prepared_program_looks_through_quantizers(trained, tmp_path):
    from quaver.program.storage import save

    found = outline(save(trained, tmp_path / "prepared"))

    assert {op.name: op.reads for op in found.ops}["body"] == ("pool2d",)


def test_a_program_whose_graph_is_odd_is_refused(folder):
    from quaver.program.storage import FORMAT

    path = folder / "int8" / "program.json"
    body = FORMAT.unsealed(path)
    body["graphs"] = {}
    path.write_bytes(FORMAT.sealed(body))

    with pytest.raises(StorageError, match="the program cannot be read"):
        outline(path.parent)


def test_a_file_in_place_of_a_folder_is_said_to_be_one(folder):
    with pytest.raises(StorageError, match=r"report.json: this is a file. A report is on the folder of a run"):
        gather(folder / "report.json")
