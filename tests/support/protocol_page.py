"""docs/protocol.md as a program reads it: messages are held against its tables alone."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"

Body = dict[str, Any]


class Row(NamedTuple):
    """A field as its table has it."""

    need: str
    kind: str
    meaning: str


class Page:
    """The page. `see` checks a message; what does not fit goes to `complaints`."""

    def __init__(self, text: str) -> None:
        self.numbers: dict[str, int] = {}
        """Operations and frames, by name."""
        self.about: dict[str, str] = {}
        self.tables: dict[tuple[str, str], dict[str, Row]] = {}
        """By operation (of a frame: its name) and `request`, `answer`, `push` or `frame`."""
        self.codes: dict[str, str] = {}
        """Codes of errors with their meanings."""
        self.details: dict[tuple[str, str], str] = {}
        """Fields of errors by code and name."""
        self.complaints: list[str] = []
        self.seen: set[tuple[str, str]] = set()
        """Messages that were checked, as in `tables`."""
        self._parse(text)

    @classmethod
    def read(cls) -> "Page":
        """The page in the tree."""
        return cls(PAGE.read_text("utf-8"))

    def _parse(self, text: str) -> None:
        name = ""
        for block in re.split(r"\n{2,}", text):
            heading = re.fullmatch(r"### (\w+) \((\d+)\)", block)
            if heading:
                name = heading[1]
                self.numbers[name] = int(heading[2])
            elif block.startswith("|"):
                self._parse_table(name, [_cells(line) for line in block.splitlines()])
            elif name and name not in self.about:
                self.about[name] = block

    def _parse_table(self, name: str, lines: list[list[str]]) -> None:
        head, rows = lines[0], lines[2:]
        if head[0] in ("request", "answer", "push"):
            self.tables[name, head[0]] = {row[0].strip("`"): Row(*row[1:]) for row in rows}
        elif head[0].isupper() and len(head) == 4:
            self.tables[head[0], "frame"] = {row[0].strip("`"): Row(*row[1:]) for row in rows}
        elif head[:2] == ["kind", "name"] and len(head) == 3:
            self.numbers.update((row[1], int(row[0])) for row in rows)
        elif head[:2] == ["code", "retryable"]:
            self.codes.update((row[0], row[2]) for row in rows)
        elif head[:2] == ["code", "field"]:
            self.details.update(((row[0], row[1].strip("`")), row[2]) for row in rows)

    def see(self, what: str, operation: str, body: Body) -> None:
        """Check a message: every field of it has to be on the page, and to be as it says."""
        self.seen.add((operation, what))
        if operation == "ERROR":
            self._see_error(body)
            return
        table = self.tables.get((operation, what), {})
        if operation not in self.numbers:
            self.complaints.append(f"{operation} is not on the page")
        self._see_map(f"{what} of {operation}", table, "", body)

    def _see_error(self, body: Body) -> None:
        self._see_map("ERROR", self.tables["ERROR", "frame"], "", body)
        code = body.get("code", "")
        if code not in self.codes:
            self.complaints.append(f"the code {code} is not on the page")
        for name in body.get("fields") or {}:
            if (code, name) not in self.details:
                self.complaints.append(f"the field {name} of {code} is not on the page")

    def _see_map(self, what: str, table: Mapping[str, Row], before: str, body: Body) -> None:
        if not isinstance(body, dict):
            return
        known = {path for path in table if path.startswith(before)
                 and not set(".[{") & set(path[len(before) :])}  # fmt: skip
        for name in body:
            if f"{before}{name}" not in known:
                self.complaints.append(f"{what}: {before}{name} is not on the page")
        for path in known:
            value = body.get(path[len(before) :])
            self._see_field(what, table, path, value)

    def _see_field(self, what: str, table: Mapping[str, Row], path: str, value: Any) -> None:
        row = table[path]
        if value is None:
            if row.need == "required" and not fits(row.kind, None):
                self.complaints.append(f"{what}: {path} is required and missing")
            return
        if not fits(row.kind, value):
            self.complaints.append(f"{what}: {path} is {value!r:.80}; the page: {row.kind}")
            return
        if row.kind.startswith("a map: the body of an ERROR frame"):
            self._see_error(value)
        self._see_inside(what, table, path, value)

    def _see_inside(self, what: str, table: Mapping[str, Row], path: str, value: Any) -> None:
        if any(other.startswith(f"{path}.") for other in table):
            if isinstance(value, dict):
                self._see_map(what, table, f"{path}.", value)
            elif isinstance(value, list):
                for other, row in table.items():
                    if other.rpartition(".")[0] == path:
                        self._see_field(what, table, other, value[int(row.need.split()[1])])
        for sign, values in (("[]", value), ("{}", value)):
            if any(other.startswith(f"{path}{sign}") for other in table):
                each = value.values() if isinstance(value, dict) else values
                for element in each if isinstance(value, dict | list) else ():
                    if element is not None:
                        self._see_inside(what, table, f"{path}{sign}", element)


def fits(kind: str, value: Any) -> bool:
    """Whether the value is what a table says: `kind` is the text of its third column."""
    kind, _, _ = kind.partition("; `")  # who checks the elements
    return any(_fits_one(each, value) for each in _alternatives(kind))


def _alternatives(kind: str) -> list[str]:
    """What a value may be, by the `, or ` outside of brackets."""
    if kind.startswith("(") and kind.endswith(")"):
        kind = kind[1:-1]
    found, depth = [""], 0
    for part in re.split(r"(, or |[()])", kind):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if part == ", or " and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return found


def _fits_one(kind: str, value: Any) -> bool:
    if kind == "nil":
        return value is None
    if kind.endswith(" or nil") and not kind.startswith("an array"):
        return value is None or fits(kind.removesuffix(" or nil"), value)
    if kind == "true or false":
        return type(value) is bool
    if kind.startswith("an integer of "):
        return type(value) is int and _within(kind.removeprefix("an integer of "), value)
    if kind.startswith("bytes with a length of "):
        return type(value) is bytes and _within(
            kind.removeprefix("bytes with a length of "), len(value)
        )
    if kind.startswith("bytes, "):
        length = kind.removeprefix("bytes, ").removesuffix(" of them")
        return type(value) is bytes and _within(length, len(value))
    if kind.startswith("a number of "):
        return type(value) in (int, float) and _within(kind.removeprefix("a number of "), value)
    if kind.startswith(("text", "`host:port`")):
        return type(value) is str and _fits_text(kind, value)
    if kind.startswith("one of "):
        return value in re.findall(r"`(\w+)`", kind)
    if kind.startswith("an array"):
        return isinstance(value, list) and _fits_array(kind, value)
    if kind.startswith("a map"):
        return isinstance(value, dict) and _fits_map(kind, value)
    return False


def _fits_text(kind: str, value: str) -> bool:
    match = re.fullmatch(r"text of (\S+ to \S+) (bytes|characters)( of UTF-8)? without .*", kind)
    if match is None:
        return not kind.startswith("text of")
    if any(unicodedata.category(character) == "Cc" for character in value):
        return False
    size = len(value) if match[2] == "characters" else len(value.encode())
    return _within(match[1], size)


def _fits_array(kind: str, value: Sequence[Any]) -> bool:
    match = re.match(r"an array of ([\d,]+ to [\d,]+) elements, each (.*)$", kind)
    if match is not None:
        return _within(match[1], len(value)) and all(fits(match[2], each) for each in value)
    match = re.fullmatch(r"an array \[(.*)\]", kind)
    if match is None:
        return kind.startswith(("an array: ", "an array, as", "an array whose"))
    return len(value) == len(match[1].split(", "))


def _fits_map(kind: str, value: Mapping[Any, Any]) -> bool:
    match = re.match(r"a map of at most ([\d,]+) elements, from (.*)$", kind)
    if match is None:
        return kind.startswith(("a map with ", "a map: ", "a map, as"))
    return len(value) <= _number(match[1]) and any(
        all(fits(keys, key) and fits(values, each) for key, each in value.items())
        for keys, values in _splits(match[2], " to ")
    )


def _splits(text: str, at: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(re.escape(at), text):
        yield text[: found.start()], text[found.end() :]


def _within(bounds: str, number: float) -> bool:
    low, _, high = bounds.partition(" to ")
    try:
        return _number(low) <= number <= _number(high)
    except ValueError:
        return False


def _number(text: str) -> int:
    return 2**63 - 1 if text == "2^63 - 1" else int(text.replace(",", ""))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]
