"""A page of the docs and its Chinese twin, block by block: what one of them says that the other does not."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

START = re.compile(r"(?P<code>```)|(?P<heading>#+ )|(?P<row>\|)|(?P<item>\s*(?:[-*]|\d+\.) )|(?P<note><!--)")
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:[.,]\d+)*")
COMMENT = re.compile(r"(^|(?<=\s))# .*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass
class Block:
    """A heading, paragraph, item of a list, row of a table, or piece of code, and the line it begins at."""

    kind: str
    line: int
    text: str

    def facts(self, page: Path) -> dict[str, object]:
        """What a translation leaves as it is."""
        if self.kind == "code":
            comments = " ".join(found[0] for found in COMMENT.finditer(self.text))
            return {"code": COMMENT.sub("#", self.text), "figures": Counter(NUMBER.findall(comments))}
        words = LINK.sub("]", re.sub(r"`[^`]+`", "", self.text))
        facts: dict[str, object] = {
            "figures": Counter(NUMBER.findall(words)),
            "names in code": {" ".join(name.split()) for name in re.findall(r"`([^`]+)`", self.text)},
            "links": Counter(link_in_english(page, link) for link in LINK.findall(self.text)),
        }
        if self.kind == "heading":
            return facts | {"level": self.text.index(" ")}
        return facts | ({"columns": self.text.count(" | ")} if self.kind == "row" else {})


def twin_of(page: Path) -> Path:
    """Where the Chinese page is."""
    return page.with_suffix(".zh.md")


def original_of(page: Path) -> Path:
    """Where the English page is; a page that is English is its own."""
    return page.with_name(page.name.replace(".zh.md", ".md"))


def blocks_of(text: str) -> list[Block]:
    """A page taken apart, but for the line that leads to its twin."""
    found: list[Block] = []
    open_block: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if open_block and open_block.kind == "code":
            open_block.text += f"\n{line}"
            open_block = None if line == "```" else open_block
        elif not line.strip() or line.startswith(("[中文](", "[English](")):
            open_block = None
        elif open_block is None or START.match(line):
            started = START.match(line)
            open_block = Block(started.lastgroup or "" if started else "paragraph", number, line)
            found.append(open_block)
        else:
            open_block.text += f"\n{line}"
    return found


def link_in_english(page: Path, link: str) -> str:
    """Where a link leads, as the English page says it: the original of the page, and the heading by its number there."""
    if link.startswith("http"):
        return link
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    place = f"#{anchors_of(target.read_text()).index(anchor)}" if anchor else ""
    right = target == page or not page.name.endswith(".zh.md") or not twin_of(target).exists()
    return f"{original_of(target).name if right else f'{target.name}, which has a twin'}{place}"


def anchors_of(text: str) -> list[str]:
    """What its headings are called in links, on GitHub and on the site."""
    headings = [block.text.lstrip("# ").lower() for block in blocks_of(text) if block.kind == "heading"]
    return [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings]


def differences(page: Path, twin: Path) -> list[str]:
    """Where the two part, a line each; where one of them has a block more, that is all that is said."""
    english, chinese = blocks_of(page.read_text()), blocks_of(twin.read_text())
    for ours, theirs in zip_longest(english, chinese):
        if ours is None or theirs is None or ours.kind != theirs.kind:
            shown = (f"{path.name}:{said(block)}" for path, block in ((page, ours), (twin, theirs)))
            return [" against ".join(shown)]
    return [
        f"{page.name}:{ours.line} and {twin.name}:{theirs.line}: {what}: {fact} against {theirs.facts(twin)[what]}"
        for ours, theirs in zip(english, chinese, strict=True)
        for what, fact in ours.facts(page).items()
        if fact != theirs.facts(twin)[what]
    ]


def said(block: Block | None) -> str:
    """A block in a few words."""
    return f"{block.line}: {block.kind} {block.text[:40]!r}" if block else " its end"
