import subprocess
import sys
from pathlib import Path

import pytest

from limits import AN_HOUR

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(script, tmp_path):
    if script.stem.startswith("lightning"):
        pytest.importorskip("lightning")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=AN_HOUR)

    assert done.returncode == 0, done.stderr
    assert "int8" in done.stdout
    assert list(tmp_path.iterdir()) == []
