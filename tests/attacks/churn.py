"""Shake hands and leave, as fast as the node allows, on each connection anew."""

import argparse

from attack import Line, arguments, main


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    while True:
        await line.renew(Line.open)


if __name__ == "__main__":
    main(attack, arguments())
