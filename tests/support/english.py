"""The rules of the project's English that a program can check, and the texts that they hold for.

`IDIOMS` is the one list of phrases that strangers stumble over, each with what to write instead.
`texts` yields every text of a file: the strings, docstrings, comments and test names of a Python
program, the paragraphs of a page, the comment lines of a shell program. `messages` yields the
texts that users read while a program runs: errors, log lines and help.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple


class Text(NamedTuple):
    """A text of a file, with blanks in place of line breaks."""

    line: int
    words: str


IDIOMS: Mapping[str, str] = {
    r"\bthat (?:is|are|was|were) none\b": "say what is wrong: malformed, not valid, null, unset",
    r"\bwho(?:ever|mever|ms?oever)\b": "name the actor: every client, the member, the caller",
    r"\bso often\b": "say how many: consecutive failures, the retry limit",
    r"\bin a row\b(?! (?:of|about))": "say consecutive, or one after the other",
    r"\bwhat (?:comes|came|becomes|became) of\b": "say the result, or the outcome",
    r"\bwho leads\b": "say the leader",
    r"\bha(?:s|ve|d) to be there\b": "say that the thing must exist, or must run",
    r"\bof (?:those|them) of\b": "name the noun again",
    r"\bwho (?:is|are|was|were) no\b": "say who is not a member",
    r"(?<!there )(?<!these )\b(?:is|are|was|were) no "
    r"(?!longer|more\b|less\b|fewer|wider|better|worse|smaller|larger|such\b|doubt)[a-z]": (
        "say that the thing is not a member, not an error"
    ),
    r"\bnot among those\b": "say that the thing is outside of the list",
}
"""Pattern: what to write instead."""

NAMES: Mapping[str, str] = {
    r"^(?:what|who|whose|whom|whoever|whatever|those|that|of|it) ": (
        "begin with the subject: a client, an entry, the leader"
    ),
    r"\b(?:is|are) none$": "say what the thing is: ignored, refused, malformed",
}
"""Further patterns that no name of a test has, without its prefixes."""

MESSAGES: Mapping[str, str] = {
    r"^(?:it|they|them|those|these) ": "begin with the noun",
    r"^(?:of|what) ": "begin with the subject",
    r"\b(?:an)?other one\b(?! of)": "name the noun again",
}
"""Further patterns that no sentence of a message has."""

DOCSTRINGS: Mapping[str, str] = {
    r"^of ": "begin with the subject",
    r"^that (?:is|are|was|were|means|costs|goes|has|the|a)\b": "name the noun again",
}
"""Further patterns that no sentence of a docstring has, outside of tests.

A docstring of a value may be a noun clause: `What a node reports of itself.`
"""

DOCUMENTS: Mapping[str, str] = {**DOCSTRINGS, r"^what ": "begin with the subject"}
"""Further patterns that no sentence of a page has."""

MESSAGE_WORDS_MAX = 20
"""Words of a sentence of an error, a log line or a help text; a placeholder is one word."""

_PREFIX = re.compile(r"^(?:(?:[SLXPslx]|hole|trap)_?\d+ (?:to [SLX]\d+ |and L\d+ )?(?:\d+ )?)+")
_LOGGERS = {"debug", "info", "warning", "error", "exception", "critical"}


def offences(words: str, rules: Mapping[str, str]) -> Iterator[str]:
    """Yield each phrase of a text that a rule forbids, with what to write instead."""
    plain = words.lower()
    if _any(*rules).search(plain):
        for pattern, instead in rules.items():
            for found in re.finditer(pattern, plain):
                yield f"`{found[0].strip()}`: {instead}"


@cache
def _any(*patterns: str) -> re.Pattern[str]:
    """Return a pattern that finds whatever one of the patterns finds: a tenth of the time."""
    return re.compile("|".join(patterns))


def may_offend(source: str, rules: Mapping[str, str]) -> bool:
    """Whether any text of a file can break a rule. Far quicker than to read its texts.

    Joins the lines of a comment, of a paragraph and of a string in pieces, and takes code for text.
    """
    joined = re.sub(r"""["']?\s*\n\s*(?:\#+[!:]?\s*|[fr]*["'])?""", " ", source)
    return _any(*rules).search(re.sub(r"[\s_]+", " ", joined).lower()) is not None


def texts(name: str, source: str) -> Iterator[Text]:
    """Yield the texts of a file. The kind of the file follows from its name and first line."""
    if name.endswith(".md"):
        yield from _paragraphs(source)
    elif name.endswith(".py") or "python" in source.partition("\n")[0]:
        yield from _strings(ast.parse(source))
        yield from _comments(source)
        yield from test_names(source)
    else:
        for number, line in enumerate(source.splitlines(), 1):
            if (at := line.find("#")) >= 0:
                yield Text(number, line[at + 1 :].strip())


def test_names(source: str) -> Iterator[Text]:
    """Yield the names of the tests of a module, as sentences without the ids that they begin with.

    An id names a promise, an execution or a hole: `S1`, `x15`, `hole_6`.
    """
    for found in re.finditer(r"\bdef test_(\w+)", source):
        line = source.count("\n", 0, found.start()) + 1
        yield Text(line, _PREFIX.sub("", found[1].replace("_", " ")))


def messages(tree: ast.AST) -> Iterator[Text]:
    """Yield the texts of errors, log lines and help, with `X` in place of each value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _parts(node.exc.args)
        if isinstance(node, ast.Call):
            named = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if named in _LOGGERS:
                yield from _parts(node.args[:1])
            for keyword in node.keywords:
                if keyword.arg == "help":
                    yield from _parts([keyword.value])
            if isinstance(node.func, ast.Name) and node.func.id == "Verb":
                yield from _parts(node.args[1:2])


def sentences(words: str) -> list[str]:
    """Return the sentences of a message. A semicolon ends a sentence, too."""
    return [each.strip() for each in re.split(r"[.;!?](?:\s|$)", words) if each.strip()]


def told(words: str) -> list[str]:
    """Return the sentences of a paragraph, without the mark of a list item. Tables have none."""
    if words.startswith(("|", "#")):
        return []
    plain = re.sub(r"^(?:[-*>]|\d+\.)\s+", "", words)
    return [each.lstrip("*_") for each in re.split(r"(?<=[^.][.!?])\s+", plain)]


def docstrings(tree: ast.AST) -> Iterator[Text]:
    """Yield the docstrings of modules, classes, functions and values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield Text(node.lineno, _written(node.value))


def parts(sentence: str) -> list[str]:
    """Return the parts of a sentence that are counted by themselves: around colons and brackets."""
    return [each.strip() for each in re.split(r":\s|[()]", sentence) if each.strip()]


def _parts(nodes: list[ast.expr]) -> Iterator[Text]:
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr):
            words = _written(node)
            if " " in words.strip():
                yield Text(node.lineno, words)
        elif isinstance(node, ast.IfExp | ast.BinOp | ast.BoolOp):
            yield from _parts([e for e in ast.iter_child_nodes(node) if isinstance(e, ast.expr)])


def _written(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return " ".join(node.value.split()) if isinstance(node.value, str) else ""
    parts = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
    return " ".join("".join(map(str, parts)).split())


def _strings(tree: ast.AST) -> Iterator[Text]:
    inner = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
            words = _written(node)
            if " " in words:
                yield Text(node.lineno, words)


def _comments(source: str) -> Iterator[Text]:
    """Yield the comments of a program. Comments in consecutive lines are one text."""
    held: list[Text] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            held.append(Text(token.start[0], token.string.lstrip("#!: ")))
    while held:
        size = 1
        while size < len(held) and held[size].line == held[0].line + size:
            size += 1
        yield Text(held[0].line, " ".join(each.words for each in held[:size]))
        del held[:size]


def _paragraphs(page: str) -> Iterator[Text]:
    """Yield the paragraphs, list items and table rows of a page, without its blocks of code."""
    begun, held, code = 0, "", False
    for number, line in enumerate([*page.splitlines(), ""], 1):
        mark = line.lstrip()
        if mark.startswith("```"):
            code = not code
        if not mark or code or mark.startswith(("```", "|", "#", "- ", "* ")) or mark[0].isdigit():
            if held:
                yield Text(begun, held)
            begun, held = number, "" if code or mark.startswith("```") else mark
        else:
            begun, held = (begun, f"{held} {mark}") if held else (number, mark)
    if held:
        yield Text(begun, held)
