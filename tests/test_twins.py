"""Every page that a user reads is there in Chinese, too, and says the same."""

from pathlib import Path

import pytest

from twins import anchors_of, differences, original_of, twin_of

ROOT = Path(__file__).parent.parent
CONTRIBUTORS = {"layout.md"}
"""Pages of docs/ for those who work on Quaver itself; they, CONTRIBUTING and CHANGELOG are in English alone."""

IN_ENGLISH = [page for page in sorted((ROOT / "docs").glob("*.md")) if page == original_of(page)]
PAGES = [ROOT / "README.md", ROOT / "cpp" / "README.md", *(page for page in IN_ENGLISH if page.name not in CONTRIBUTORS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_and_its_twin_say_the_same_and_lead_to_each_other(page):
    twin = twin_of(page)

    assert differences(page, twin) == []
    assert f"\n\n[中文]({twin.name})\n\n" in page.read_text()
    assert f"\n\n[English]({page.name})\n\n" in twin.read_text()


def test_a_page_in_chinese_has_an_original():
    in_chinese = [page for folder in (ROOT, ROOT / "cpp", ROOT / "docs") for page in folder.glob("*.zh.md")]

    assert [page.name for page in in_chinese if original_of(page) not in PAGES] == []


ENGLISH = """# Title

[中文](page.zh.md)

It takes 3 minutes, see `quaver.save` and [the end](#the-end).

- one
- two, in 8 bits

| a | b |
|---|---|
| 1 | x |

```python
x = 1  # one
```

## The end
"""
CHINESE = """# 标题

[English](page.md)

只需 3 分钟，参见 `quaver.save` 和[结尾](#结尾)。

- 一
- 二，8 位

| 甲 | 乙 |
|---|---|
| 1 | x |

```python
x = 1  # 一
```

## 结尾
"""


@pytest.fixture
def compare(tmp_path):
    def written(english, chinese):
        (tmp_path / "page.md").write_text(english)
        (tmp_path / "page.zh.md").write_text(chinese)
        return differences(tmp_path / "page.md", tmp_path / "page.zh.md")

    return written


def test_a_translation_differs_in_nothing(compare):
    assert compare(ENGLISH, CHINESE) == []


@pytest.mark.parametrize(
    ("here", "gained", "said"),
    [
        ("## The", "## A section\n\n## The", "page.md:20: heading '## The end' against page.zh.md: its end"),
        ("## The", "Words.\n\n## The", "page.md:18: paragraph 'Words.' against page.zh.md:18: heading"),
        ("- one", "- none\n- one", "item '- two, in 8 bits' against page.zh.md:10: row"),
        ("| 1 | x |", "| 1 | x |\n| 2 | y |", "page.md:13: row '| 2 | y |' against page.zh.md:14: code"),
        ("| 1 | x |", "| 1 | x | y |", "columns: 2 against 1"),
        ("| 1 | x |", "| 2 | x |", "figures: Counter({'2': 1}) against Counter({'1': 1})"),
        ("3 minutes", "3 or 4 minutes", "page.md:5 and page.zh.md:5: figures:"),
        ("3 minutes", "`3` minutes", "names in code:"),
        ("8 bits", "8.5 bits", "figures: Counter({'8.5': 1}) against Counter({'8': 1})"),
        ("[the end](#the-end)", "the end", "links: Counter() against Counter({'page.md#1': 1})"),
        ("(#the-end)", "(#title)", "links: Counter({'page.md#0': 1}) against Counter({'page.md#1': 1})"),
        ("x = 1 ", "x = 2 ", "code: ```python\nx = 2  #\n``` against ```python\nx = 1  #\n```"),
        ("  # one", "", "code:"),
        ("# one", "# 1 is one", "figures: Counter({'1': 1}) against Counter()"),
        ("```\n", "```\n\n```\nmake\n```\n", "code '```"),
        ("## The", "### The", "level: 3 against 2"),
    ],
)
def test_what_one_side_gains_is_noticed(compare, here, gained, said):
    found = compare(ENGLISH.replace(here, gained, 1), CHINESE)

    assert said in "\n".join(found)


def test_what_the_twin_gains_is_noticed(compare):
    assert compare(ENGLISH, CHINESE.replace("8 位", "8 位，共 9 个")) != []
    assert compare(ENGLISH, CHINESE + "\n尾声。\n") == ["page.md: its end against page.zh.md:20: paragraph '尾声。'"]


def test_code_that_a_line_ends_in_is_one_name(compare):
    assert compare("It is `quaver\nsave`.", "即 `quaver save`。") == []


def test_a_page_in_chinese_leads_on_to_pages_in_chinese(compare, tmp_path):
    for name in ("other.md", "other.zh.md", "design.md"):
        (tmp_path / name).write_text("# Title\n")
    english, chinese = "See [1](other.md#title), [2](design.md).", "见 [1](other.zh.md#title)、[2](design.md)。"

    assert compare(english, chinese) == []
    assert "other.md, which has a twin#0" in compare(english, chinese.replace(".zh", ""))[0]


def test_headings_in_any_script_are_anchors():
    page = "# 1. The passes\n\n## PACT 与自定义函数\n\n```\n# a comment\n```\n"

    assert anchors_of(page) == ["1-the-passes", "pact-与自定义函数"]
