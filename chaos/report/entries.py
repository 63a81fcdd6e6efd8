"""Which entries an operation wrote or read, whatever its kind; see the shapes in the design.

An entry here is (key, seq, value): texts, and the seq as a number.
"""

from collections.abc import Iterator

from ..history import Operation

Entry = tuple[str, int, str]


def sent(one: Operation) -> list[tuple[str, str]]:
    """(key, value) of each record of an append; of other kinds none."""
    if one.f != "append":
        return []
    return [(key, value) for key, value in one.asked["records"]]


def acknowledged(one: Operation) -> Iterator[tuple[str, int | None, str]]:
    """What an append was told is in the log; the seq of a duplicate may be unknown."""
    if one.f == "append" and one.outcome == "ok":
        for (key, value), seq in zip(sent(one), one.answer["seqs"], strict=True):
            yield key, seq, value


def seen(one: Operation) -> Iterator[Entry]:
    """What a read of any kind returned."""
    if one.outcome != "ok":
        return
    if one.f in ("poll", "read"):
        key = one.asked["key"]
        for seq, value in one.answer["entries"]:
            yield key, seq, value
    elif one.f in ("scan", "follow"):
        for key, seq, value in one.answer["entries"]:
            yield key, seq, value
    elif one.f == "final":
        for key, entries in one.answer["keys"].items():
            for seq, value in entries:
                yield key, seq, value
