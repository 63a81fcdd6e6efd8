"""Whether the outputs and the dead letters of a group are there exactly once.

Consumers append an output for each entry of a batch, and acknowledge the batch in the same step.
`torn`: of one such append some outputs are there, and others are not. `made-twice`: an entry has
two outputs. `made-out-of-order`: the outputs of a key are not in the order of their entries. An
output without its acknowledgement, and an acknowledgement without its outputs, are found by the
rules for acknowledgements (`again`, `undelivered`) and for appends (`lost-write`). In a group
without an order the outputs of a key come in any order.

`false-letter`: a dead letter differs from its entry, or its headers are wrong. `letter-twice`: an
entry has two dead letters, though no operator let its key go on in between. `dead-and-done`: an
entry has a dead letter and was acknowledged, though no operator let its key go on.
`letter-missing`: a key is parked at the end, though its entries become dead letters. An entry that
is passed without its dead letter is not done, as the rules for acknowledgements find.
"""

from collections.abc import Iterator
from typing import Final

from ..history import Operation
from ..verdict import Anomaly
from .account import Account, Sent
from .group_account import NEVER, GroupAccount, Letter

_HEADERS: Final = frozenset({
    "dead-letter-log", "dead-letter-key", "dead-letter-seq", "dead-letter-timestamp-ms",
    "dead-letter-group", "dead-letter-deliveries", "dead-letter-error",
})  # fmt: skip


def outputs(group: GroupAccount) -> Iterator[Anomaly]:
    """Find outputs that are there in part, twice, or in another order than their entries."""
    account = group.account
    made: dict[str, dict[int, Sent]] = {}
    """By key and seq of an entry, its output."""
    for one in _appends(account):
        entries = [(key, seq) for key, _, seqs in one.asked["acks"] for seq in seqs]
        sents = [account.sent[value] for _, value in one.asked["records"]]
        there = [sent.seq is not None for sent in sents]
        if any(there) and not all(there) and account.final() is not None:
            lacks = sents[there.index(False)]
            message = f"{lacks.name} is not there, and another output of the same append is"
            yield Anomaly("torn", message, lacks.key, (one.index,), "S10")
        for (key, seq), sent in zip(entries, sents, strict=True):
            if sent.seq is None:
                continue
            first = made.setdefault(key, {}).setdefault(seq, sent)
            if first is not sent:
                yield Anomaly(
                    "made-twice",
                    f"seq {seq} of key {key} has the outputs {first.name} and {sent.name}",
                    key, (*first.operations, *sent.operations), "S8",
                )  # fmt: skip
    for key, of_key in () if group.by_entry else made.items():
        last = 0
        for seq, sent in sorted(of_key.items()):
            place = sent.seq or 0
            if place < last:
                yield Anomaly(
                    "made-out-of-order",
                    f"the output of seq {seq} of key {key} is at seq {place}, and that of an"
                    f" earlier entry at seq {last}",
                    key, tuple(sent.operations), "G2",
                )  # fmt: skip
            last = max(last, place)


def letters(group: GroupAccount) -> Iterator[Anomaly]:
    """Find dead letters that are wrong, twice, or missing."""
    where = () if group.copied is None else (group.copied.index,)
    for letter in group.letters:
        why = _wrong(group, letter)
        if why is not None:
            message = f"the dead letter of key {letter.key} at seq {letter.seq} {why}"
            yield Anomaly("false-letter", message, letter.key, where, "S3")
    for name, key in group.keys.items():
        retries = sum(one.what == "retry" for one in key.decisions)
        for seq, copies in key.letters.items():
            if len(copies) > 1 + retries:
                message = f"seq {seq} of key {name} has {len(copies)} dead letters"
                yield Anomaly("letter-twice", message, name, where, "S8")
            acked = key.acked.get(seq)
            if acked is not None and not retries:
                message = f"seq {seq} of key {name} was acknowledged, and has a dead letter"
                operations = (acked.operation.index, *where)
                yield Anomaly("dead-and-done", message, name, operations, "G2")
    end = group.end
    if end is not None and str(end.answer.get("on_dead", "")).startswith("dead_letter:"):
        for name, position in end.answer["parked"]:
            message = (
                f"key {name} is parked at seq {position} at the end, though its entries become dead"
                " letters"
            )
            yield Anomaly("letter-missing", message, name, (end.index,), "G4")


def counted(group: GroupAccount) -> dict[str, float]:
    """Count dead letters, and outputs that are there."""
    account = group.account
    sents = [account.sent[value] for one in _appends(account) for _, value in one.asked["records"]]
    return {
        "dead letters": len(group.letters),
        "outputs": sum(sent.seq is not None for sent in sents),
    }


def _appends(account: Account) -> Iterator[Operation]:
    """Yield the appends with acknowledgements."""
    yield from (one for one in account.operations if one.f == "append" and one.asked.get("acks"))


def _wrong(group: GroupAccount, letter: Letter) -> str | None:
    """Return what is wrong with a dead letter, or None."""
    told, seq = letter.headers, letter.of
    if told.keys() != _HEADERS:
        return f"has the headers {', '.join(sorted(told))}"
    if told["dead-letter-key"] != letter.key:
        return f"says that it is of key {told['dead-letter-key']}"
    value = group.account.places.get(letter.key, {}).get(-1 if seq is None else seq)
    if value is None or value != letter.value:
        return f"has value {letter.value}; seq {told['dead-letter-seq']} of the key has {value}"
    deliveries = told["dead-letter-deliveries"]
    if not deliveries.isdecimal() or not 1 <= int(deliveries) <= _most(group):
        return f"says that {deliveries} deliveries failed"
    return None


def _most(group: GroupAccount) -> int:
    """Return how many deliveries the group allows; without a last look, any number."""
    most: int = NEVER if group.end is None else group.end.answer["max_deliveries"]
    return most
