"""Whether records that were resent with one number are there once, in the order of numbers.

`entries` and `final` find records that are there twice, or acknowledged and absent. This checker
finds `out-of-order`: a producer's records of a key are not in the order of their numbers.
"""

from collections.abc import Iterator

from ..verdict import Anomaly
from .account import Account, Sent


def once(account: Account) -> Iterator[Anomaly]:
    """Check every final read."""
    for one in account.finals:
        where = "the final read" if one.node is None else f"node {one.node}"
        for key, entries in one.answer["keys"].items():
            last: dict[str, tuple[int, Sent]] = {}
            for _, value in entries:
                sent = account.sent.get(value)
                if sent is None or sent.number is None:
                    continue
                before = last.get(sent.producer)
                if before is not None and sent.number < before[0]:
                    yield Anomaly(
                        "out-of-order", f"{where} holds {before[1].name} before {sent.name}", key,
                        (*before[1].operations, *sent.operations, one.index), "S4",
                    )  # fmt: skip
                last[sent.producer] = sent.number, sent
