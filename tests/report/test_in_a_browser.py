"""The report in a real browser: nothing goes wrong, and what can be clicked, hovered or typed does what it says."""

import json
import re
import shutil

import pytest

from browser import Browser
from quaver.report import gather, page, write_report
from runs import deep_run

pytestmark = pytest.mark.slow

NAMES = "[...document.querySelectorAll('.layers tbody tr:not([hidden]) .open')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def browser():
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="module")
def files(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_report([made[1]], folder / "one.html")
    write_report(made, folder / "two.html")
    (folder / "deep.html").write_text(page([deep_run(folder, 400)]))
    (folder / "unlike.html").write_text(page([gather(made[1]), deep_run(folder / "unlike", 12)]))
    return folder


@pytest.fixture
def shown(browser, files):
    opened = browser.open(files / "one.html")
    opened.value("try { localStorage.clear() } catch (error) {}")
    yield opened
    assert opened.errors == []


@pytest.mark.parametrize("name", ["one", "two", "deep"])
@pytest.mark.parametrize("dark", [False, True])
def test_no_page_has_errors_or_asks_the_network(browser, files, name, dark):
    opened = browser.open(files / f"{name}.html", dark=dark)

    assert opened.errors == []
    assert opened.value("performance.getEntriesByType('resource').length") == 0


def test_a_layer_named_like_a_script_is_only_a_name(browser, made, tmp_path):
    run = gather(made[1])
    name = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    run.program.records[0].__dict__["name"] = name
    run.analysis.layers[0].__dict__["name"] = name
    run.analysis.tensors[0].__dict__["name"] = name
    run.analysis.layers[0].inputs[:] = [name]
    (tmp_path / "evil.html").write_text(page([run]))

    opened = browser.open(tmp_path / "evil.html")
    opened.value("document.querySelector('.open').click()")
    opened.settle()

    assert "owned" not in opened.value("document.title")
    assert name in opened.value("document.querySelector('.details').textContent")
    assert opened.errors == []


# the table


def press_head(shown, title):
    shown.value(
        "[...document.querySelectorAll('.layers thead button')].find((one) => one.textContent === "
        + repr(title)
        + ").click()"
    )


def sorted_by(shown):
    return shown.value(
        "[...document.querySelectorAll('th[aria-sort]')].filter((one) => one.ariaSort !== 'none')"
        ".map((one) => [one.textContent, one.ariaSort])"
    )


def test_titles_sort_the_table_there_and_back(shown):
    names = shown.value(NAMES)

    press_head(shown, "Layer")
    first, head = shown.value(NAMES), sorted_by(shown)
    press_head(shown, "Layer")
    second, again = shown.value(NAMES), sorted_by(shown)

    assert first == sorted(names)
    assert second == first[::-1]
    assert (head, again) == ([["Layer", "ascending"]], [["Layer", "descending"]])


def test_the_worst_error_comes_first_and_what_has_none_last_either_way(shown):
    press_head(shown, "Error")
    first = shown.value(NAMES)
    press_head(shown, "Error")
    second = shown.value(NAMES)

    assert first[-1] == second[-1] == "head"  # it is float
    assert first[:-1] == second[:-1][::-1]
    values = shown.value(
        "[...document.querySelectorAll('.layers tbody tr:not([hidden])')].map((row) => row.cells[9].dataset.v)"
    )
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(numbers, reverse=True)


def test_titles_can_be_reached_and_pressed_by_keyboard(shown):
    shown.value("document.querySelectorAll('.layers thead button')[1].focus()")

    shown.press("Enter")

    assert sorted_by(shown) == [["Layer", "ascending"]]


def type_filter(shown, text):
    shown.value(
        f"(box => {{ box.value = {text!r}; box.dispatchEvent(new Event('input')); }})(document.querySelector('#filter'))"
    )


def test_the_filter_shows_only_what_has_all_words(shown):
    everything = shown.value(NAMES)

    type_filter(shown, "CONV stem")

    assert shown.value(NAMES) == ["stem"]
    assert shown.value("document.querySelector('#count').textContent") == f"1 of {len(everything)} layers"
    type_filter(shown, "")
    assert shown.value(NAMES) == everything


def test_a_reason_can_be_searched_for(shown):
    type_filter(shown, "skip pattern")

    assert shown.value(NAMES) == ["head"]


def test_precision_is_chosen_by_a_button(shown):
    shown.value("document.querySelector('.chip[data-kind=float]').click()")

    assert shown.value(NAMES) == ["head"]
    assert shown.value("document.querySelector('.chip[data-kind=float]').ariaPressed") == "true"
    assert shown.value("document.querySelector('.chip[data-kind=\"\"]').ariaPressed") == "false"


def test_fused_ops_are_rows_on_demand(shown):
    before = shown.value(NAMES)

    shown.value("document.querySelector('#fused').click()")

    added = set(shown.value(NAMES)) - set(before)
    assert added == {"bn", "relu", "relu_1"}
    assert "folded into 'stem'" in shown.value("document.querySelector('.layers').innerText")


def test_a_layer_opens_and_closes_with_its_histograms(shown):
    shown.value("document.querySelector('.open').click()")
    shown.settle()

    assert shown.value("document.querySelector('.open').ariaExpanded") == "true"
    assert shown.value("document.querySelectorAll('.details figure svg path.mark').length") == 2  # its input and its weight
    assert "defined at" in shown.value("document.querySelector('.details').textContent")
    shown.value("document.querySelector('.open').click()")
    assert shown.value("document.querySelector('.details')") is None


def test_details_close_when_the_table_is_sorted(shown):
    shown.value("document.querySelector('.open').click()")

    press_head(shown, "Type")

    assert shown.value("document.querySelectorAll('.details').length") == 0
    assert shown.value("document.querySelectorAll('.open[aria-expanded=true]').length") == 0


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", ["one", "two"])
def test_why_a_layer_is_float_is_seen_without_scrolling_sideways(browser, files, name, width):
    opened = browser.open(files / f"{name}.html", width=width)

    reason = opened.value("document.querySelector('tr[data-kind=float] .why').textContent")
    box = opened.value("document.querySelector('tr[data-kind=float] .why').getBoundingClientRect().toJSON()")
    cell = opened.value("document.querySelector('tr[data-kind=float] .name').getBoundingClientRect().toJSON()")

    assert "skip pattern" in reason
    assert box["right"] <= cell["right"] < width  # nor is it cut off


# figures


@pytest.mark.parametrize("width", [400, 1100])
def test_numbers_of_a_card_stand_below_each_other_with_or_without_a_difference(browser, made, tmp_path, width):
    run = shutil.copytree(made[1], tmp_path / "run")
    record = json.loads((run / "verify.json").read_text())
    (run / "verify.json").write_text(json.dumps(record | {"images": 100, "accuracy_deployed": 0.5}))
    write_report([run], tmp_path / "card.html")

    opened = browser.open(tmp_path / "card.html", width=width)

    ends = opened.value(
        "[...document.querySelectorAll('.card:first-child dd:first-of-type')].map((one) => {"
        " const range = document.createRange(); range.selectNodeContents(one.firstChild);"
        " return range.getBoundingClientRect().right; })"
    )
    assert len(ends) == 4  # float, simulated, deployed, and on other images
    assert max(ends) - min(ends) < 1


def test_on_a_phone_a_figures_number_of_images_does_not_push_the_change_out_of_sight(browser, made, tmp_path):
    folders = [shutil.copytree(one, tmp_path / name) for one, name in zip(made, "ab", strict=True)]
    record = json.loads((folders[0] / "verify.json").read_text())
    (folders[0] / "verify.json").write_text(json.dumps(record | {"images": 100}))
    write_report(folders, tmp_path / "two.html")

    opened = browser.open(tmp_path / "two.html", width=400)

    assert opened.value("document.querySelectorAll('#figures .over').length") > 0
    assert opened.value("(one => one.scrollWidth - one.clientWidth)(document.querySelector('#figures .wide'))") == 0


# pictures


def readout(shown, selector):
    return shown.value(f"document.querySelector({selector!r}).textContent")


def test_hovering_a_histogram_tells_the_values_of_a_bin(shown):
    selector = "#activations figure"
    resting = readout(shown, f"{selector} .readout")

    shown.hover(f"{selector} svg", across=0.3)
    over = readout(shown, f"{selector} .readout")
    shown.hover("h1")

    assert re.fullmatch(r"[−\d.e]+ … [−\d.e]+: [\d,]+ values, [\d.]+ %", over)
    assert "99.99 %" in resting
    assert readout(shown, f"{selector} .readout") == resting


def test_the_arrow_keys_walk_through_a_histogram(shown):
    shown.value("document.querySelector('#activations figure svg').focus()")

    shown.press("ArrowRight")
    first = readout(shown, "#activations figure .readout")
    shown.press("ArrowRight")
    second = readout(shown, "#activations figure .readout")

    assert "values" in first
    assert first.split(" … ")[1].split(":")[0] == second.split(" … ")[0]  # one bin ends where the next begins


def test_hovering_a_curve_tells_the_value_at_a_step(shown):
    shown.hover("#training figure svg", across=0.5)

    assert re.match(r"step \d+: [\d.]+", readout(shown, "#training figure .readout"))


def test_a_phase_of_one_evaluation_is_a_point(browser, made, tmp_path):
    run = shutil.copytree(made[0], tmp_path / "run")
    lines = [
        {"phase": phase, "step": 9, "evaluation": {"top1": top1}} for phase, top1 in (("float", 0.7), ("quantize", 0.8))
    ]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    write_report([run], tmp_path / "point.html")
    opened = browser.open(tmp_path / "point.html")

    places = opened.value("[...document.querySelectorAll('#training .point')].map((one) => Number(one.getAttribute('cx')))")
    assert len(places) == 2
    assert places[0] < places[1]
    assert opened.errors == []


def test_the_end_of_a_phase_stands_behind_its_own_label(browser, made, tmp_path):
    run = shutil.copytree(made[0], tmp_path / "run")
    lines = [{"phase": phase, "step": 9, "evaluation": {"top1": 0.7}} for phase in ("float", "quantize")]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    write_report([run], tmp_path / "phases.html")
    opened = browser.open(tmp_path / "phases.html")

    labels = opened.value(
        "Object.fromEntries([...document.querySelectorAll('#training text')]"
        ".map((one) => [one.textContent, Number(one.getAttribute('x'))]))"
    )
    first = opened.value("Number(document.querySelector('#training .point').getAttribute('cx'))")
    assert labels["float"] < first < labels["quantize"]


KEYS = "[...document.querySelectorAll('#training .keys span')].map((one) => [one.textContent, one.className])"


@pytest.mark.parametrize("with_curves", [0, 1])
def test_curves_that_only_one_of_two_runs_has_are_told_to_be_its(browser, made, tmp_path, with_curves):
    folders = [shutil.copytree(one, tmp_path / name) for one, name in zip(made, "ab", strict=True)]
    (folders[1 - with_curves] / "metrics.jsonl").unlink()

    write_report(folders, tmp_path / "two.html")
    opened = browser.open(tmp_path / "two.html")

    assert opened.value(KEYS) == [["ab"[with_curves], f"k{with_curves}"]] * 3
    assert opened.value("document.querySelector('#training .line').getAttribute('class')") == f"line s{with_curves}"
    assert readout(opened, "#training .readout").startswith(f"{'ab'[with_curves]} ")
    assert opened.errors == []


def test_phases_that_differ_are_marked_for_each_run(browser, made, tmp_path):
    folders = [shutil.copytree(one, tmp_path / name) for one, name in zip(made, "ab", strict=True)]
    lines = [{"phase": phase, "step": step, "loss": 1.0} for phase in ("warm up", "quantize") for step in range(5)]
    (folders[0] / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    write_report(folders, tmp_path / "two.html")
    opened = browser.open(tmp_path / "two.html")

    labels = opened.value(
        "[...document.querySelectorAll('#training figure:first-child text[class^=of]')]"
        ".map((one) => [one.getAttribute('class'), one.textContent, one.getAttribute('y')])"
    )
    assert labels == [["of0", "warm up", "12"], ["of0", "quantize", "12"], ["of1", "train", "25"], ["of1", "quantize", "25"]]


def test_a_picture_is_drawn_again_for_another_width(shown):
    before = shown.value("document.querySelector('#training figure svg').getAttribute('viewBox')")

    shown.size(700, 900)
    shown.wait(f"document.querySelector('#training figure svg').getAttribute('viewBox') !== {before!r}")

    width = shown.value("document.querySelector('#training figure svg').getBoundingClientRect().width")
    assert shown.value("document.querySelector('#training figure svg').viewBox.baseVal.width") == round(width)


def test_the_network_is_coloured_as_chosen(shown):
    colour = "getComputedStyle(document.querySelector('.node.p-int8 rect')).fill"
    before = shown.value(colour)

    shown.value("document.querySelector('#by-error').click()")

    assert shown.value(colour) != before
    assert shown.value("getComputedStyle(document.querySelector('.legend.by-error')).display") == "flex"
    assert shown.value("getComputedStyle(document.querySelector('.legend.by-precision')).display") == "none"


def test_a_node_of_the_network_leads_to_its_row(shown):
    type_filter(shown, "nothing has these words")

    shown.value(
        "[...document.querySelectorAll('a.node')].at(-1)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    shown.wait("document.querySelector('tr.found')")

    assert shown.value("document.querySelector('tr.found .open').textContent") == "head"
    assert shown.value("document.activeElement.textContent") == "head"
    assert shown.value("document.querySelector('#filter').value") == ""


LEADS_TO = """
[...document.querySelectorAll('a.node')].map((node) => [
  node.querySelector('title').textContent.split(' (')[0],
  document.querySelector(node.getAttribute('href')).querySelector('.open').textContent,
])
"""


def test_nodes_of_two_unlike_networks_lead_each_to_the_row_of_its_name(browser, files):
    opened = browser.open(files / "unlike.html")

    opened.value(
        "document.querySelector('.picture a.node').dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    opened.wait("document.querySelector('tr.found')")

    assert opened.value("document.querySelector('tr.found .open').textContent") == "stem"  # the first layer of the first run
    leads = opened.value(LEADS_TO)
    assert len(leads) == 5 + 12
    assert all(node == row for node, row in leads)
    assert (
        opened.value(
            "[...document.querySelectorAll('[id]')].map((one) => one.id).filter((id, at, all) => all.indexOf(id) < at)"
        )
        == []
    )
    assert opened.errors == []


# the page


def background(shown):
    return shown.value("getComputedStyle(document.body).backgroundColor")


def test_the_switch_changes_the_theme_and_the_page_remembers(browser, files, shown):
    light = background(shown)

    shown.value("document.querySelector('#theme').click()")

    assert background(shown) != light
    assert shown.value("document.querySelector('#theme').ariaPressed") == "true"
    other = browser.open(files / "one.html")
    other.wait("localStorage.getItem('quaver-theme') !== null")  # a busy browser takes its time to tell other pages
    again = browser.open(files / "one.html")
    assert background(again) != light
    again.value("localStorage.clear()")
    other.wait("localStorage.getItem('quaver-theme') === null")


def test_the_theme_is_the_systems_until_chosen(browser, files, shown):
    dark = browser.open(files / "one.html", dark=True)

    assert background(dark) != background(shown)
    assert dark.value("document.querySelector('#theme').ariaPressed") == "true"


CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const worst = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || one.closest("svg, script, .skip, .unseen") || !one.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(one).color).slice(0, 3)), light(behind(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) worst.push(`${one.tagName}.${one.className}: ${ratio.toFixed(2)}`);
  }
  for (const node of document.querySelectorAll(".node")) {
    const [a, b] = ["text", "rect"].map((part) => light(parse(getComputedStyle(node.querySelector(part)).fill)));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) worst.push(`node ${node.getAttribute("class")}: ${ratio.toFixed(2)}`);
  }
  return worst;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("way", ["precision", "error", "time"])
def test_all_text_can_be_read_in_both_themes(browser, files, dark, way):
    opened = browser.open(files / "one.html", dark=dark)
    opened.value("document.querySelector('.node rect').parentElement.classList.add('e6', 't6')")
    opened.value(f"document.querySelector('#by-{way}').click()")
    opened.value("document.querySelector('.open').click()")
    opened.settle()

    assert opened.value(CONTRAST) == []  # 4.5 to 1 is what WCAG asks for


def test_nothing_moves_while_the_page_loads(browser, files):
    opened = browser.open(files / "one.html")

    shift = opened.value(
        "new Promise((done) => { const sum = [0]; new PerformanceObserver((list) => {"
        " for (const entry of list.getEntries()) sum[0] += entry.value; }).observe({type: 'layout-shift', buffered: true});"
        " setTimeout(() => done(sum[0]), 300); })"
    )

    assert shift == 0


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("width", [360, 820, 1600])
def test_the_page_itself_never_scrolls_sideways(browser, files, name, width):
    opened = browser.open(files / f"{name}.html", width=width, height=800)

    assert opened.value("document.documentElement.scrollWidth") <= width


def test_it_prints_light_and_without_controls(browser, files):
    opened = browser.open(files / "one.html", dark=True)
    opened.media(dark=True, media="print")

    assert opened.value("getComputedStyle(document.querySelector('.top')).display") == "none"
    assert opened.value("getComputedStyle(document.querySelector('#filter')).display") == "none"
    assert opened.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.value("getComputedStyle(document.querySelector('#layers .wide')).maxHeight") == "none"
    assert opened.pdf().startswith(b"%PDF")


def test_on_paper_titles_repeat_charts_fill_their_cards_and_no_small_table_is_torn(browser, files):
    opened = browser.open(files / "one.html")
    opened.media(media="print")

    # Chromium 150 paints no text of a button in a header that is repeated on the next page
    assert opened.value("getComputedStyle(document.querySelector('.layers thead button')).display") == "contents"
    shapes = opened.value(
        "[...document.querySelectorAll('figure svg')].map((one) => { const box = one.getBoundingClientRect();"
        " return [box.width / box.height, one.viewBox.baseVal.width / one.viewBox.baseVal.height]; })"
    )
    assert all(abs(box / drawn - 1) < 0.01 for box, drawn in shapes)
    tops = opened.value("[...document.querySelectorAll('.chart')].map((one) => one.getBoundingClientRect().top)")
    assert len(tops) == 3
    assert len(set(tops)) == 1  # side by side
    assert opened.value("getComputedStyle(document.querySelector('.findings')).breakInside") == "avoid"


def test_four_hundred_layers_are_sorted_and_filtered(browser, files):
    opened = browser.open(files / "deep.html")

    opened.value(
        "(() => { document.querySelectorAll('.layers thead button')[1].click();"
        " const box = document.querySelector('#filter'); box.value = 'layer2'; box.dispatchEvent(new Event('input')); })()"
    )

    assert opened.value("document.querySelectorAll('.layers tbody tr:not([hidden])').length") == 100


def test_only_what_differs_is_shown_on_demand(browser, files):
    opened = browser.open(files / "two.html")
    everything = opened.value(NAMES)

    opened.value("document.querySelector('#changed').click()")

    left = opened.value(NAMES)
    assert "stem" in left  # 4 bits and 8
    assert "head" not in left
    assert len(left) < len(everything)


def test_every_control_has_a_name(shown):
    nameless = shown.value(
        "[...document.querySelectorAll('button, input, a, svg[tabindex], [role=region]')].filter((one) =>"
        " !(one.textContent.trim() || one.getAttribute('aria-label') || one.closest('label')?.textContent.trim()))"
        ".map((one) => one.outerHTML)"
    )

    assert nameless == []
