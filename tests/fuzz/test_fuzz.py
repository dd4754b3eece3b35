"""A small share of the cases of `run.py`: every reader reads what is damaged, or says why not."""

import warnings

import pytest
import torch

from fuzz.readers import READERS
from fuzz.run import PASSED, looked_at, one_case

pytestmark = pytest.mark.slow

SHARE, SEED = 20, 7


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_with_words_and_left_as_it_is(name, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        READERS[name].write(whole)

    outcomes = [one_case(READERS[name], whole, tmp_path / "case", name, SEED, case) for case in range(SHARE)]

    torch.set_rng_state(state)
    # how long a case may take is looked at where the machine is known: in run.py
    assert [words for outcome, words in outcomes if outcome not in (*PASSED, "slow")] == []
    assert any(outcome == "refused" for outcome, _ in outcomes)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_whole_is_read(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        READERS[name].write(tmp_path)
        if name == "cifar10":
            (tmp_path / "test_batch.bin").unlink()
            (tmp_path / "test_batch_2").rename(tmp_path / "test_batch")
        if name == "program":
            for folder in sorted(tmp_path.iterdir())[1:]:
                folder.rename(tmp_path.parent / f"{tmp_path.name}-{folder.name}")

        outcome = looked_at(READERS[name], tmp_path)

    assert outcome == ("read", "")
