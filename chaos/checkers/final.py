"""Whether every entry is there at the end, in a linearizable read and on every node.

`lost-write`: acknowledged, and absent. `vanished-read`: read before, and absent. `lost-on-node`:
absent on one node only. `unseen`: present, but missed by a reader that polled its key to the end
after the final read. An entry that no process has read yet is counted, but is not an error.
"""

from collections.abc import Iterator

from ..history import Operation
from ..verdict import Anomaly
from .account import Account, Sent


def final(account: Account) -> Iterator[Anomaly]:
    """Find entries missing at the end; none without a final read."""
    end = account.final()
    lost: set[str] = set()
    if end is not None:
        contents = _contents(end)
        for sent in account.sent.values():
            must = sent.acked is not None or (sent.seq is not None and not sent.refused)
            if must and sent.value not in contents.get(sent.key, {}):
                lost.add(sent.value)
                yield _lost(sent, list(contents.get(sent.key, {}).values()), end)
        yield from _unseen(account, end)
    for one in account.node_finals():
        contents = _contents(one)
        for sent in account.sent.values():
            must = sent.acked is not None or (sent.seq is not None and not sent.refused)
            if not must or sent.value in lost or not _has(one, sent.key):
                continue
            if sent.value not in contents.get(sent.key, {}):
                yield Anomaly(
                    "lost-on-node", f"node {one.node} does not hold {sent.name} at the end",
                    sent.key, (*sent.operations, one.index), "S2" if sent.acked else "L2",
                )  # fmt: skip


def _has(one: Operation, key: str) -> bool:
    """Whether the key is in a range that has the node as a member; without `spans`, all are."""
    spans = one.answer.get("spans")
    return spans is None or any(low <= key and (high is None or key < high) for low, high in spans)


def _contents(one: Operation) -> dict[str, dict[str, int]]:
    """Return seqs by key and value."""
    return {
        key: {value: seq for seq, value in entries} for key, entries in one.answer["keys"].items()
    }


def _lost(sent: Sent, seqs: list[int], end: Operation) -> Anomaly:
    if not seqs:
        where = "the whole key is gone"
    elif sent.seq is None:
        where = "its seq is unknown"
    elif sent.seq < seqs[0]:
        where = "before all that is left of the key (prefix)"
    elif sent.seq > seqs[-1]:
        where = "after all that is left of the key (postfix)"
    else:
        where = "amid what is left of the key (middle)"
    operations = (*sent.operations, end.index)
    if sent.acked is None:
        message = f"{sent.name} was read, and is not there at the end: {where}"
        return Anomaly("vanished-read", message, sent.key, operations, "S5")
    message = f"{sent.name} was acknowledged, and is not there at the end: {where}"
    return Anomaly("lost-write", message, sent.key, operations, "S2")


def _unseen(account: Account, end: Operation) -> Iterator[Anomaly]:
    assert end.ended is not None
    for view in account.views:
        one = view.operation
        if one.f != "poll" or not view.whole or one.began < end.ended:
            continue
        entries = end.answer["keys"].get(view.key, [])
        if entries and view.last < entries[-1][0]:
            yield Anomaly(
                "unseen",
                f"process {one.process} polled key {view.key} to its end after the final read, and"
                f" came to seq {view.last}; its last entry has seq {entries[-1][0]}",
                view.key, (one.index, end.index), "L2",
            )  # fmt: skip


def counts(account: Account) -> dict[str, float]:
    """Count the acknowledged entries, and those that only the final reads have seen."""
    seen = {
        (view.key, seq)
        for view in account.views
        if view.operation.f != "final"
        for seq, _ in view.entries
    }
    acked = [sent for sent in account.sent.values() if sent.acked is not None]
    unseen = sum((sent.key, sent.seq) not in seen for sent in acked)
    return {"acknowledged": len(acked), "unseen": unseen, "views": len(account.views)}
