"""What commands write is whole: in a pipe, in a file, and on a screen of 80 columns."""

import pytest

from quaver.cli.consoles import progress_bar, progress_console, results_console, table_of

LONG = "runs/" + "x" * 150 + "/model.xml"


@pytest.fixture
def table():
    table = table_of("a title", "model", "|median ms")
    table.add_row(LONG, "1.234")
    return table


def test_a_pipe_has_every_row_in_one_line(table, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)

    results_console().print(table)

    (row,) = [line for line in capsys.readouterr().out.splitlines() if "1.234" in line]
    assert LONG in row


def test_on_a_screen_what_is_too_long_goes_on_in_the_next_line(table, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")

    results_console().print(table)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert LONG in "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))


def test_a_sentence_is_never_broken(capsys):
    results_console().print("word " * 100)

    assert capsys.readouterr().out == "word " * 100 + "\n"


def test_how_far_it_is_goes_to_standard_error_and_where_that_is_no_screen_nowhere(capsys):
    progress_console().print("half-way")
    with progress_bar() as progress, progress_console().status("working"):
        for _ in progress.track(range(3), description="counting"):
            pass

    assert capsys.readouterr() == ("", "half-way\n")
