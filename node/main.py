"""The program `lognode`: a verb, or without one a node."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..client.errors import LognodeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not arguments or arguments[0].startswith("-"):
            return _run_node(arguments)
        if arguments[0] == "dev":
            return _run_dev(arguments[1:])
    except LognodeError as error:
        sys.stderr.write(f"lognode: {error.message}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 2


def _run_node(arguments: Sequence[str]) -> int:
    from . import config, daemon

    parser = argparse.ArgumentParser(prog="lognode", allow_abbrev=False)
    config.add_flags(parser)
    return daemon.main(config.load(vars(parser.parse_args(arguments))))


def _run_dev(arguments: Sequence[str]) -> int:
    from . import dev

    parser = argparse.ArgumentParser(prog="lognode dev", allow_abbrev=False)
    parser.add_argument("-n", type=int, default=3, help="nodes")
    parser.add_argument("--data", type=Path, default=Path("lognode-dev"))
    parser.add_argument("--base-port", type=int, default=None)
    options = parser.parse_args(arguments)
    return dev.run(options.n, options.data, options.base_port)


if __name__ == "__main__":
    sys.exit(main())
