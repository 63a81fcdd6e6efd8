"""Whether a consumer group keeps its promises: G1 to G6 of the design of groups.

`acked-twice`: an entry was acknowledged under two tokens. `token-twice`: two batches of a key have
one token. `stale-token`: a settle was accepted after the key had been handed out under a newer
token. `out-of-order`: an entry was acknowledged, and an earlier entry of the key was not. `passed`:
a batch begins behind an entry that nobody had acknowledged or skipped. `gap`, `reorder`: a batch
lacks an entry between two that it has, or its entries do not rise. `again`: an acknowledged entry
was in a batch that was handed out later. `parked-delivered`: a rejected key was delivered, though
nobody let it go on. `too-many-deliveries`: more than the group allows. `undelivered`: an entry was
not acknowledged in the end, though consumers waited; `held-up`, if another key was parked by then,
or if keys waited while a slow consumer held other keys and another consumer waited in vain.
`wrong-lag`: the group counts other entries than are left. In a group without an order these rules
hold for each entry by itself. `group_outputs` has the rules for outputs and dead letters.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from ..history import Operation
from ..verdict import Anomaly, Result
from .account import Account
from .group_account import ACK, NEVER, Delivery, GroupAccount, GroupKey, Hold, Item
from .group_outputs import counted, letters, outputs


def groups(account: Account, result: Result) -> None:
    """Check the group of a history."""
    group = GroupAccount(account)
    if group.is_copied_unknown:
        result.unknown.append("the dead letters of the group are unknown")
        return
    result.anomalies += outputs(group)
    result.anomalies += letters(group)
    for name, key in group.keys.items():
        for rule in (_tokens, _batches, _order, _again, _parked):
            result.anomalies += rule(name, key)
    holds = group.holds()
    result.anomalies += _held_up(holds)
    if group.end is None:
        result.unknown.append("the parked keys and the lag of the group at the end are unknown")
    elif not group.waited():
        result.unknown.append("no consumer waited in vain at the end")
    else:
        result.anomalies += _end(group, group.end)
    result.counts |= _counts(group) | counted(group)
    result.counts["slow consumers that held only their own keys up"] = sum(
        one.is_alone for one in holds
    )


def _tokens(name: str, key: GroupKey) -> Iterator[Anomaly]:
    """Find violations of G1: batches with equal tokens, and settles with the token of the past."""
    before: Delivery | None = None
    for one in key.deliveries:
        if before is not None and before.token == one.token:
            message = f"two batches of key {name} have token {one.token}"
            yield _anomaly("token-twice", message, name, "G1", before.operation, one.operation)
        before = one
    for item in key.items:
        newest = key.newest(item.operation.began)
        if item.is_sure and newest is not None and newest.token > item.token:
            yield _anomaly(
                "stale-token",
                f"{_name(item)} was accepted, though key {name} had been handed out under token"
                f" {newest.token} before",
                name, "G1", newest.operation, item.operation,
            )  # fmt: skip
        if item.what != ACK or not item.is_sure:
            continue
        for seq in item.seqs:
            first = key.acked[seq]
            if first.token != item.token:
                yield _anomaly(
                    "acked-twice",
                    f"seq {seq} of key {name} was acknowledged under tokens {first.token} and"
                    f" {item.token}",
                    name, "G1", first.operation, item.operation,
                )  # fmt: skip
                break


def _batches(name: str, key: GroupKey) -> Iterator[Anomaly]:
    """Find batches that are not the next entries of their key (G2)."""
    for one in key.deliveries:
        if list(one.seqs) != sorted(set(one.seqs)):
            message = f"a batch of key {name} has seqs {list(one.seqs)}"
            yield _anomaly("reorder", message, name, "G2", one.operation)
            continue
        begin, end = bisect_left(key.seqs, one.seqs[0]), bisect_left(key.seqs, one.seqs[-1] + 1)
        lacks = sorted(set(key.seqs[begin:end]) - set(one.seqs))
        if lacks:
            message = (
                f"a batch of key {name} has seqs {one.seqs[0]} to {one.seqs[-1]} without {lacks[0]}"
            )
            yield _anomaly("gap", message, name, "G2", one.operation)
        undone = key.undone(one.seqs[0], one.arrived)
        if undone is not None:
            yield _anomaly(
                "passed",
                f"a batch of key {name} begins at seq {one.seqs[0]}, before anybody had"
                f" acknowledged or skipped seq {undone}",
                name, "G2", one.operation,
            )  # fmt: skip


def _order(name: str, key: GroupKey) -> Iterator[Anomaly]:
    """Find acknowledgements of entries whose predecessors were not acknowledged (G2)."""
    for item in key.items:
        ended = item.operation.ended
        if item.what != ACK or not item.is_sure or not item.seqs or ended is None:
            continue
        undone = key.undone(item.seqs[-1], ended)
        if undone is not None:
            yield _anomaly(
                "out-of-order",
                f"seq {item.seqs[-1]} of key {name} was acknowledged before seq {undone}",
                name, "G2", item.operation,
            )  # fmt: skip


def _again(name: str, key: GroupKey) -> Iterator[Anomaly]:
    """Find deliveries of entries that were acknowledged under an earlier token (G3)."""
    for one in key.deliveries:
        for seq in one.seqs:
            acked = key.acked.get(seq)
            if acked is not None and acked.token < one.token:
                yield _anomaly(
                    "again",
                    f"seq {seq} of key {name} was acknowledged under token {acked.token}, and was"
                    f" delivered again under token {one.token}",
                    name, "G3", acked.operation, one.operation,
                )  # fmt: skip
                break


def _parked(name: str, key: GroupKey) -> Iterator[Anomaly]:
    """Find deliveries of a rejected key that nobody let go on. After its dead letter, the next
    entries of the key are delivered."""
    for item in key.items:
        if item.what != "reject" or not item.is_sure:
            continue
        began = item.operation.began
        decided = [one.operation.began for one in key.decisions if one.operation.ended is None
                   or one.operation.ended > began]  # fmt: skip
        for one in key.later(item.token):
            rejected = item.seqs[-1] if item.seqs else None
            if rejected in key.letters and rejected not in one.seqs:
                continue
            if not any(time < one.arrived for time in decided):
                yield _anomaly(
                    "parked-delivered",
                    f"key {name} was rejected under token {item.token}, and was delivered under"
                    f" token {one.token} without a retry or skip",
                    name, "G2", item.operation, one.operation,
                )  # fmt: skip
                break


def _end(group: GroupAccount, end: Operation) -> Iterator[Anomaly]:
    """Find entries that are left at the end, other than those of parked keys (G4, G5, G6)."""
    most = end.answer["max_deliveries"]
    parked = group.parked(end)
    left, stopped = 0, 0
    for name, key in group.keys.items():
        for one in key.deliveries:
            if one.deliveries > most:
                message = (
                    f"key {name} was delivered for the {one.deliveries}th time; the group allows"
                    f" {most} deliveries"
                )
                yield _anomaly("too-many-deliveries", message, name, None, one.operation)
        position = parked.get(name, NEVER)
        behind = len(key.seqs) - bisect_left(key.seqs, position)
        left += behind
        stopped += behind > 0
        undone = key.undone(position, NEVER)
        if undone is None:
            continue
        others = sorted(parked.keys() - {name})
        message = f"seq {undone} of key {name} was not acknowledged, though consumers waited"
        if others:
            message += f"; key {others[0]} was parked"
        yield _anomaly(
            "held-up" if others else "undelivered", message, name, "G5" if others else "G4", end
        )
    counted: dict[str, Any] = end.answer["lag"]
    if (counted["entries"], counted["parked"], len(parked)) != (left, stopped, stopped):
        yield _anomaly(
            "wrong-lag",
            f"the group counts {counted['entries']} entries and {counted['parked']} parked keys at"
            f" the end, and lists {len(parked)}; {left} entries of {stopped} parked keys are left",
            None, "G6", end,
        )  # fmt: skip


def _held_up(holds: Iterable[Hold]) -> Iterator[Anomaly]:
    """Find keys that waited because a slow consumer held other keys (G5)."""
    for one in holds:
        waiting = one.last.answer["waiting"]
        if waiting and one.in_vain is not None:
            message = (
                f"{waiting} keys waited though a consumer asked for keys, while a slow consumer"
                f" held {', '.join(one.last.asked['keys'])}"
            )
            yield _anomaly("held-up", message, None, "G5", one.last, one.in_vain)


def _counts(group: GroupAccount) -> dict[str, float]:
    keys = group.keys.values()
    items = [item for key in keys for item in key.items]
    deliveries = [one for key in keys for one in key.deliveries]
    return {
        "acknowledged entries": sum(len(key.acked) for key in keys),
        "batches": len(deliveries),
        "deliveries after a failure": sum(one.deliveries > 1 for one in deliveries),
        "refused settles": sum(item.is_refused for item in items),
        "parked keys at the end": 0 if group.end is None else len(group.end.answer["parked"]),
    }


def _name(item: Item) -> str:
    return f"{item.what} of key {item.key} under token {item.token}"


def _anomaly(
    name: str, message: str, key: str | None, promise: str | None, *operations: Operation
) -> Anomaly:
    return Anomaly(name, message, key, tuple(one.index for one in operations), promise)
