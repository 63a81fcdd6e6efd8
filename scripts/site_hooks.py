"""What MkDocs needs besides docs/: pages from the root of the repository, and lists of its dialect.

The documents are written for readers of the repository, in the Markdown of GitHub. MkDocs reads an
older dialect, in which the text of a list item stands behind four blanks. `for_mkdocs` rewrites a
page from the former to the latter.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Documents at the root, and their places in the site."""
COPIED: Final = {"LICENSE": "LICENSE.txt"}
_ITEM: Final = re.compile(r"( *)([-*+]|\d+[.)])( +)(?=\S)")
_FENCE: Final = re.compile(r" *(`{3,}|~{3,})")
_LAZY: Final = re.compile(r" *(?!`{3}|~{3})[^#|> ]")
_RULE: Final = re.compile(r"\|?[ :|-]*-[ :|-]*\|[ :|-]*$")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages from the root of the repository."""
    for source, place in (PAGES | COPIED).items():
        text = (ROOT / source).read_text("utf-8")
        if source in PAGES:
            text = re.sub(r"(\]\()docs/", r"\1", text)
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite a page before MkDocs renders the page."""
    for source, place in (PAGES | COPIED).items():
        markdown = re.sub(rf"(\]\((?:\.\./)*){source}(?=[)#])", rf"\1{place}", markdown)
    # docs/ is the root of the site.
    markdown = re.sub(
        r"(\]\()\.\./(LICENSE\.txt|changelog\.md|contributing\.md)", r"\1\2", markdown
    )
    return for_mkdocs(markdown)


def for_mkdocs(text: str) -> str:
    """Return a page of GitHub's Markdown in the dialect of MkDocs."""
    found = _Lists()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        behind = lines[number + 1] if number + 1 < len(lines) else ""
        found.take(line, is_table_head="|" in line and _RULE.match(behind) is not None)
    return "\n".join(found.lines) + "\n"


class _Lists:
    """Moves the text of list items to columns of four blanks a level."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._columns: list[int] = []
        """The column of the text of each open item, as GitHub sees the list."""
        self._fence = ""
        """The marks that end the open block of code."""
        self._outdent = 0
        """Blanks before the open block of code."""

    def take(self, line: str, *, is_table_head: bool) -> None:
        """Add the next line of the page."""
        if self._fence:
            self._in_code(line)
            return
        blank = not line.strip()
        if blank:
            self.lines.append("")
            return
        indent = len(line) - len(line.lstrip(" "))
        if self._goes_on(line, indent):
            self.lines[-1] += " " + line.strip()
            return
        is_item = self._is_item(line, indent)
        self._close(line, indent, is_item=is_item)
        item = _ITEM.match(line) if is_item else None
        if item:
            self._begin(item, line)
        elif opened := _FENCE.match(line):
            self._fence, self._outdent = opened[1], indent
            self.lines.append(self._margin() + _info(line.lstrip(" ")))
        else:
            if is_table_head and self._follows_text():
                self.lines.append("")
            plain = line[min(indent, self._columns[-1]) :] if self._columns else line
            self.lines.append(self._margin() + _cells(plain))

    def _is_item(self, line: str, indent: int) -> bool:
        within = self._columns[-1] if self._columns else 0
        return _ITEM.match(line) is not None and indent < within + 4

    def _goes_on(self, line: str, indent: int) -> bool:
        """Whether a line that begins like `0600. ` is text of the paragraph above the line.

        Only a list that begins with 1 may follow a paragraph without a blank line.
        """
        item = _ITEM.match(line)
        above = bool(self.lines and self.lines[-1].strip())
        within = indent >= (self._columns[-1] if self._columns else 0)
        return (
            item is not None and item[2][:-1].isdigit() and item[2][:-1] != "1" and above and within
        )

    def _close(self, line: str, indent: int, *, is_item: bool) -> None:
        """Close the items to which a line does not belong. Text right below an item belongs to
        it."""
        above = bool(self.lines and self.lines[-1])
        lazy = above and not is_item and _LAZY.match(line) is not None
        while self._columns and indent < self._columns[-1] and not lazy:
            self._columns.pop()

    def _begin(self, item: re.Match[str], line: str) -> None:
        if not self._columns and self._follows_text():
            self.lines.append("")
        margin = self._margin()
        self._columns.append(item.end())
        self.lines.append(f"{margin}{item[2]} {_cells(line[item.end() :])}")

    def _in_code(self, line: str) -> None:
        body = line[self._outdent :] if not line[: self._outdent].strip() else line.lstrip(" ")
        self.lines.append((self._margin() + body).rstrip() if not body else self._margin() + body)
        if body.strip() == self._fence:
            self._fence = ""

    def _margin(self) -> str:
        return " " * (4 * len(self._columns))

    def _follows_text(self) -> bool:
        """Whether the line above is text of a paragraph, from which a list does not begin."""
        return bool(self.lines and self.lines[-1].strip() and not self._is_open_item())

    def _is_open_item(self) -> bool:
        return _ITEM.match(self.lines[-1]) is not None


def _info(opening: str) -> str:
    """Return the first line of a block of code; `file=NAME` is its title."""
    return re.sub(r" file=(\S+)", r' title="\1"', opening)


def _cells(line: str) -> str:
    """Return a line of a table without the backslashes that keep `|` within code."""
    if not line.startswith("|"):
        return line
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
