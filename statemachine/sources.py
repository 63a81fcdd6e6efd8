"""What a memtable gives to the builder: its batches, as the clients packed them."""

from typing import NamedTuple


class Source(NamedTuple):
    """A batch to build: its bytes, the positions that were new or None, its timestamp. `seqs`:
    the seqs of the new records, eight bytes each; None: they follow those of the batch before."""

    data: bytes
    selected: list[int] | None
    timestamp_ms: int
    seqs: bytes | None = None
