"""The verb `check` of `lognode-chaos`: judge histories that other systems or tests left.

Three formats are known, and recognised by their first line: registers as in Jepsen's etcd test,
key-value stores with get, put and append, and the `history.jsonl` of a lognode test, of which
conditional appends and linearizable reads are judged as a register. A file is one history. Each key
is judged alone, since linearizability is local (Herlihy and Wing, 1990).
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ..client.protocol.errors import InvalidArgument
from . import foreign
from .checkers import models, register, wgl
from .checkers.account import Account
from .checkers.wgl import Call, Model
from .history import History
from .verdict import EXIT_CODES, Verdict, worst

Say = Callable[[str], None]
Problem = tuple[Model, Mapping[str, Sequence[Call]]]
USAGE: Final = 2
"""Exit code for arguments that the parser refuses, and for files that are not histories."""
_VERDICTS: Final[dict[bool | None, Verdict]] = {True: "valid", False: "invalid", None: "unknown"}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", say: Say) -> None:
    """Add `check` and its options.

    The handler is called with the arguments and returns the exit code.
    """
    check = verbs.add_parser(
        "check",
        help="judge histories of registers and key-value stores",
        description="Say whether each history is linearizable, one line per file, with the first "
        "key "
        "and operation that have no place. The exit code is 0 when all are valid, 1 when a "
        "history is invalid, and 2 when a history is unknown or the file is not a history.",
    )
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="file of a history")
    check.add_argument(
        "--model",
        choices=("register", "kv"),
        help="kind of the history; default: the first line tells the kind",
    )
    check.add_argument(
        "--time-limit",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="time limit in seconds for a history, after which the verdict is unknown (60)",
    )
    check.set_defaults(verb=lambda arguments: run(arguments, say))


def run(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb and return the exit code. All files are read before any is judged."""
    problems: list[tuple[Path, Problem]] = []
    for path in arguments.paths:
        try:
            problems.append((path, load(path, arguments.model)))
        except (OSError, UnicodeDecodeError, InvalidArgument) as error:
            sys.stderr.write(f"lognode-chaos check: {path}: {error}\n")
            return USAGE
    verdicts = []
    for path, (model, calls) in problems:
        judgement = wgl.judge(model, calls, arguments.time_limit)
        verdicts.append(_VERDICTS[judgement.linearizable])
        size = f"{_count(len(calls), 'key')}, {_count(sum(map(len, calls.values())), 'operation')}"
        say(f"{path}: {verdicts[-1]}: {judgement.why()} ({size})")
    return EXIT_CODES[worst(verdicts)]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def load(path: Path, model: str | None = None) -> Problem:
    """Return the calls of a file by key, and their object: `register`, `kv`, or None to guess it.

    Raises OSError, UnicodeDecodeError, and InvalidArgument with the line that is not an event.
    """
    lines = path.read_text("utf-8").splitlines()
    calls: Mapping[str, Sequence[Call]]
    ours = next((line for line in lines if line.strip()), "").startswith('{"')
    if ours and model != "kv":
        of, calls = models.LOG_KEY, _ours(path)
    elif (model or _guess(lines)) == "kv":
        of, calls = models.TEXT, foreign.store(lines)
    else:
        of, calls = models.REGISTER, foreign.register(lines)
    if not calls:
        raise InvalidArgument("the history has no operation", what="history")
    return of, calls


def _ours(path: Path) -> Mapping[str, Sequence[Call]]:
    try:
        return register.calls_of(Account(History.read(path)))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidArgument(
            f"the events are not events of a register test: {error!r}", what="history"
        ) from None


def _guess(lines: Sequence[str]) -> str:
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("{:"):
        return "kv"
    if first.startswith("INFO"):
        return "register"
    raise InvalidArgument(
        f"line 1 is {first[:80]!r}, which does not begin a history; a history begins with "
        '`INFO  jepsen.util - ` (register), `{:process ` (kv) or `{"index"` (a '
        "history.jsonl)",
        what="history",
    )
