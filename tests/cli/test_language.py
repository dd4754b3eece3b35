"""Help in Chinese: whole, in step with the English one, and asked for by the locale or by ``--lang``."""

import re
import tomllib
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, Group
from rich.text import Text
from typer import rich_utils
from typer.main import get_command
from typer.testing import CliRunner

from option_tables import TABLES, words_of
from quaver.cli.language import TITLES, USAGE_WORDS, Language, catalogue, paragraphs
from quaver.cli.main import app
from quaver.cli.wrapping import WrappingText
from quaver.config.options import options_of
from twins import NUMBER

ROOT = Path(__file__).parent.parent.parent
CHINESE = catalogue(Language.CHINESE)
IN_HAND = {"LANGUAGE": None, "LC_ALL": None, "LC_MESSAGES": None, "LANG": "en_US.UTF-8"}


def run(*words, width=80, **environment):
    return CliRunner().invoke(app, words, env=IN_HAND | {"COLUMNS": str(width)} | environment)


@pytest.fixture(autouse=True)
def plain_screen(monkeypatch):
    """Whatever the machine that runs the tests has typer believe."""
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", False)
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", None)


def commands():
    group = get_command(app)
    return {"": group, **group.commands}


def sentences_of(command):
    parameters = [*command.params, command.get_help_option(command.make_context("quaver", [], resilient_parsing=True))]
    texts = [getattr(one, what, None) for one in (command, *parameters) for what in ("help", "rich_help_panel")]
    return [sentence for text in texts if text for sentence in paragraphs(text)]


def everything_said():
    help_texts = [sentence for command in commands().values() for sentence in sentences_of(command)]
    options = [words for kind in TABLES.values() for one in options_of(kind).values() for words in words_of(kind, one)]
    return {*help_texts, *options, *USAGE_WORDS, *(getattr(rich_utils, title) for title in TITLES)}


def test_every_sentence_of_the_help_and_of_the_tables_of_options_is_there_in_chinese():
    english = re.compile("[A-Za-z]+ [a-z]+ [a-z]+")  # no more than two such words follow on each other in a Chinese sentence
    missing = [one for one in sorted(everything_said()) if not CHINESE.keys(one) or english.search(CHINESE(one))]

    assert missing == [], "src/quaver/cli/zh.toml has no entry for these, or not for all of them"


def test_nothing_is_in_the_catalogue_that_is_not_said():
    said = {key for sentence in everything_said() for key in CHINESE.keys(sentence)}

    assert sorted(CHINESE.entries.keys() - said) == []


def test_a_sentence_in_chinese_has_the_figures_and_the_flags_of_the_english_one():
    def facts(sentence):
        return sorted(NUMBER.findall(sentence)), sorted(re.findall(r"--[\w-]+", sentence)), sentence.count("{}")

    assert [english for english, chinese in CHINESE.entries.items() if facts(english) != facts(chinese)] == []


@pytest.mark.parametrize("name", commands())
def test_the_help_of_a_command_is_chinese_to_the_last_sentence(name):
    shown = run(*name.split(), "--help", "--lang", "zh", width=400).output
    english = sentences_of(commands()[name])

    assert [sentence for sentence in english if CHINESE(sentence) not in shown] == []
    assert [sentence for sentence in english if f" {sentence} " in shown] == []
    assert [word for word in USAGE_WORDS if word in shown] == []


@pytest.mark.parametrize("name", commands())
def test_nothing_of_it_is_cut_on_a_narrow_screen(name):
    shown = run(*name.split(), "--help", "--lang", "zh", width=80).output

    assert re.findall(".*[一-鿿，。；：、（）] ?….*", shown) == []
    assert {cell_len(line) for line in shown.splitlines() if line} == {80}


@pytest.mark.parametrize("width", range(27, 43))
def test_a_text_is_broken_between_characters_and_in_front_of_no_stop(width):
    text = Text("名称，或 timm/NAME、（见 package.module:function）；默认：每个 batch 3,224,224。")
    screen = Console(file=StringIO(), width=width)

    screen.print(Group(WrappingText.of(text)))

    lines = [line.strip() for line in screen.file.getvalue().splitlines()]
    assert "".join(lines).replace(" ", "") == text.plain.replace(" ", "")
    assert max(map(cell_len, lines)) <= width
    assert [line for line in lines if line[0] in "，。；：、）" or line[-1] == "（"] == []
    assert min(map(cell_len, lines[:-1])) >= 10  # a line is filled as far as the next word allows


@pytest.mark.parametrize(
    ("message", "environment"),
    [
        (["--help"], {"LANG": "zh_CN.UTF-8"}),
        (["--help"], {"LC_MESSAGES": "zh_CN.UTF-8"}),
        (["--help"], {"LC_ALL": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}),
        (["--help"], {"LANGUAGE": "zh_CN:en"}),
        (["--lang", "zh"], {}),
        (["--lang=zh", "--help"], {"LC_ALL": "C"}),
        (["--help", "--lang", "zh"], {"LANGUAGE": "en"}),
        ([], {"LANG": "zh_CN.UTF-8"}),
    ],
)
def test_chinese_is_what_the_locale_says_or_the_flag(message, environment):
    assert "面向 PyTorch 视觉模型的量化感知训练" in run(*message, **environment).output


@pytest.mark.parametrize(
    ("message", "environment"),
    [
        (["--help"], {}),
        (["--help"], {"LANG": "fr_FR.UTF-8"}),
        (["--help"], {"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}),
        (["--help"], {"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}),
        (["--help"], {"LC_ALL": "C", "LANGUAGE": "zh"}),
        (["--lang", "en", "--help"], {"LANG": "zh_CN.UTF-8"}),
        (["--help", "--lang=en"], {"LANG": "zh_CN.UTF-8"}),
    ],
)
def test_help_is_english_otherwise(message, environment):
    before = run("--help").output

    assert "Quantization-aware training" in before
    assert run(*message, **environment).output == before


def test_a_screen_without_chinese_characters_has_english_unless_told_otherwise():
    plain = CliRunner(charset="ascii")
    in_china = IN_HAND | {"LANG": "zh_CN"}

    assert "Quantization-aware training" in plain.invoke(app, ["--help"], env=in_china).output
    assert "Quantization-aware training" not in plain.invoke(app, ["--help", "--lang", "zh"], env=in_china).output


def test_a_language_that_is_not_there_is_refused():
    done = run("check", "--lang", "tlh")

    assert done.exit_code == 2
    assert "'tlh' is not one of 'en', 'zh'" in done.output


def test_a_command_runs_as_ever_with_a_language(tmp_path):
    (tmp_path / "recipe.yaml").write_text("batch_size: 0\n")

    with_language = run("check", str(tmp_path / "recipe.yaml"), "--lang", "zh")

    assert with_language.exit_code == 1
    assert with_language.output == run("check", str(tmp_path / "recipe.yaml")).output


def test_the_wheel_has_every_file_of_the_package_that_is_no_code():
    package = ROOT / "src" / "quaver"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["quaver"]
    beside_code = [
        file.relative_to(package) for file in package.rglob("*") if file.is_file() and not file.suffix.startswith(".py")
    ]

    assert Path("cli/zh.toml") in beside_code
    assert [str(file) for file in beside_code if not any(fnmatch(str(file), one) for one in patterns)] == []
