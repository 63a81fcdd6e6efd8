"""Histories made by hand, for the tests of checkers: one call is one operation, begun and ended."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lognode.chaos.history import CLUSTER, Event, History, Type

Entries = Sequence[tuple[int, str]]
STEP_NS = 1_000_000


class Story:
    """Events a millisecond apart. A value `p3-17` is sent by process and producer 3."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.contents: dict[str, list[list[Any]]] = {}
        """By key what was acknowledged with a seq."""
        self.ordering = "key"
        """Of the group."""

    def event(
        self, process: int | None, type: Type, f: str, value: Any = None,  # noqa: A002
        *, error: str | None = None, node: int | None = None, after_ms: int = 1,
    ) -> None:  # fmt: skip
        """One line."""
        time = (self.events[-1].time if self.events else 0) + after_ms * STEP_NS
        self.events.append(Event(len(self.events), time, process, type, f, value, error, node))

    def do(
        self, process: int, f: str, asked: Any, answer: Any = None,
        *, type: Type = "ok", error: str | None = None, node: int | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        """An operation from begin to end."""
        self.event(process, "invoke", f, asked, node=node)
        self.event(process, type, f, answer, error=error, node=node)

    def append(
        self, value: str, seq: int | None, key: str = "k",
        *, type: Type = "ok", expect: int | None = None, last: int | None = None,  # noqa: A002
        number: int | None = None, process: int | None = None,
    ) -> None:  # fmt: skip
        """One record; of one that fails `last` says why."""
        asked = self.asked(value, key, expect=expect, number=number)
        answer: Any = {"seqs": [seq]} if type == "ok" else None
        if last is not None:
            answer = {"last": last}
        who = int(value[1:].split("-")[0]) if process is None else process
        self.do(who, "append", asked, answer, type=type, error=None if type == "ok" else "NO: no")
        if type == "ok" and seq is not None:
            self.contents.setdefault(key, []).append([seq, value])

    def asked(
        self, value: str, key: str = "k", *, expect: int | None = None, number: int | None = None
    ) -> dict[str, Any]:
        """What an append of one record asks."""
        asked: dict[str, Any] = {"producer": value.split("-")[0], "records": [[key, value]]}
        if expect is not None:
            asked["expect"] = expect
        if number is not None:
            asked["numbers"] = [number]
        return asked

    def read(
        self, process: int, entries: Entries, key: str = "k", *, consistency: str = "linearizable"
    ) -> None:
        """Of a whole key."""
        answer = {"entries": entries, "last": entries[-1][0] if entries else 0}
        self.do(process, "read", {"key": key, "consistency": consistency}, answer)

    def poll(
        self, process: int, after: int, entries: Entries, *, consistency: str = "linearizable",
        limit: int | None = None,
    ) -> None:  # fmt: skip
        """Of key k."""
        asked: dict[str, Any] = {"key": "k", "after": after, "consistency": consistency}
        if limit is not None:
            asked["limit"] = limit
        self.do(process, "poll", asked, {"entries": entries})

    def scan(self, process: int, entries: Sequence[tuple[str, int, str]], prefix: str = "") -> None:
        """A linearizable one."""
        asked = {"prefix": prefix, "consistency": "linearizable"}
        self.do(process, "scan", asked, {"entries": entries})

    def follow(
        self, entries: Sequence[tuple[str, int, str]], what: str = "key", target: str = "k",
        *, type: Type = "ok", error: str | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        """The next delivery to follower f1."""
        asked = {"follower": "f1", "what": what, "target": target}
        answer = {"entries": entries} if type == "ok" else None
        self.do(9, "follow", asked, answer, type=type, error=error)

    def snapshot(self, name: str, through: int, other: int = 9) -> None:
        """One that goes to seq `through` at key k, and to `other` at the keys from m on."""
        parts = [["", "m", through], ["m", None, other]]
        self.do(8, "snapshot", {"lease_s": 60.0}, {"snapshot": name, "parts": parts})

    def read_snapshot(
        self, name: str, entries: Sequence[tuple[str, int, str]] = (), prefix: str = "",
        *, type: Type = "ok", error: str | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        """Of all keys, or those with a prefix."""
        answer = {"entries": entries} if type == "ok" else None
        asked = {"snapshot": name, "prefix": prefix}
        self.do(8, "read_snapshot", asked, answer, type=type, error=error)

    def take(
        self, process: int, *batches: tuple[int, Sequence[int]], key: str = "k",
        deliveries: int = 1, ends: bool = True,
    ) -> None:  # fmt: skip
        """Batches of a key, each a token and seqs; value `p1-N` has seq N."""
        got = [[key, token, deliveries, [[seq, f"p1-{seq}"] for seq in seqs]]
               for token, seqs in batches]  # fmt: skip
        self.event(process, "invoke", "take", {"ordering": self.ordering})
        if ends:
            self.event(process, "ok", "take", {"batches": got})

    def settle(
        self, process: int, what: str, token: int, through: int = 0, key: str = "k",
        *, type: Type = "ok", refused: bool = False,  # noqa: A002
    ) -> None:  # fmt: skip
        """One batch."""
        asked = {"items": [[what, key, token, through]]}
        answer = {"refused": [0] if refused else []} if type == "ok" else None
        self.do(process, "settle", asked, answer, type=type, error=None if answer else "NO: no")

    def transform(
        self, process: int, token: int, made: Mapping[int, tuple[str, int]], key: str = "k",
        *, type: Type = "ok", there: Collection[str] | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        """An append with acknowledgements: by seq of an entry, the value and seq of its output.
        `there`: the outputs that are appended without an answer that says so."""
        to = key + "+"
        asked = {
            "producer": f"c{process}", "records": [[to, value] for value, _ in made.values()],
            "acks": [[key, token, list(made)]],
        }  # fmt: skip
        answer = {"seqs": [seq for _, seq in made.values()]} if type == "ok" else None
        self.do(process, "append", asked, answer, type=type, error=None if answer else "NO: no")
        for value, seq in made.values():
            if value in there if there is not None else type == "ok":
                self.contents.setdefault(to, []).append([seq, value])

    def letters(self, *letters: tuple[str, int, str], type: Type = "ok", **other: str) -> None:  # noqa: A002
        """All dead letters: the key, seq and value of each entry that failed. `other` has the
        values of headers that are not as they should be, with `_` for `-`."""
        found = [
            [key, at, value, {
                "dead-letter-log": "chaos", "dead-letter-key": key, "dead-letter-seq": str(seq),
                "dead-letter-timestamp-ms": "0", "dead-letter-group": "workers",
                "dead-letter-deliveries": "3", "dead-letter-error": "failed",
            } | {name.replace("_", "-"): told for name, told in other.items()}]
            for at, (key, seq, value) in enumerate(letters, 1)
        ]  # fmt: skip
        self.do(9, "letters", {}, {"letters": found} if type == "ok" else None, type=type)

    def decide(self, what: str, key: str = "k", through: int = 0, *, type: Type = "ok") -> None:  # noqa: A002
        """A retry or a skip."""
        asked = {"what": what, "key": key, "through": through}
        self.do(7, "decide", asked, {} if type == "ok" else None, type=type)

    def group(self, entries: int = 0, *, on_dead: str = "park", **parked: int) -> None:
        """The group at the end: the positions of its parked keys, and the entries left."""
        lag = {"entries": entries, "parked": len(parked)}
        answer = {
            "max_deliveries": 3, "on_dead": on_dead, "parked": list(parked.items()), "lag": lag,
        }  # fmt: skip
        self.do(7, "group", {}, answer)

    def end(
        self, nodes: int = 3, *, without: Collection[str] = (), node_2_without: Collection[str] = ()
    ) -> None:
        """The final reads, of what was acknowledged, but for some values."""
        for node in (None, *range(1, nodes + 1)):
            lacks = {*without, *(node_2_without if node == 2 else ())}
            keys = {
                key: sorted(entry for entry in entries if entry[1] not in lacks)
                for key, entries in self.contents.items()
            }
            self.do(100, "final", {}, {"keys": keys}, node=node)

    def leaders(self, leaders: Mapping[str, int]) -> None:
        """The leader from now on."""
        self.event(None, "info", CLUSTER, {"leaders": dict(leaders)})

    def fault(self, package: str, nodes: Sequence[int], last_ms: int = 5_000) -> None:
        """From its begin to its end."""
        number = len(self.events)
        value = {"id": number, "what": "a fault", "nodes": list(nodes)}
        self.event(None, "info", package, value)
        self.event(None, "info", package, {"id": number}, after_ms=last_ms)

    @property
    def history(self) -> History:
        """What was told so far."""
        return History(self.events)
