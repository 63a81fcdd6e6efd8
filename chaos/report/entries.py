"""The entries that an operation of any kind wrote or read; the design describes the shapes.

An entry here is (key, seq, value): texts, and the seq as a number.
"""

from collections.abc import Iterator

from ..history import Operation

Entry = tuple[str, int, str]


def sent(one: Operation) -> list[tuple[str, str]]:
    """Return (key, value) of each record of an append; nothing for other kinds."""
    if one.f != "append":
        return []
    return [(key, value) for key, value in one.asked["records"]]


def acknowledged(one: Operation) -> Iterator[tuple[str, int | None, str]]:
    """Yield the entries that an append was acknowledged; the seq of a duplicate may be unknown."""
    if one.f == "append" and one.outcome == "ok":
        unsure = one.answer.get("unsure", ())
        places = zip(sent(one), one.answer["seqs"], strict=True)
        for place, ((key, value), seq) in enumerate(places):
            if place not in unsure:
                yield key, seq, value


def seen(one: Operation) -> Iterator[Entry]:
    """Yield the entries that a read of any kind returned."""
    if one.outcome != "ok":
        return
    if one.f in ("poll", "read"):
        key = one.asked["key"]
        for seq, value in one.answer["entries"]:
            yield key, seq, value
    elif one.f in ("scan", "follow"):
        for key, seq, value in one.answer["entries"]:
            yield key, seq, value
    elif one.f == "take":
        for key, *_, entries in one.answer["batches"]:
            for seq, value in entries:
                yield key, seq, value
    elif one.f == "consume":
        for key, seq, value in (event for event in one.answer["events"] if len(event) > 2):
            yield str(key), seq, value
    elif one.f == "final":
        for key, entries in one.answer["keys"].items():
            for seq, value in entries:
                yield key, seq, value
