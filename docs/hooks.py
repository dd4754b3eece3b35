"""Pages of the site that do not lie in docs/: they are read where they are, and their links are turned."""

import posixpath
import re
from functools import partial
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "README.zh.md": "index.zh.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "cpp/README.md": "cpp.md",
    "cpp/README.zh.md": "cpp.zh.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root; a link from them to another page leads to it on the site, too."""
    for source, page in PAGES.items():
        content = re.sub(r"\]\(([^):#]+)", partial(_on_the_site, source), (ROOT / source).read_text())
        files.append(File.generated(config, page, content=content))
    return files


def _on_the_site(source: str, link: re.Match[str]) -> str:
    target = posixpath.join(posixpath.dirname(source), link[1])
    return f"]({PAGES.get(target, target.removeprefix('docs/'))}"
