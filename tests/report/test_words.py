import pytest

from quaver.report.html import embedded, join, tag
from quaver.report.words import decibels, milliseconds, number, percent, points, size


def test_text_is_escaped_and_html_is_not():
    inner = tag("b", "<script>")

    made = tag("p", "1 < 2 & 3", inner, title='"quoted"')

    assert made == '<p title="&quot;quoted&quot;">1 &lt; 2 &amp; 3<b>&lt;script&gt;</b></p>'


def test_joined_to_text_html_is_text_again():
    assert tag("p", tag("b", "x") + "<i>") == "<p>&lt;b&gt;x&lt;/b&gt;&lt;i&gt;</p>"


def test_what_is_none_or_false_is_left_out():
    assert tag("input", type="checkbox", checked=False, id=None, disabled=True) == '<input type="checkbox" disabled>'
    assert join("a", None, False, ["b", 0]) == "ab0"


def test_embedded_data_cannot_end_its_element():
    made = embedded({"name": "</script><!--\u2028"})

    assert "<" not in made
    assert ">" not in made
    assert "\u2028" not in made
    assert made == '{"name":"\\u003c/script\\u003e\\u003c!--\\u2028"}'


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (percent(0.96378), "96.38 %"),
        (percent(0.9999942), "> 99.99 %"),
        (percent(1.0), "100.00 %"),
        (percent(None), ""),
        (points(-0.0012), "−0.12"),
        (points(0.00001), "±0.00"),
        (size(863704), "843 KiB"),
        (size(90 * 2**20), "90.0 MiB"),
        (milliseconds(0.4213), "0.421 ms"),
        (milliseconds(1234.5), "1,234 ms"),
        (number(0.00001234), "1.23e−5"),
        (number(4.0), "4.00"),
        (number(123.4), "123"),
        (number(-12345.0), "−12,345"),
        (number(0.0), "0.00"),
        (decibels(-3.14), "−3.1"),
    ],
)
def test_numbers_are_written_as_people_read_them(made, words):
    assert made.replace("\u202f", " ") == words
