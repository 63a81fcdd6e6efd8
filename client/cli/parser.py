"""The command line: one parser per verb, shared flags, and the types of their values.

A usage error is reported in one line, with exit code 2. Flags have no abbreviations and may stand
anywhere.
"""

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..durations import unix_ms
from ..protocol.types import Timestamp
from .examples import epilog
from .printer import FORMATS
from .words import hint

default_server = "127.0.0.1:4600"
_UNITS_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

When = tuple[str, int]
"""A time: ("ago", milliseconds), or ("at", Unix time in milliseconds)."""


class UsageError(Exception):
    """A usage error: exit code 2."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, without a usage block, and without abbreviations."""

    def __init__(self, *, also: Iterable[str] = (), **kwargs: Any) -> None:
        """`also`: flags that need a verb, which a misspelt flag may have meant too."""
        kwargs.setdefault("epilog", epilog(kwargs.get("prog", "")))
        super().__init__(**kwargs, allow_abbrev=False)
        self._also = tuple(also)

    def error(self, message: str) -> NoReturn:
        """Raise the error, where argparse prints a usage block and exits."""
        _, unknown, rest = message.partition("unrecognized arguments: ")
        meant = self._meant(rest) if unknown else ""
        raise UsageError(f"{message}{meant}; see `{self.prog} --help`")

    def _meant(self, rest: str) -> str:
        """Return a hint for the arguments that are left over, or ""."""
        flag = re.match(r"--[^\s=]+", rest)
        if flag is None and self._also:
            return ""
        if flag is None and not rest.startswith("-"):
            return "; put text with spaces in quotes"
        if flag is None:
            return "; an argument after `--` is not a flag"
        if flag[0] in ("--json", "--jsonl"):
            return f"; did you mean `--format {flag[0][2:]}`?"
        if flag[0] in self._also:
            return " without a verb"
        return hint(flag[0], (*self._option_string_actions, *self._also))

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse flags at any position. Arguments after `--` are taken literally, and `-10m` in
        `--from -10m` is a value."""
        joined: list[str] = []
        taken = False
        for argument in arguments:
            if taken:
                # No argument contains a NUL, so argparse does not take this text for a flag.
                joined.append("\0" + argument)
            elif argument == "--":
                taken = True
            elif joined and joined[-1] in ("--from", "--to") and re.match(r"-\d", argument):
                joined[-1] += f"={argument}"
            else:
                joined.append(argument)
        options = self.parse_intermixed_args(joined)
        for name, value in vars(options).items():
            if isinstance(value, str):
                setattr(options, name, value.removeprefix("\0"))
            elif isinstance(value, list):
                setattr(options, name, [item.removeprefix("\0") for item in value])
        return options


def add_common(parser: Parser) -> None:
    """Add the flags of every verb."""
    parser.add_argument(
        "--server", metavar="H:P,...",
        help=f"nodes of the cluster (environment LOGNODE_SERVER; default {default_server})",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="NAME",
        help="a cluster that the file ~/.config/lognode.toml names, with its addresses, TLS files "
             "and token (environment LOGNODE_CLUSTER)",
    )  # fmt: skip
    for name, text in (
        (
            "ca",
            (
                "file of the CAs that sign the nodes' certificates, for TLS; default with "
                "lognodes://: the CAs of the system"
            ),
        ),
        ("cert", "file of the client's certificate, for TLS"),
        ("key", "file of the private key of the client's certificate"),
    ):
        parser.add_argument(
            f"--tls-{name}", metavar="FILE",
            help=f"{text} (environment LOGNODE_TLS_{name.upper()})",
        )  # fmt: skip
    parser.add_argument(
        "--token-file", metavar="FILE",
        help="file that holds the token and that only its owner may read (environment "
             "LOGNODE_TOKEN_FILE; LOGNODE_TOKEN holds the token itself)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout",
        type=age_s,
        default=10.0,
        metavar="AGE",
        help="time limit of the command (default 10s)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="format of the output (default table)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_replica(parser: Parser) -> None:
    """Add the flags of verbs that read one key."""
    add_members(parser)
    parser.add_argument(
        "--through", type=whole, metavar="SEQ", help="wait until the replica has applied this seq"
    )


def add_members(parser: Parser) -> None:
    """Add the flags that choose the answering members and the required freshness."""
    parser.add_argument("--node", type=int, metavar="ID", help="read the replica of this node")
    add_consistency(parser)


def add_pattern(parser: Parser, verb: str) -> None:
    """Add the flag for patterns of keys."""
    parser.add_argument(
        "--pattern", action="append", metavar="P",
        help=f"{verb} only keys that match: `*` one level, `PREFIX*` within a level, `>` all "
             "levels that follow, `!P` excludes; may be repeated",
    )  # fmt: skip


def add_consistency(parser: Parser) -> None:
    """Add the flag for the required freshness of an answer."""
    parser.add_argument(
        "--consistency", choices=("linearizable", "prefix"), default="linearizable",
        help="linearizable: the answer shows every acknowledged append; prefix: any member "
             "answers, and the answer may be older (default linearizable)",
    )  # fmt: skip


def add_limit(parser: Parser, help_: str) -> None:
    """Add the flag for the greatest number of rows."""
    parser.add_argument("-n", "--limit", dest="limit", type=whole, metavar="N", help=help_)


def whole(text: str) -> int:
    """Return a whole number of 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def age_ms(text: str) -> int:
    """Return `10m`, `7d`, `500ms`, or a number of seconds, as milliseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age; write 30s, 10m, 12h or 7d")
    return int(float(match[1]) * _UNITS_MS[match[2] or "s"])


def age_s(text: str) -> float:
    """Return an age in seconds."""
    return age_ms(text) / 1000


def rule_ms(text: str) -> int | None:
    """Return an age with a unit in milliseconds, or None for `none`: a rule that was meant in days
    and taken in seconds would remove entries."""
    if text.isascii() and text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit; write {text}d, {text}h or {text}s")
    return None if text == "none" else age_ms(text)


def rule_bytes(text: str) -> int | None:
    """Return `512MiB`, `10GB` or a number of bytes in bytes, or None for `none`."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+)([kMGT]?B|[KMGT]iB|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; write a number of bytes, 512MiB, 10GB or none"
        )
    return int(match[1]) * (_UNITS_BYTES | _UNITS_DECIMAL)[match[2]]


def rule_whole(text: str) -> int | None:
    """Return a whole number, or None for `none`."""
    return None if text == "none" else whole(text)


def rate(text: str) -> int | None:
    """Return the rate of `10MB/s`, `512KiB/s` or `20000/s`, with or without the `/s`, or None
    for `none`."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+)([kMGT]?B|[KMGT]iB|)(/s)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate; write a number per second, 10MB/s, 512KiB/s or none"
        )
    return int(match[1]) * (_UNITS_BYTES | _UNITS_DECIMAL)[match[2]]


def time_ms(text: str) -> int:
    """Return a time in ISO 8601, UTC without a zone, as Unix time in milliseconds."""
    try:
        return unix_ms(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2026-11-28T16:00:00Z"
        ) from None


def bound(text: str) -> int | When:
    """Return a seq, or a time: an age such as `-10m`, or ISO 8601."""
    found = _seq_or_time(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an end; write a seq, -10m for ten minutes ago, or "
            "2026-11-28T16:00:00Z"
        )
    return found


def position(text: str) -> int | str | When:
    """Return a seq, `earliest`, `latest`, `snapshot`, or a time: an age such as `-10m`, or ISO
    8601."""
    if text in ("earliest", "latest", "snapshot"):
        return text
    found = _seq_or_time(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a position; write a seq, earliest, latest, snapshot, -10m for ten "
            "minutes ago, or 2026-11-28T16:00:00Z"
        )
    return found


def _seq_or_time(text: str) -> int | When | None:
    if text.startswith("-"):
        return ("ago", age_ms(text[1:]))
    if text.isascii() and text.isdigit():
        return int(text)
    return ("at", time_ms(text)) if re.match(r"\d{4}-\d", text) else None


def timestamp(when: When) -> Timestamp:
    """Return the time of a position or an end."""
    kind, ms = when
    return Timestamp(ms if kind == "at" else max(0, int(time.time() * 1000) - ms))


def expectation(text: str) -> int | str:
    """Return `any`, `absent`, or the key's last seq."""
    if text in ("any", "absent"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a condition; write any, absent or a seq")
