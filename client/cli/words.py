"""The words of a command line: flags of all verbs may stand before the verb, and a word that is
nearly a verb gets the verb as a hint."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

VALUE_FLAGS: Final = (
    "--server", "--cluster", "--tls-ca", "--tls-cert", "--tls-key", "--token-file", "--timeout",
    "--format",
)  # fmt: skip
"""The flags of all verbs that a value follows."""
SWITCHES: Final = ("--yes",)
"""The flags of all verbs without a value."""
_HINTS_MAX: Final = 3


def verb_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the verb first.

    Flags of all verbs that stand before a word go behind all words: `--server H:P log list` is `log
    list --server H:P`. Arguments without such a word are those of a node, and stay as they are.
    """
    at = 0
    while at < len(arguments):
        flag, equals, _ = arguments[at].partition("=")
        if flag in VALUE_FLAGS:
            at += 1 if equals else 2
        elif flag in SWITCHES:
            at += 1
        else:
            break
    before, rest = arguments[:at], arguments[at:]
    if not rest or rest[0].startswith("-"):
        return list(arguments)
    literal = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:literal], *before, *rest[literal:]]


def hint(given: str, known: Iterable[str]) -> str:
    """Return a text that names the words of `known` that are like the given word, or ""."""
    bare = {word.lstrip("-"): word for word in known}  # the dashes make all flags alike
    near = get_close_matches(given.lstrip("-"), sorted(bare), n=_HINTS_MAX)
    told = " or ".join(f"`{bare[word]}`" for word in near)
    return f"; did you mean {told}?" if near else ""
