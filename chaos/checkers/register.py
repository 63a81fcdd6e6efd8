"""Whether conditional appends and reads of a key are those of a register with compare-and-set.

By seqs: `broken-condition`, an entry does not follow the entry that its append expected;
`wrong-refusal`, an append was refused with a last seq that it expected, or that was out of date. By
search (`wgl`): `nonlinearizable`, no order explains all answers of a key. The search does not rely
on the other rules.
"""

from collections.abc import Iterator

from ..history import Operation
from ..verdict import Anomaly, Result
from . import wgl
from .account import Account, View
from .models import LOG_KEY, UNSEEN, Last
from .wgl import Act, Call

_TIME_LIMIT_S = 60.0


def conditions(account: Account) -> Iterator[Anomaly]:
    """Find the violations that seqs alone show, in linear time."""
    whole = account.final() is not None
    for key, seqs in account.seqs.items():
        for before, seq in zip([0, *seqs], seqs, strict=False):
            sent = account.sent[account.places[key][seq]]
            # Without a final read there may be an entry that was never shown.
            if sent.expect is None or before == sent.expect:
                continue
            if before > sent.expect or whole:
                yield Anomaly(
                    "broken-condition",
                    f"{sent.name} expected seq {sent.expect}, but follows seq {before}",
                    key, tuple(sent.operations), "S9",
                )  # fmt: skip
    for one in account.operations:
        last = _refusal(one)
        if last is None:
            continue
        key, expect = one.asked["records"][0][0], one.asked["expect"]
        if last == expect or last < account.floor(key, one.began):
            yield Anomaly(
                "wrong-refusal",
                f"an append of process {one.process} to key {key} expected seq {expect}, "
                f"and the node refused the append because of last seq {last}; seq "
                f"{account.floor(key, one.began)} was known",
                key, (one.index,), "S9",
            )  # fmt: skip


def linearizable(account: Account, result: Result, time_limit_s: float = _TIME_LIMIT_S) -> None:
    """Search for a linear order; unknown when the search takes too long."""
    calls = calls_of(account)
    judged = wgl.judge(LOG_KEY, calls, time_limit_s)
    if judged.linearizable is None:
        result.unknown.append(judged.why())
    elif not judged.linearizable:
        operations = () if judged.stuck is None else (judged.stuck.index,)
        result.anomalies.append(
            Anomaly("nonlinearizable", judged.why(), judged.key, operations, "S7")
        )
    result.counts["keys"] = len(calls)
    result.counts["operations of a key, at most"] = max(map(len, calls.values()), default=0)


def calls_of(account: Account) -> dict[str, list[Call]]:
    """Return the calls to search: appends, refused appends, linearizable reads of whole keys."""
    calls: dict[str, list[Call]] = {}
    for one in account.operations:
        if one.f == "append":
            for key, call in _appends(account, one):
                calls.setdefault(key, []).append(call)
    for view in account.views:
        if view.linearizable and view.whole and not view.after and view.key in calls:
            calls[view.key].append(_read(view))
    return calls


def _appends(account: Account, one: Operation) -> Iterator[tuple[str, Call]]:
    expect = one.asked.get("expect")
    for key, value in one.asked["records"]:
        expected = None if expect is None else _seen(account, key, expect)
        if one.outcome != "fail":
            entry: Last = (account.sent[value].seq or UNSEEN, value)
            act: Act = ("append", expected, entry)
            shown = f"append of {value}" + ("" if expect is None else f" after seq {expect}")
        elif (last := _refusal(one)) is not None:
            act = ("refused", expected, _seen(account, key, last))
            shown = f"append refused for seq {last} where {expect} was expected"
        else:
            continue
        name = f"{shown} of process {one.process} (operation {one.index})"
        ended = one.ended if one.outcome != "info" else None
        yield key, Call(one.began, ended, act, name, one.index)


def _read(view: View) -> Call:
    one = view.operation
    last: Last = (view.entries[-1][0], view.entries[-1][1]) if view.entries else None
    shown = "nothing" if last is None else f"seq {last[0]} with {last[1]}"
    name = f"{one.f} of {shown} of process {one.process} (operation {one.index})"
    return Call(one.began, one.ended, ("read", last), name, one.index)


def _seen(account: Account, key: str, seq: int) -> int:
    return seq if not seq or seq in account.places.get(key, {}) else UNSEEN


def _refusal(one: Operation) -> int | None:
    """Return the key's last seq from a refusal of an append; None for any other reason."""
    if one.f != "append" or one.outcome != "fail" or not one.answer:
        return None
    last: int | None = one.answer.get("last")
    return last
