"""Shake hands on each connection, and say nothing from then on."""

import argparse

from attack import Line, arguments, main


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the node ends it."""
    await line.until_closed()


if __name__ == "__main__":
    main(attack, arguments())
