import json
import math
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from quaver.cli.main import app
from quaver.errors import ConfigError, StorageError
from quaver.program.history import PassApplied
from quaver.program.outline import OpOutline
from quaver.program.reason import Because
from quaver.report import gather, page, write_report
from quaver.report.cards import cards
from quaver.report.headline import Figures
from runs import EVIL, deep_run

VOID = {"meta", "input", "br", "wbr"}


class Elements(HTMLParser):
    """Every element, and the text of the scripts; refuses tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.scripts, self.ids = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


@pytest.fixture(scope="module")
def text(made):
    return page([gather(made[1])])


def test_the_page_is_well_formed_and_names_are_given_once(text):
    elements = Elements(text)

    assert len(elements.ids) == len(set(elements.ids))
    linked = [attributes["href"][1:] for tag, attributes in elements.found if "href" in attributes]
    assert set(linked) <= set(elements.ids)


@pytest.mark.parametrize(
    ("overflowing", "message"),
    [
        ([], "x86 processors with VNNI and without"),
        (["stem", "head"], "without it, 2 layers overflow, 'stem' first"),
    ],
)
def test_the_page_says_where_the_files_are_safe_to_run(made, overflowing, message):
    run = gather(made[1])
    assert "x86 processors" not in page([run])  # nothing was exported
    run.origins["int8/model.xml"] = {"full_range": overflowing}

    assert message in unescape(page([run]))


def test_the_page_needs_nothing_from_elsewhere(text):
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", text)

    assert all(address.startswith("#") for address in addresses)
    assert re.findall(r"https?://(?!www\.w3\.org/)[^\s\"']+", text) == []


def test_every_layer_has_a_row_and_says_why_it_is_float(text):
    rows = [attributes for tag, attributes in Elements(text).found if tag == "tr" and "data-kind" in attributes]

    assert [row["data-kind"] for row in rows].count("fused") == 3
    assert len(rows) == 8
    assert "its scope 'head' contains the skip pattern" in unescape(text)


def test_figures_are_there_side_by_side(text):
    plain = text.replace("\u202f", " ")

    for words in ("90.00 %", "89.50 %", "89.49 %", "3.8 MiB", "977 KiB", "4.0× smaller", "3.0× as fast", "99.90 %", "−0.51"):
        assert words in plain


def test_a_missing_part_is_not_shown_but_named_with_its_command(folder):
    (folder / "analysis.json").unlink()
    (folder / "metrics.jsonl").unlink()

    text = page([gather(folder)])

    sections = {attributes.get("id") for tag, attributes in Elements(text).found if tag == "section"}
    assert "activations" not in sections
    assert "training" not in sections
    assert "missing" in sections
    assert f"quaver analyze {folder / 'int8'} DATA --json {folder / 'analysis.json'}" in text


def test_a_folder_with_one_file_still_makes_a_page(folder):
    for path in folder.iterdir():
        if path.name not in ("report.json", "int8"):
            path.unlink()
    (folder / "int8" / "program.json").unlink()

    sections = [attributes["id"] for tag, attributes in Elements(page([gather(folder)])).found if tag == "section"]

    assert sections == ["figures", "provenance", "missing"]


def test_troubles_are_on_the_page(folder):
    (folder / "bench.json").write_text("{")

    assert "bench.json: cannot be read" in page([gather(folder)])


def test_an_error_without_the_weights_part_is_called_so(made, folder):
    run = gather(folder)

    layers = [replace(layer, weight_sqnr_db=None, sqnr_db=layer.input_sqnr_db) for layer in run.analysis.layers]
    run.analysis = replace(run.analysis, stage="int8", layers=layers)

    alone, compared = page([run]), page([gather(made[0]), run])
    assert ">Error, input only<" in alone
    assert "dB, input only" in alone  # in the picture
    assert ">Error A<" in compared
    assert ">Error, input only B<" in compared
    (stem,) = re.findall(r'<tr id="[^"]*" data-kind="int8" data-search="stem .*?</tr>', compared)
    assert not re.search(r'class="(better|worse|same)">[+−±]\d+\.\d<', stem)  # no difference in dB


def test_what_is_not_finite_is_on_the_page(folder):
    run = gather(folder)
    run.analysis = replace(run.analysis, never_finite=["relu.output"])

    assert "<code>relu.output</code>: NaN or Inf in every batch" in page([run])


def evil_run(folder):
    """A run in which every name is an attack."""
    run = gather(folder)
    program = run.program
    renamed = {op.name: f"{EVIL}{op.name}" for op in program.ops}
    run.program = replace(
        program,
        history=(PassApplied(EVIL, {EVIL: EVIL}),),
        ops=tuple(OpOutline(renamed[op.name], EVIL, tuple(renamed.get(one, one) for one in op.reads)) for op in program.ops),
        records=tuple(
            replace(record, name=renamed.get(record.name, EVIL), why=Because(EVIL), source=EVIL)
            for record in program.records
        ),
    )
    analysis = run.analysis
    run.analysis = replace(
        analysis,
        tensors=[replace(one, name=EVIL + one.name) for one in analysis.tensors],
        layers=[replace(one, name=EVIL + one.name, inputs=[EVIL + name for name in one.inputs]) for one in analysis.layers],
        proposal=replace(analysis.proposal, layers=[EVIL], not_quant_pattern=[EVIL]),
    )
    run.bench["profiles"][0]["findings"][0] |= {"layer": EVIL, "why": EVIL, "remedy": EVIL}
    run.bench["cpu"] = {"words": EVIL}
    run.verify["engine"] = EVIL
    run.troubles.append(EVIL)
    for record in run.metrics:
        record["phase"] += EVIL
    return run


def test_names_are_text_whatever_they_say(folder):
    elements = Elements(page([evil_run(folder)]))

    assert sum(tag == "script" for tag, _ in elements.found) == 3
    assert not any("alert(1)" in script for script in elements.scripts if "JSON.parse" in script)
    (data,) = [script for script in elements.scripts if script.startswith("{")]
    assert "<" not in data
    assert json.loads(data)["runs"][0]["layers"][0]["name"].startswith(EVIL)


def test_what_is_no_number_is_null_in_the_data_of_the_script(folder):
    run = gather(folder)
    run.analysis = replace(run.analysis, tensors=[replace(one, largest=math.inf) for one in run.analysis.tensors])

    (data,) = [script for script in Elements(page([run])).scripts if script.startswith("{")]

    assert json.loads(data)["runs"][0]["tensors"][0]["largest"] is None
    assert "Infinity" not in data


def test_only_the_pages_own_scripts_may_run(text):
    policy = next(attributes["content"] for tag, attributes in Elements(text).found if attributes.get("http-equiv"))

    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_two_runs_are_compared(made):
    text = page([gather(folder) for folder in made]).replace("\u202f", " ")

    assert "W4 A8" in text
    assert "W8 A8" in text
    assert "Δ dB" in text
    assert text.count('<div class="wide picture"') == 2
    changed = [attributes for tag, attributes in Elements(text).found if attributes.get("data-same") == "no"]
    assert changed


def test_a_run_compared_with_itself_has_not_changed(made):
    text = page([gather(made[1]), gather(made[1])])

    assert {attributes.get("data-same") for tag, attributes in Elements(text).found if "data-same" in attributes} == {"yes"}
    assert 'class="worse"' not in text
    assert 'class="better"' not in text


def test_runs_whose_folders_have_one_name_are_told_apart_by_the_folders_above(made, tmp_path):
    folders = [shutil.copytree(one, tmp_path / name / "run" / "out") for one, name in zip(made, "ab", strict=True)]
    (folders[0] / "metrics.jsonl").unlink()

    text = page([gather(one) for one in folders])

    assert "A · a/run/out" in text
    assert "B · b/run/out" in text
    assert "<span>a/run/out: Training curves</span>" in text
    assert ">out<" not in text


def test_errors_with_and_without_that_of_the_weights_are_not_subtracted(made):
    first, second = (gather(folder) for folder in made)
    first.analysis = replace(first.analysis, layers=[replace(layer, weight_sqnr_db=None) for layer in first.analysis.layers])

    first.bench = {}  # nor a change of time

    (stem,) = re.findall(r'<tr id="[^"]*" data-kind="int8" data-search="stem .*?</tr>', page([first, second]))

    assert stem.count("swatch") == 2
    assert not re.search('class="(better|worse|same)"', stem)


def test_a_layer_that_only_one_run_has_is_still_there(made):
    first, second = (gather(folder) for folder in made)
    second.program = replace(
        second.program, records=tuple(record for record in second.program.records if record.name != "block")
    )

    assert 'data-search="block ' in page([first, second])


def test_four_hundred_layers_make_a_page_in_seconds(tmp_path):
    text = page([deep_run(tmp_path, 400)])

    assert sum("node" in attributes.get("class", "") for tag, attributes in Elements(text).found if tag == "a") == 400


def test_equal_records_make_equal_pages(made, text):
    assert page([gather(made[1])]) == text


# the command


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)], terminal_width=200)


def test_the_command_writes_the_page_beside_the_run(folder):
    (folder / "bench.json").unlink()

    done = run(folder)

    assert done.exit_code == 0, done.output
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert "not shown: executed precision, time of each layer, memory; made by: quaver bench" in done.output


def test_the_command_compares_two_runs(made, tmp_path):
    done = run(*made, "--out", tmp_path / "folder" / "two.html")

    assert "comparison.html" in run("--help").output  # what it is called without --out
    assert done.exit_code == 0, done.output
    assert "Comparison" in (tmp_path / "folder" / "two.html").read_text()


def test_what_was_left_out_is_said(folder):
    (folder / "verify.json").write_text("{")

    assert "left out:" in run(folder).output


def test_what_cannot_be_done_is_one_message_and_exit_code_2(made, tmp_path):
    done = run(tmp_path / "none")

    assert done.exit_code == 2
    assert "there is no such folder" in done.output
    with pytest.raises(ConfigError, match="one folder, or two"):
        write_report([made[0]] * 3, tmp_path / "x.html")
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        write_report([made[0]], tmp_path / "taken" / "x.html")


def test_accuracy_on_some_images_is_told_apart_and_not_compared(folder):
    (folder / "verify.json").unlink()
    record = json.loads((folder / "report.json").read_text())
    record |= {"verified_images": 100, "deployed_top1": 0.99, "agreement": 1.0}
    (folder / "report.json").write_text(json.dumps(record))

    text = page([gather(folder)])

    assert "simulated int8 on 1,234 images" in text
    assert "deployed, 100 images" in text
    assert "89.50\u202f% top-1 in int8, 90.00\u202f% in float" in text
    assert "+9.00" not in text


@pytest.mark.parametrize("swapped", [False, True])
def test_accuracy_on_other_images_is_not_subtracted_in_a_comparison(made, folder, swapped):
    record = json.loads((folder / "verify.json").read_text())
    (folder / "verify.json").write_text(
        json.dumps(record | {"images": 100, "accuracy_simulated": 0.97, "accuracy_deployed": 0.98, "agreement": 0.5})
    )
    folders = [folder, made[0]][:: -1 if swapped else 1]

    text = page([gather(one) for one in folders]).replace("\u202f", " ")

    rows = dict(re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', text))
    assert "±0.00" in rows["Top-1, deployed int8"]  # both of the test set
    assert "98.00 %" in rows["Top-1, deployed, other images"]
    assert "of 100 images" in rows["Agreement of simulated and deployed"]
    assert "of 1,234 images" in rows["Agreement of simulated and deployed"]
    for name in ("Top-1, deployed, other images", "Agreement of simulated and deployed"):
        assert rows[name].endswith('<td class="n"></td>')


@pytest.mark.parametrize(("agreement", "integers", "exact"), [(1.0, 1.0, True), (0.5, 1.0, False), (1.0, 0.9, False)])
def test_bit_for_bit_is_said_only_where_classes_and_integers_all_agree(agreement, integers, exact):
    (card,) = cards(Figures(agreement=agreement, integers_equal=integers))

    assert (card.note == "bit for bit what was trained") == exact
