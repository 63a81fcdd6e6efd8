"""Every citation in the tree resolves to one place in the documents: see docs/design/README.md."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = ("client", "raft", "statemachine", "partitions", "node", "chaos", "tests", "scripts")
NOT_READ = ("tests/fuzz/", "tests/unit/test_citations.py")
"""Bytes that fuzzing found, and this file, whose examples are wrong on purpose."""

SAYING = re.compile(
    r'"""[\s\S]*?"""|#.*|(?:Violation\(|promise=)"\w+"|"[^"\n]*\((?:x\d|holes? \d)[^"\n]*"'
)
"""What a Python file says in words: docstrings, comments, the names of broken rules, and texts that
cite a rule in parentheses."""

RULE = re.compile(r"(?<![\w.\\/%+-])(?:x\d{1,2}(?:\.\d{1,2})?|[SLXP]\d{1,2})(?![\w-]|\.\d)")
COUNTED = re.compile(
    r"\b(hole|decision)s? (\d+(?:(?:, | and | or |, and )\d+)*)(?![\d.])", re.IGNORECASE
)
PATH = re.compile(r"(?<![\w/.-])((?:docs/)[\w/-]+\.md)(#[\w.-]+)?")
IN_NAMES = re.compile(r"(?:(?<=_)|^)(x2_\d+|x\d+|[SLX]\d+|hole_\d+)(?=_|$)")

VAGUE = {
    "a document without its path": re.compile(
        r"(?<![\w/.-])(?!README|CHANGELOG|CONTRIBUTING)[a-z][\w-]*\.md\b"
    ),
    "a numbered section of a document": re.compile(r"\.md,? (?:section )?\d"),
    "a rule of the executions by the number of its list": re.compile(
        r"\bexecutions \d|(?<=\()[12]\.[1-9]\d?(?=[),;])|(?<= )[12]\.[1-9]\d?(?=\)(?:\W|$))"
    ),
    "a rule of the executions with the number of the first list": re.compile(r"\bx1\.\d"),
}


def anchors(page: Path) -> list[str]:
    """The names in the page, as a browser of the repository knows them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r'<a id="([\w.-]+)">', text)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.append(words.replace(" ", "-"))
    return found


ANCHORS = {page: anchors(page) for page in PAGES}
RULES = [
    name
    for names in ANCHORS.values()
    for name in names
    if re.fullmatch(r"x\d+(\.\d+)?|[SLXP]\d+|(hole|decision)-\d+", name)
]


def files() -> list[Path]:
    """Everything that a person wrote: code, tests, scripts, golden scripts, patches, documents."""
    found = [*PAGES, *ROOT.glob("*.py"), ROOT / ".ci" / "run"]
    for folder in FOLDERS:
        found += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".txt", ".patch", ".md")
            or (folder == "scripts" and not path.suffix)
        ]
    return [
        path
        for path in sorted(set(found))
        if path.is_file() and not path.relative_to(ROOT).as_posix().startswith(NOT_READ)
    ]


def sayings(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The lines on which the file says something, and what is said."""
    if path.suffix == ".md":
        # Code in a document is not a statement of the document.
        yield 1, re.sub(r"`[^`\n]*`", lambda code: " " * len(code[0]), text)
    elif path.suffix != ".py" and not text.startswith("#!/usr/bin/env python"):
        yield 1, text
    else:
        for found in SAYING.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def cited(said: str) -> Iterator[tuple[int, str]]:
    """The rules that are cited: the place in the text, and the required anchor."""
    for found in RULE.finditer(said):
        yield found.start(), found[0]
    for found in COUNTED.finditer(said):
        for number in re.findall(r"\d+", found[2]):
            yield found.start(), f"{found[1].lower()}-{number}"


def wrong(name: str, text: str) -> Iterator[str]:
    """Each citation in the file that leads nowhere, or that is not written as the rules say."""
    path = Path(name)
    for first, said in sayings(path, text):

        def at(place: int, first: int = first, said: str = said) -> str:
            return f"{name}:{first + said.count(chr(10), 0, place)}: "

        for place, rule in cited(said):
            if rule not in RULES:
                yield f"{at(place)}{rule} stands in no document"
        if path.suffix == ".md":
            continue  # links of documents are held by test_docs and by the test below
        flat = re.sub(r"\n\s*#? ?", lambda gap: "\n" + " " * (len(gap[0]) - 1), said)
        flat = flat.replace("\n", " ")
        for found in PATH.finditer(flat):
            page, anchor = ROOT / found[1], (found[2] or "").lstrip("#").rstrip(".")
            if page not in ANCHORS or (anchor and anchor not in ANCHORS[page]):
                yield f"{at(found.start())}{found[0]} is in no document"
        for what, vague in VAGUE.items():
            for found in vague.finditer(re.sub(r" +", " ", flat)):
                yield f"{at(0)}{found[0]!r} is {what}"
    if path.suffix == ".py" and name.startswith("tests/"):
        for test in re.findall(r"def test_(\w+)|class Test(\w+)", text):
            for rule in IN_NAMES.findall("".join(test)):
                anchor = rule.replace("x2_", "x2.").replace("hole_", "hole-")
                if anchor not in RULES:
                    yield f"{name}: test_{''.join(test)}: {anchor} stands in no document"


def test_each_rule_stands_in_one_place() -> None:
    assert [name for name, times in Counter(RULES).items() if times > 1] == []
    assert {f"x{n}" for n in range(1, 30)} | {f"x2.{n}" for n in range(1, 28)} <= set(RULES)


def test_each_execution_has_a_test_that_names_it() -> None:
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for test in re.findall(r"def test_(\w+)", path.read_text("utf-8")):
            named.update(IN_NAMES.findall(test))
    assert {f"x{n}" for n in range(1, 30)} <= named


def test_every_citation_resolves() -> None:
    found = [
        line
        for path in files()
        for line in wrong(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_to_an_anchor(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text("utf-8"))
    missing = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text):
        other = (page.parent / target).resolve() if target else page
        if other not in ANCHORS or anchor not in ANCHORS[other]:
            missing.append(f"{target}#{anchor}")
    assert not missing


@pytest.mark.parametrize(
    "said",
    [
        "# Nothing is believed (x99).", "# See x2.99.", "# Promise S13.", "# hole 23",
        "# holes 1, 2 and 27", "# decision 12", "# docs/design/nowhere.md",
        "# docs/design/ranges.md#nowhere", "# ranges.md section 2", "# raft.md 2.12",
        "# executions 1.2", "# as said (2.10).", "# x1.24",
        'NAMES = {"_raft": "replaced (hole 27)"}', "# ranges.md says so",
        '"""A docstring that\n    cites ranges.md section 5."""', 'Violation("x98", "...")',
        "def test_x2_99_nothing(): ...", "def test_hole_23_nothing(): ...",
    ],
)  # fmt: skip
def test_a_citation_that_leads_nowhere_is_found(said: str) -> None:
    assert list(wrong("tests/unit/test_nothing.py", f"{said}\n"))


@pytest.mark.parametrize(
    "said",
    [
        "# Nothing is believed (x15, x2.10), S12, L1, X4, P11.", "# holes 1, 2 and 26",
        "# decision 5", "+0 x2.5", "# docs/design/ranges.md#routing", "# `README.md` says so.",
        "x1 = 5", "def test_x2_10_a_base_x15(): ...", "# 0.75 to 1.25", "# version 2.10",
    ],
)  # fmt: skip
def test_correct_citations_are_not_reported(said: str) -> None:
    assert not list(wrong("tests/unit/test_nothing.py", f"{said}\n"))
