"""Follow the log from its start with a credit of 2^62 bytes and read no push."""

import argparse

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame
from lognode.client.protocol.reads import FOLLOW


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection."""
    asked = await range_of(line, options.log)
    follow = {**asked, "keys": None, "prefix": b"", "start_key": b"", "end_key": None,
              "from_seq": 1, "credit": options.credit}  # fmt: skip
    follows = (frame.encode(n, FOLLOW.number, follow) for n in range(2, 2 + options.requests))
    await line.write(b"".join(follows))
    await line.until_closed()


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--requests", type=int, default=1, help="follows on each connection")
    parser.add_argument("--credit", type=int, default=1 << 62)
    main(attack, parser)
