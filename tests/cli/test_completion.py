"""A shell completes commands, flags and what flags take."""

import pytest
from typer.testing import CliRunner

from quaver.cli.main import app


def completions(typed):
    words = typed.split(" ")
    asked = {"_QUAVER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], prog_name="quaver", env=asked).stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("quaver ver", ["verify"]),
        ("quaver bench --thr", ["--threads", "--throughput"]),
        ("quaver quantize --target on", ["onnx"]),
        ("quaver quantize --bf16 ", ["true", "false"]),
        ("quaver quantize --recipe ", []),  # the shell offers files
    ],
)
def test_what_can_come_next_is_offered(typed, offered):
    assert completions(typed) == offered
