"""`lognode token recover`: a new administrator's token when the last one is lost."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...client import tokens
from ...client.cli.parser import Parser
from ...client.protocol.private_files import write_private
from . import token_recovery

HELP: Final = "make a token that allows everything, for the user of a stopped node"


def parser() -> Parser:
    """Return the parser of `lognode token recover`."""
    made = Parser(
        prog="lognode token recover",
        description="Ask for a token that allows everything, as the user that runs the node. The "
        "node "
        "creates the token at its next start, which must be within an hour, when the "
        "controller has a majority.",
    )
    made.add_argument("--data", type=Path, required=True, metavar="DIR",
                      help="data directory of a stopped node of the cluster")  # fmt: skip
    made.add_argument("--principal", default="admin", metavar="PRINCIPAL",
                      help="name of the principal, which quotas and logs show "
                           "(default admin)")  # fmt: skip
    made.add_argument("--out", type=Path, metavar="FILE",
                      help="write the token to a file that only its owner may read")  # fmt: skip
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit code. Raises UsageError, InvalidArgument, Conflict,
    Unavailable."""
    options = parser().parse(arguments)
    token = tokens.draw()

    def keep() -> None:
        if options.out is not None:
            write_private(options.out, f"{token}\n".encode())

    token_recovery.ask(options.data, options.principal, token, time.time_ns() // 1_000_000, keep)
    note = f"note: token {tokens.id_of(token)} is valid after the next start of the node"
    sys.stderr.write(f"lognode: {note}, within an hour\n")
    sys.stdout.write(f"{token if options.out is None else tokens.id_of(token)}\n")
    return 0
