import pytest

from quaver.report.number_format import change, decibels, milliseconds, number, percent, points, size


@pytest.mark.parametrize(
    ("made", "message"),
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
def test_numbers_are_written_as_people_read_them(made, message):
    assert made.replace("\u202f", " ") == message


@pytest.mark.parametrize(
    ("message", "more_is_better", "style"),
    [
        ("+0.5", True, "better"),
        ("−0.5", True, "worse"),
        ("+0.5", False, "worse"),
        ("−0.5", False, "better"),
        ("±0.0", False, "same"),
    ],
)
def test_a_change_is_coloured_by_its_sign_and_by_what_is_better(message, more_is_better, style):
    assert change(message, more_is_better=more_is_better).style == style
