"""A range rule is a file and a line: a new one in a copy of the package goes the whole way."""

import os
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from subprocess import run

import pytest

import quaver

pytestmark = pytest.mark.slow

RULE = '''
from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax


class HalvedMovingAverage(MovingAverageAbsMax):
    """Half of the moving average."""

    kind = "halved_moving_average"

    @property
    def own_threshold(self):
        return super().own_threshold / 2
'''
WHOLE_WAY = """
import torch, quaver
from quaver.config import ACTIVATION_TYPES, WEIGHT_TYPES

config = {"activation_quantize_type": "halved_moving_average", "moving_rate": 0.5}
qat = quaver.quant_aware(torch.nn.Conv2d(3, 4, 3), config, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
images = torch.randn(4, 3, 8, 8)
qat(images)
quaver.save(qat, "saved")
frozen = quaver.convert(quaver.load("saved"))
(record,) = frozen.ops()
print("halved_moving_average" in ACTIVATION_TYPES and "halved_moving_average" in WEIGHT_TYPES)
print(torch.equal(torch.tensor(record.thresholds["input"][0]), images.abs().max() / 2))
print(torch.equal(frozen(images), qat.eval()(images)))
print(qat.quantizer("input").options()["moving_rate"])
"""


def test_a_range_rule_is_added_in_two_files(tmp_path):
    copytree(Path(quaver.__file__).parent, tmp_path / "quaver", ignore=ignore_patterns("__pycache__"))
    rules = tmp_path / "quaver" / "quantizers"
    (rules / "halved_moving_average.py").write_text(RULE)
    table, line = (rules / "__init__.py").read_text(), "RANGE_RULES = {\n"
    row = '    "halved_moving_average": RangeRule("halved_moving_average.HalvedMovingAverage", takes=("moving_rate",)),\n'
    (rules / "__init__.py").write_text(table.replace(line, line + row))

    command = [sys.executable, "-c", WHOLE_WAY]
    done = run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["True", "True", "True", "0.5"], done.stderr
