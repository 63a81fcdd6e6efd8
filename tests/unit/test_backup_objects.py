"""Objects of backups: where they end."""

import os

from lognode.client.backup.pieces import Cutter, pack
from lognode.client.backup.sealing import CONTENT_BYTES_MAX
from lognode.client.protocol import limits
from lognode.client.protocol.types import Entry


def test_an_object_ends_in_time_though_its_entries_are_mostly_headers() -> None:
    """Headers did not count: an object could be larger than a restore takes."""
    headers = {b"h": os.urandom(limits.header_bytes_max - 1)}
    cutter = Cutter()
    for seq in range(20_000):
        if Cutter().add(Entry(b"key", seq, 1, None, b"")):
            continue  # an object may end at this seq however small it is
        if cutter.add(Entry(b"key", seq, 1, headers, b"")):
            assert len(pack(cutter.taken())) < CONTENT_BYTES_MAX / 8
            return
    raise AssertionError("no object ended")
