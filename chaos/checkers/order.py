"""Whether seqs rise as appends follow each other.

`realtime-order`: an append began after an entry of its key was known, and has the lower seq.
`nonmonotonic-send`: the later record of a producer to a key has the lower seq.
"""

from collections.abc import Iterator
from itertools import pairwise

from ..verdict import Anomaly
from .account import Account, Sent


def order(account: Account) -> Iterator[Anomaly]:
    """Check both rules over all records whose seq is known."""
    by_producer: dict[tuple[str, str], list[Sent]] = {}
    for sent in account.sent.values():
        if sent.seq is None:
            continue
        floor = account.floor(sent.key, sent.began)
        if sent.seq < floor:
            yield Anomaly(
                "realtime-order",
                f"{sent.name} was sent when seq {floor} of the key was known",
                sent.key, tuple(sent.operations), "S4",
            )  # fmt: skip
        if sent.acked is not None:
            by_producer.setdefault((sent.producer, sent.key), []).append(sent)
    for (producer, _), records in by_producer.items():
        records.sort(key=_order)
        for earlier, later in pairwise(records):
            if (later.seq or 0) < (earlier.seq or 0):
                yield Anomaly(
                    "nonmonotonic-send",
                    f"producer {producer} sent {earlier.name} before {later.name}",
                    later.key, (*earlier.operations, *later.operations), "S4",
                )  # fmt: skip


def _order(sent: Sent) -> tuple[int, int, int]:
    """Return the record number if there is one, else the place of sending."""
    return sent.number or 0, sent.operations[0], sent.place
