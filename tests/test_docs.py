"""The snippets in README and guide are run, in order, as a reader would."""

import re
from pathlib import Path

import pytest

import quaver

ROOT = Path(__file__).parent.parent


PAGES = ["README.md", "docs/guide.md", "docs/training.md", "docs/analysis_and_report.md", "docs/eager.md", "docs/porting.md"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_python_snippet_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page}

    for snippet in snippets:
        exec(compile(snippet, page, "exec"), namespace)

    assert len(snippets) >= 2
    assert "Program (" in capsys.readouterr().out


def test_the_page_on_ultralytics_shows_the_classes_that_its_script_trains_with():
    script = (ROOT / "tests" / "ecosystem" / "ultralytics_trainer.py").read_text()
    classes = re.findall(r"^class .*?(?=^\S)", script.partition("import quaver\n")[2] + "\n", re.MULTILINE | re.DOTALL)
    page = (ROOT / "docs" / "ultralytics.md").read_text()

    assert len(classes) == 2
    assert [one for one in classes if one not in page] == []


def test_links_between_pages_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_every_public_name_is_in_the_reference():
    pages = {page.stem for page in (ROOT / "docs" / "api").glob("*.md")}
    explained = re.findall(r"^::: quaver\.(?:\w+\.)*(\w+)", (ROOT / "docs" / "api" / "index.md").read_text(), re.MULTILINE)

    assert set(quaver.__all__) == {*explained, "QuaverError", *pages & set(quaver.__all__)}
