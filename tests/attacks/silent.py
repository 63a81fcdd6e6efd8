"""Connect and never say anything: at the port for clients, for peers, or for HTTP."""

import argparse

from attack import Line, arguments, main


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the node ends it."""
    await line.until_closed()


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.connect)
