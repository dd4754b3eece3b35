"""A recipe that is hard to read is refused with words, and quickly."""

import itertools
import os

import pytest

from quaver.config.load import load_recipe
from quaver.errors import ConfigError

LETTERS = "abcdefghi"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise(LETTERS)
)


def recipe(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, "utf-8")
    return load_recipe(path, {}, "quantize")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (BOMB, "more than 1000 values"),
        ("train: &t {lr: 1, <<: *t}\n", r"\*t is a part of itself"),
        ("train: &t [*t]\n", r"\*t is a part of itself"),
        ("".join(f"key{number}: 1\n" for number in range(20_000)), "more than 1000 values"),
        ("[" * 5000, "nested more than 20 levels"),
        ("{a: " * 3000, "nested more than 20 levels"),
        ("- " * 3000, "nested more than 20 levels"),
        ("seed: !!timestamp words\n", "a value cannot be read"),
        ("seed: !!int words\n", "a value cannot be read"),
        ("seed: !!bool words\n", "a value cannot be read"),
        ("seed: 0x" + "f" * 20_000, "a number is too large"),
        ("seed: " + "1" * 5000, "a value cannot be read"),
        ("? [a, b]\n: 3\n", "a key is a list or a table"),
        ("seed: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        ("x: " + "y" * (1 << 20), "bytes"),
        ("batch_size: 2026-13-45\n", "batch_size='2026-13-45': takes a whole number"),
        ("batch_size: 2026-01-01\n", "batch_size='2026-01-01': takes a whole number"),
        ("no: yes\n", "has no key 'no'"),
        ("train: {no: yes}\n", "has no key 'no'"),
        ("1: 2\n", "has no key '1'"),
        ("seed: [" + "x, " * 200 + "]\n", "seed=.{190,210}…: takes"),
        ("train: {lr: .inf}\n", "lr=inf: takes"),
    ],
)
def test_what_is_hard_to_read_is_refused_with_words(tmp_path, text, fact):
    with pytest.raises(ConfigError, match=fact):
        recipe(tmp_path, text)


def test_a_name_can_stand_for_a_few_values(tmp_path):
    found = recipe(tmp_path, "train: &t {lr: 0.3, num_epochs: 2}\nquantize: {<<: *t, lr: 0.1}\n")

    assert (found.train.lr, found.quantize.lr, found.quantize.num_epochs) == (0.3, 0.1, 2)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "recipe.yaml")

    with pytest.raises(ConfigError, match="a pipe or a device"):
        load_recipe(tmp_path / "recipe.yaml", {}, "train")
