"""The English of the tree: no idioms, short sentences in messages, test names that say what holds.

`tests/support/english.py` has the rules. A phrase is no offence within a longer word or a quotation
of code: reword the sentence instead of listing an exception.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import english
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "raft", "statemachine", "partitions", "node", "chaos", "scripts", "tests")
ITSELF = {"tests/support/english.py", "tests/unit/test_english.py"}
"""The files that must spell the idioms."""

GENERATED = {"docs/licences.md"}
"""Names of packages and licences, which other people wrote."""


def _readable(path: Path) -> bool:
    head = path.read_bytes()[:200]
    return path.suffix in (".py", ".md") or head.startswith(b"#!")


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    names = [name for name in listed if name and name not in ITSELF | GENERATED]
    return [path for path in map(ROOT.joinpath, names) if path.is_file() and _readable(path)]


def modules() -> Iterator[Path]:
    for path in files():
        if path.suffix == ".py" and "tests" not in path.relative_to(ROOT).parts:
            yield path


def _told(path: Path, text: english.Text, offence: str) -> str:
    return f"{path.relative_to(ROOT)}:{text.line}: {offence} in: {text.words:.160}"


def test_no_text_has_a_listed_idiom() -> None:
    found = [
        _told(path, text, offence)
        for path in files()
        if english.may_offend(source := path.read_text("utf-8"), english.IDIOMS)
        for text in english.texts(path.name, source)
        for offence in english.offences(text.words, english.IDIOMS)
    ]
    assert not found, "\n" + "\n".join(found)


def test_names_of_tests_are_sentences_with_a_subject() -> None:
    found = [
        _told(path, text, offence)
        for path in files()
        if path.name.startswith("test_")
        for text in english.test_names(path.read_text("utf-8"))
        for offence in english.offences(text.words, english.NAMES)
    ]
    assert not found, "\n" + "\n".join(found)


def test_messages_have_short_sentences_that_begin_with_a_noun() -> None:
    found = []
    for path in modules():
        for text in english.messages(ast.parse(path.read_text("utf-8"))):
            for sentence in english.sentences(text.words):
                found += [
                    _told(path, text, offence)
                    for offence in english.offences(sentence, english.MESSAGES)
                ]
                for part in english.parts(sentence):
                    if (count := len(part.split())) > english.MESSAGE_WORDS_MAX:
                        found.append(_told(path, text, f"{count} words: {part}"))
    assert not found, "\n" + "\n".join(found)


def test_sentences_of_pages_and_docstrings_begin_with_a_noun() -> None:
    found = []
    for path in files():
        source = path.read_text("utf-8")
        if path.suffix == ".md":
            texts, rules = english.texts(path.name, source), english.DOCUMENTS
        elif path.suffix == ".py" and "tests" not in path.relative_to(ROOT).parts:
            texts, rules = english.docstrings(ast.parse(source)), english.DOCSTRINGS
        else:
            continue
        for text in texts:
            for sentence in english.told(text.words):
                found += [_told(path, text, each) for each in english.offences(sentence, rules)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("- What came together passed together. So it was.", "what"),
        ("The range splits. Of its keys half go.", "of"),
        ("The disk was full. That is why files are kept.", "that is"),
    ],
)
def test_a_sentence_of_a_page_that_begins_without_a_noun_is_found(words: str, phrase: str) -> None:
    found = [
        each for part in english.told(words) for each in english.offences(part, english.DOCUMENTS)
    ]
    assert [each.split("`")[1] for each in found] == [phrase]


@pytest.mark.parametrize(
    "words",
    ["| what | share |", "## What each step costs", "That token may do everything.",
     "The node shows what it found."],
)  # fmt: skip
def test_a_sentence_of_a_page_that_begins_with_a_noun_passes(words: str) -> None:
    for part in english.told(words):
        assert not list(english.offences(part, english.DOCUMENTS))


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("a count that is none", "that is none"),
        ("Whoever follows the list is done.", "whoever"),
        ("So often in a row a piece fails to come.", "so often"),
        ("the outcome, three in a row", "in a row"),
        ("who is no member of the next one tells those who are", "who is no"),
        ("an ACTIVE node has to be there that is no member", "has to be there"),
        ("The answer tells who leads.", "who leads"),
        ("Say what became of the call.", "what became of"),
        ("this is no error", "is no e"),
        ("the names of those of which none is known", "of those of"),
        ("a key that is not among those that the token allows", "not among those"),
    ],
)
def test_each_idiom_is_found(words: str, phrase: str) -> None:
    assert f"`{phrase}`" in "".join(english.offences(words, english.IDIOMS))


@pytest.mark.parametrize(
    "words",
    ["There is no leader.", "the key is no longer there", "a field in a row of meta",
     "x = None if one is None", "the bytes that one connection holds"],
)  # fmt: skip
def test_plain_sentences_pass(words: str) -> None:
    assert not list(english.offences(words, english.IDIOMS))


def test_texts_of_every_kind_are_read(tmp_path: Path) -> None:
    """An idiom is found in a docstring, a comment over two lines, a message, a name and a page."""
    program = tmp_path / "test_a.py"
    program.write_text(
        '"""A page that\nis none."""\n\n# so\n# often\nraise ValueError(f"{1} that is none")\n\n\n'
        "def test_S1_who_leads(): ...\n"
    )
    page = tmp_path / "a.md"
    page.write_text("# A\n\nThe outcome, what\nbecame of it.\n\n```\nwho leads\n```\n- whoever\n")
    lines = [
        text.line
        for path in (program, page)
        if english.may_offend(source := path.read_text(), english.IDIOMS)
        for text in english.texts(path.name, source)
        for _ in english.offences(text.words, english.IDIOMS)
    ]
    assert sorted(lines[:4]) == [1, 4, 6, 9]
    assert lines[4:] == [3, 9]


def test_a_long_message_is_found() -> None:
    tree = ast.parse(f"raise ValueError('{'word ' * 21}. It is short: X')")
    (text,) = english.messages(tree)
    long, begun = english.sentences(text.words)
    assert len(long.split()) > english.MESSAGE_WORDS_MAX
    assert list(english.offences(begun, english.MESSAGES)) == ["`it`: begin with the noun"]
