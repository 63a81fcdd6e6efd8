"""The words of a command line: flags of all verbs may stand before the verb, and a word that is
nearly a verb, or a verb elsewhere, gets the verb as a hint."""

from collections.abc import Iterable, Mapping, Sequence
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
_MEANT: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("put", "write", "add", "push", "publish", "produce", "send"), ("append",)),
    **dict.fromkeys(("get", "read", "cat", "show", "dump", "export"), ("scan",)),
    **dict.fromkeys(("tail", "watch", "subscribe"), ("follow",)),
    **dict.fromkeys(("last", "head", "newest"), ("latest",)),
    **dict.fromkeys(("ls", "list"), ("log list", "keys")),
    **dict.fromkeys(("delete", "remove", "rm"), ("delete-key", "log delete")),
    **dict.fromkeys(("info", "describe"), ("status", "log describe")),
    "logs": ("log list",),
    "create": ("log create",),
    "nodes": ("node list",),
    "ranges": ("range list",),
    "groups": ("group list",),
}
"""Words for verbs that are usual elsewhere and not like the verbs."""
_OF_A_NODE: Final = ("start", "run", "serve", "server")
"""Words that begin a server elsewhere."""


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
    return _told([bare[word] for word in near])


def _told(words: Sequence[str]) -> str:
    told = " or ".join(f"`{word}`" for word in words)
    return f"; did you mean {told}?" if words else ""


def verb_hint(given: Sequence[str], known: Sequence[str]) -> str:
    """Return a text that names the verbs of `known` which the words may have meant, or ""."""
    if given[0] in _OF_A_NODE:
        return "; a node starts without a verb: `lognode --data DIR`"
    meant = _MEANT.get(given[0])
    return _told(meant) if meant else hint(" ".join(given[:2]), known) or hint(given[0], known)


def asked(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `help` and `version`, the words of many programs, as flags:
    `help scan` is `scan --help`."""
    if list(arguments) == ["version"]:
        return ["--version"]
    if arguments and arguments[0] == "help":
        return [*arguments[1:], "--help"]
    return list(arguments)
