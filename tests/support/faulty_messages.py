"""Messages with one fault each: those of the table, and Raft messages as a member sends them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lognode.client.protocol import Operation, limits
from lognode.client.protocol.peers import RAFT

Body = dict[str, Any]
Path = tuple[int | str, ...]
INTEGER_MAX = limits.number_max


def deep(levels: int) -> list[Any]:
    """An array in an array, and so on."""
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


HUGE = (1 << 62, (1 << 62) + 1, INTEGER_MAX - 1, INTEGER_MAX, 1 << 63, (1 << 64) - 1)
STRANGE: tuple[tuple[str, Any], ...] = (
    *((f"{each:#x}", each) for each in HUGE),
    ("-1", -1), ("-2^63", -(1 << 63)), ("nil", None), ("true", True), ("a float", 1.5),
    ("not a number", float("nan")), ("infinite", float("inf")), ("text", "text"),
    ("bytes", b"bytes"), ("600 bytes", b"x" * 600), ("no bytes", b""), ("an empty array", []),
    ("nil in an array", [None]), ("an array of arrays", [[1, 2, 3]]), ("an empty map", {}),
    ("a map", {"a": 1}), ("a map of a number", {1: 2}), ("a map of huge numbers", {1 << 62: [1]}),
    ("a large map of numbers", {n << 40: 0 for n in range(300)}),
    ("10 levels", deep(10)), ("a level too many", deep(limits.frame_nesting_max)),
    ("100 levels", deep(100)), ("70,000 numbers", [7] * 70_000),
    ("5,000 pairs", [[7, 7]] * 5_000),
)  # fmt: skip
"""What takes the place of a field. None is a number that a field may rightly have."""


def of_the_table(operations: Sequence[Operation]) -> Iterator[tuple[Operation, str, Body]]:
    """Messages, valid but for one field: each operation in turn, each field, each fault."""

    def of(op: Operation) -> Iterator[tuple[Operation, str, Body]]:
        return ((op, why, body) for why, body in op.request.beyond())

    turns = [of(op) for op in operations]
    for turn in itertools.zip_longest(*turns):
        yield from filter(None, turn)


class Group(NamedTuple):
    """A Raft group, and where it is: a message that says the same is nothing new to a member."""

    range_id: int
    generation: int
    fingerprint: bytes
    term: int
    commit: int

    def messages(self) -> Iterator[tuple[str, list[Any]]]:
        """A message of each kind, as a member might send it."""
        term, index = self.term, self.commit
        for name, kind, *rest in (
            ("heartbeat", 1, index, term, index, []),
            ("append", 1, index, term, index, [[term, b"\0"]]),
            ("ack", 2, index), ("reject", 3, index, index, term), ("vote_request", 4, index, term),
            ("vote", 5), ("pre_vote_request", 6, 1, index, term), ("pre_vote", 7, 1), ("term", 8),
            ("base_probe", 9, index, term), ("started", 10), ("snapshot", 11, index),
            ("quiesce", 12, 1, index, 1), ("quiesced", 13, 1),
        ):  # fmt: skip
            yield name, [kind, term, 1, *rest]

    def frames(self) -> Iterator[tuple[str, Path, Body]]:
        """Frames of one message each, with the place in them from which on a fault is put."""
        row = [self.range_id, self.generation, self.fingerprint]
        for name, message in self.messages():
            at: Path = ("messages", 0, 3, 6) if name == "append" else ("messages",)
            yield name, at, {"messages": [[*row, message]]}
        yield "read round", ("reads",), {"reads": [[1, 1, [[*row, self.term], None]]]}
        yield "read answer", ("answers",), {"answers": [[1, 1, [self.commit, None, 0]]]}
        yield "ping", (), {"ping": [0, 0, [[self.range_id, self.generation]]]}


def of_raft(group: Group, frame: Body) -> Iterator[tuple[str, Body]]:
    """Frames of Raft messages with one fault. `frame`: boot, clock and ping of the sender."""
    for name, within, items in group.frames():
        body = {**frame, **items}
        for path in places(body):
            if path[: len(within)] != within:
                continue
            for why, value in STRANGE:
                where = "/".join(map(str, path))
                yield f"{name}: {where} is {why}", replaced(body, path, value)
    for why, body in RAFT.request.beyond():
        yield f"raft: {why}", {**frame, **{f: v for f, v in body.items() if f not in frame}, **{
            f: body.get(f) for f in frame if f == why.partition(":")[0]
        }}  # fmt: skip


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """The path of each element, at every level."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for name, element in inside:
        yield (*at, name)
        yield from places(element, (*at, name))


def replaced(value: Any, path: Path, element: Any) -> Any:
    """The value with another element at the path; what is beside the path is shared."""
    if not path:
        return element
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], element)
    return copy
