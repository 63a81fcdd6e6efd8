"""Run a verb: parse, connect, do the work, and report an error in one line and an exit code.

0 done; 1 error; 2 usage error; 3 unhealthy; 4 a named log, range or node does not exist; 5
conflict; 6 the outcome of a write is unknown.
"""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence

from ..protocol.errors import Conflict, LognodeError, LogNotFound, NotFound
from . import (
    verbs_backup,
    verbs_bench,
    verbs_cluster,
    verbs_consume,
    verbs_cursors,
    verbs_groups,
    verbs_logs,
    verbs_nodes,
    verbs_producers,
    verbs_quotas,
    verbs_ranges,
    verbs_read,
    verbs_recover,
    verbs_reports,
    verbs_tokens,
    verbs_top,
    verbs_views,
    verbs_write,
)
from .parser import UsageError
from .printer import Printer
from .verb import Call, Verb, client_of
from .words import hint, verb_hint

VERBS = {
    verb.name: verb
    for verb in (
        *verbs_logs.VERBS, *verbs_write.VERBS, *verbs_read.VERBS, *verbs_ranges.VERBS,
        *verbs_cursors.VERBS, *verbs_groups.VERBS, *verbs_consume.VERBS, *verbs_views.VERBS,
        *verbs_recover.VERBS, *verbs_nodes.VERBS, *verbs_producers.VERBS, *verbs_quotas.VERBS,
        *verbs_cluster.VERBS, *verbs_top.VERBS, *verbs_reports.VERBS,
        *verbs_tokens.VERBS,
        *verbs_bench.VERBS, *verbs_backup.VERBS,
    )
}  # fmt: skip


def run(
    arguments: Sequence[str], known: Mapping[str, Verb] = VERBS, also: Iterable[str] = ()
) -> int:
    """Run the verb of `known` that the arguments begin with; return the exit code. `also`: names of
    other verbs, which a misspelt verb may have meant."""
    try:
        verb, rest = _find(arguments, known, (*known, *also))
        options = verb.parser().parse(rest)
    except UsageError as error:
        _note(f"lognode: {error}")
        return 2
    return asyncio.run(_run(verb, options))


def _find(
    arguments: Sequence[str], known: Mapping[str, Verb], names: Sequence[str]
) -> tuple[Verb, Sequence[str]]:
    for words in (2, 1):
        verb = known.get(" ".join(arguments[:words]))
        if verb is not None:
            return verb, arguments[words:]
    first, second = (*arguments, "")[:2]
    actions = [name.split()[1] for name in names if name.startswith(first + " ")]
    if actions:
        near = hint(second, actions) if second and not second.startswith("-") else ""
        needed = f"`lognode {first}` needs a second word: {' or '.join(actions)}"
        raise UsageError(needed + near)
    near = verb_hint(arguments, names)
    raise UsageError(f"there is no verb {first!r}{near or '; see `lognode --help`'}")


async def _run(verb: Verb, options: Namespace) -> int:
    try:
        client = client_of(options)
        call = Call(client, options, Printer(options.format), _note)
        try:
            code = await verb.run(call) or 0
            sys.stdout.flush()
            return code
        finally:
            await client.close(1.0)
    except UsageError as error:
        _note(f"lognode {verb.name}: {error}")
        return 2
    except LognodeError as error:
        _note(f"lognode {verb.name}: {_one_line(error.message)}{_step_after(error, verb)}")
        return exit_code(error, writes=verb.writes)


def _step_after(error: LognodeError, verb: Verb) -> str:
    """Return what the user of the verb does next, where the error does not know, or ""."""
    if error.code == "UNAVAILABLE" and not error.is_answer and "store" not in error.fields:
        return "; give the nodes of the cluster with --server"
    if isinstance(error, LogNotFound) and verb.name in ("append", "import"):
        return ", and `lognode log create` creates a log"
    if isinstance(error, LogNotFound) and verb.name.startswith("bench "):
        return ", and --ranges creates the log"
    return ""


def exit_code(error: LognodeError, *, writes: bool) -> int:
    """Return the exit code for an error of a verb; `writes`: whether the verb writes."""
    if writes and error.outcome == "unknown":
        return 6
    if isinstance(error, NotFound):
        return 4
    return 5 if isinstance(error, Conflict) else 1


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
