"""Whether every entry that was told is an entry that was sent, at one seq, for ever.

`phantom`: no process sent the entry. `G1a` (Adya's name for an aborted read): its append had
failed. `inconsistent-seq`: one key and seq, two values. `duplicate`: one record at two seqs.
`nonmonotonic-poll`, `nonmonotonic-read`: the seqs of one answer do not rise. `poll-skip`,
`read-skip`: an answer leaves out an entry between two that it shows, or before the first.
"""

from collections.abc import Iterator
from typing import Any

from ..verdict import Anomaly
from .account import Account, View


def entries(account: Account) -> Iterator[Anomaly]:
    """Find all violations by single entries and single answers."""
    for one, key, seq, value in account.acks:
        yield from _place(account, key, seq, value, one.index)
    sound: dict[tuple[str, int], tuple[Any, int]] = {}
    for view in account.views:
        for seq, value in view.entries:
            # The same entry is shown repeatedly, and mostly later than at first.
            known = sound.get((view.key, seq))
            if known is not None and known[0] == value and known[1] <= view.ended:
                continue
            wrong = list(_entry(account, view, seq, value))
            yield from wrong
            if not wrong:
                sound[view.key, seq] = value, view.ended
        yield from _answer(account, view)


def _entry(account: Account, view: View, seq: int, value: Any) -> Iterator[Anomaly]:
    index = view.operation.index
    sent = account.sent.get(value)
    shows = f"{_name(view)} shows {value} at seq {seq} of key {view.key}"
    if sent is None:
        yield Anomaly("phantom", f"{shows}, which no client sent", view.key, (index,), "S5")
    elif sent.key != view.key:
        yield Anomaly(
            "phantom", f"{shows}, which was sent to key {sent.key}", view.key,
            (*sent.operations, index), "S5",
        )  # fmt: skip
    elif sent.refused:
        yield Anomaly(
            "G1a", f"{shows}, but its append failed and cannot have happened", view.key,
            (*sent.operations, index), "S11",
        )  # fmt: skip
    elif sent.began > view.ended:
        yield Anomaly(
            "phantom", f"{shows}, before it was sent", view.key, (*sent.operations, index), "S5"
        )
    yield from _place(account, view.key, seq, value, index)


def _place(account: Account, key: str, seq: int, value: Any, index: int) -> Iterator[Anomaly]:
    first = account.places[key][seq]
    if first != value:
        yield Anomaly(
            "inconsistent-seq", f"seq {seq} of key {key} is {first} and {value}", key, (index,),
            "S3",
        )  # fmt: skip
    sent = account.sent.get(value)
    if sent is not None and sent.key == key and sent.seq != seq:
        yield Anomaly(
            "duplicate", f"{value} of key {key} is at seq {sent.seq} and at seq {seq}", key,
            (*sent.operations, index), "S8",
        )  # fmt: skip


def _answer(account: Account, view: View) -> Iterator[Anomaly]:
    one = view.operation
    if one.f in ("follow", "take"):
        return  # the deliveries of a follower, and those of a group, are judged together
    before = view.after
    for seq, _ in view.entries:
        if seq <= before:
            name = "nonmonotonic-poll" if one.f == "poll" else "nonmonotonic-read"
            yield Anomaly(
                name, f"{_name(view)} shows seq {seq} of key {view.key} after seq {before}",
                view.key, (one.index,), "S4",
            )  # fmt: skip
        before = seq
    if one.f == "final":
        return  # entries missing at the end are lost
    if account.count_between(view.key, view.after, view.last) == len(view.entries):
        return
    shown = {seq for seq, _ in view.entries}
    missing = [s for s in account.between(view.key, view.after, view.last) if s not in shown]
    if missing:
        yield Anomaly(
            "poll-skip" if one.f == "poll" else "read-skip",
            f"{_name(view)} shows key {view.key} after seq {view.after} up to seq {view.last}, but"
            f" not {len(missing)} entries between, such as seq {missing[0]}",
            view.key, (one.index,), "S4",
        )  # fmt: skip


def _name(view: View) -> str:
    one = view.operation
    at = "" if one.node is None else f" at node {one.node}"
    return f"a {one.f}{at} of process {one.process}"
