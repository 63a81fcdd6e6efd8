"""`lognode-chaos`: the command line of the fault tests. Exit 0 valid, 1 invalid, 2 unknown.

A test that cannot run as requested says nothing about lognode, and is unknown.
"""

import argparse
import sys
from collections.abc import Sequence

from ..client.protocol.errors import LognodeError
from . import check, commands
from .report import serve
from .sim import command
from .verdict import EXIT_CODES


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all verbs and their options."""
    parser = argparse.ArgumentParser(prog="lognode-chaos", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    commands.add_verbs(verbs, _say)
    check.add_verb(verbs, _say)
    command.add_verb(verbs, _say)
    serve.add_verb(verbs, _say)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.verb(arguments)
    except LognodeError as error:
        sys.stderr.write(f"lognode-chaos: {error}\n")
        return EXIT_CODES["unknown"]
    except KeyboardInterrupt:
        sys.stderr.write("lognode-chaos: interrupted\n")
        return EXIT_CODES["unknown"]
    return code


if __name__ == "__main__":
    sys.exit(main())
