"""Ask for 1,000 pages of 4 MiB on each connection and read none of them."""

import argparse

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame, limits
from lognode.client.protocol.reads import SCAN


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection."""
    asked = await range_of(line, options.log)
    scan = {**asked, "key": options.key.encode(), "start": 1, "end": None,
            "limit": limits.page_entries_max, "bytes": limits.page_bytes_max}  # fmt: skip
    # In one write: a node that looks at its send buffer before it starts a scan starts all of them.
    scans = (frame.encode(n, SCAN.number, scan) for n in range(2, 2 + options.requests))
    await line.write(b"".join(scans))
    await line.until_closed()


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--requests", type=int, default=1_000)
    main(attack, parser)
