"""The verb `sim --whole` of `lognode-chaos`: many seeds, or one with its trace."""

import argparse
import json
from collections.abc import Callable
from typing import Final

from ...client.protocol.errors import InvalidArgument
from ..verdict import EXIT_CODES
from .options import FAULTS, Choice

Say = Callable[[str], None]
_NOT_HERE: Final[dict[str, object]] = {
    "replay": None, "boundaries": False, "nodes": None, "seconds": 20.0, "shrink": False,
    "save": None, "open_holes": frozenset(), "having": None,
}  # fmt: skip
"""Options of the fast mode, with their defaults."""


def run(arguments: argparse.Namespace, say: Say) -> int:
    """Run the verb; return the exit code. Raises InvalidArgument for options of the fast mode."""
    for name, default in _NOT_HERE.items():
        if getattr(arguments, name) != default:
            flag = "--" + name.replace("_", "-")
            raise InvalidArgument(
                f"{flag} is an option of the fast mode. Leave out {flag} or --whole", what=name
            )
    if unknown := [name for name in arguments.faults or () if name not in FAULTS]:
        raise InvalidArgument(
            f"unknown fault of --whole: {', '.join(unknown)}; the allowed names are none, "
            f"{', '.join(FAULTS)}", what="faults",
        )  # fmt: skip
    # Imported here: the fast mode needs no daemon.
    from . import runner
    from .run import run_seed

    choice = Choice(arguments.workload, arguments.faults, arguments.with_)
    if arguments.seed is not None:
        plan = choice.plan(arguments.seed)
        outcome = run_seed(plan, say if arguments.trace else None, choice.additions(plan))
        runner.tell(outcome, say)
        return EXIT_CODES[outcome.verdict]
    first, end = arguments.seeds
    seeds = runner.Seeds(first, end, choice)
    if arguments.worker is not None:
        for outcome in seeds.part(*arguments.worker):
            say(json.dumps(outcome.to_json()))
        return EXIT_CODES["valid"]
    return runner.run(seeds, arguments.jobs, say)
