"""`lognode-chaos`: the command line of the fault tests. Exit 0 valid, 1 invalid, 2 unknown."""

import argparse
import sys
from collections.abc import Sequence

from . import check
from .report import serve
from .sim import command


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def build_parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    parser = argparse.ArgumentParser(prog="lognode-chaos", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    check.add_verb(verbs, _say)
    command.add_verb(verbs, _say)
    serve.add_verb(verbs, _say)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    code: int = arguments.verb(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
