"""The dead letters of the simulated group: the leader's part, and the check of each run.

The leader takes the steps of `node.serving.dead_letters`, with the numbers of the real `Letters`.
The copies go to other keys of the same log, which the group does not read; on nodes they go to
another log. The history has each copy as an append of the leader's producer, so S2 and S8 are
checked for copies too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData
from ...client.protocol.records import encode_batch
from ...node.dispatch.letters import EPOCH, Letters
from ...statemachine import commands
from ...statemachine.groups.forms import DEAD_LETTER
from ...statemachine.groups.row import Row
from ...statemachine.groups.selection import Selection
from .clients import TIMEOUT_S, Reply
from .history import History
from .violation import Violation

if TYPE_CHECKING:
    from .replica import RangeReplica

DEAD: Final = b"dead/"
"""The first bytes of the keys of copies."""
DELIVERIES_MAX: Final = 2
NEVER: Final = 1 << 62
"""Above all numbers."""
Propose = Callable[[int, list[Any], Callable[[Sequence[Any] | None], None]], None]


class Living(Selection):
    """All keys but those of copies."""

    def __init__(self) -> None:
        super().__init__()
        self._spans = [(b"", DEAD)]


@dataclass
class LetterHistory:
    """The letters of one run, by what members apply."""

    history: History
    passed: int = 0
    """Entries whose keys went on behind their copies."""
    _named: dict[tuple[bytes, int], tuple[int, int]] = field(default_factory=dict)
    """By key and seq of an entry, the producer and the number of the copy."""
    _entries: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    """The same the other way around."""

    def numbered(self, payload: Sequence[Any], refused: Sequence[int]) -> None:
        """Note a GROUP_LETTER that a member applied first."""
        for at, (key, _, seq, number) in enumerate(payload[3]):
            if at not in refused:
                entry, name = (key, seq), (payload[2], number)
                if self._entries.setdefault(name, entry) != entry:
                    raise Violation("S8", "two dead letters have one name", key=key, seq=seq)
                if self._named.setdefault(entry, name) != name:
                    raise Violation("S8", "an entry becomes a dead letter twice", key=key, seq=seq)

    def copied(self, payload: Sequence[Any], refused: Sequence[int]) -> list[tuple[bytes, int]]:
        """Note a GROUP_COPIED that a member applied first; return the entries that are passed."""
        done = [(key, seq) for at, (key, seq) in enumerate(payload[2]) if at not in refused]
        for key, seq in done:
            named = self._named.get((key, seq))
            append = None if named is None else self.history.appends.get(value_of(*named))
            if append is None or append.state != "acked":
                raise Violation("G2", "a key passes an entry without a copy", key=key, seq=seq)
        self.passed += len(done)
        return done


class Copies:
    """The dead letters of one leader. `propose` proposes a command of the leader."""

    def __init__(self, replica: "RangeReplica", group_id: int, fence: int, propose: Propose,
                 is_over: Callable[[], bool], on_moved: Callable[[], None]) -> None:  # fmt: skip
        self._replica = replica
        self._group_id = group_id
        self._fence = fence
        self._propose = propose
        self._is_over = is_over
        self._on_moved = on_moved
        self._letters = Letters(group_id, replica.gid, fence)
        self._key_of = replica.host.world.deliveries.key_of
        self._busy: set[bytes] = set()
        self._hints: dict[bytes, int] = {}
        self._rng = Random(f"{replica.host.world.seed} letters {replica.gid} {fence}")

    def look(self) -> None:
        """Take the next step for each parked unit, one of a key at a time: the history has copies
        as appends of a producer, in the order of their numbers."""
        rows: Mapping[bytes, Row] = self._replica.store.state.groups.by_id[self._group_id].rows
        found = list(rows.items())
        if self._replica.host.options.unordered:  # a numbered entry goes before others of its key
            found.sort(key=lambda each: each[1].number or NEVER)
        for key, row in found:
            if row.parked and self._key_of(key) not in map(self._key_of, self._busy):
                try:
                    self._step(key, row)
                except CorruptData as error:  # another member has the file
                    self._replica.host.damage_found(self._replica, error)
                    return

    def _step(self, key: bytes, row: Row) -> None:
        state = self._replica.store.state
        page = state.scan(self._key_of(key), row.done, limit=1, bytes_max=1 << 16)
        self._busy.add(key)
        if row.number:
            self._send(key, row)
            return
        producer, numbers = self._letters.draw([key])
        letter = [key, row.done, page.seqs[0], numbers[0]]
        payload = [self._group_id, self._fence, producer, [letter]]
        self._propose(commands.GROUP_LETTER, payload, partial(self._numbered, key, numbers[0]))

    def _numbered(self, key: bytes, number: int, replies: Sequence[Any] | None) -> None:
        self._busy.discard(key)
        if replies is not None and replies[0].get("refused"):
            self._letters.ended(self._letters.producer, [number])
        if not self._is_over():
            self.look()

    def _send(self, key: bytes, row: Row) -> None:
        world, dead, value = (
            self._replica.host.world,
            DEAD + self._key_of(key),
            value_of(row.producer, row.number),
        )
        if value not in world.history.appends:
            world.history.invoke(dead, value, producer=row.producer, number=row.number)
        batch = encode_batch(
            [dead], [value], producer=row.producer, epoch=EPOCH, numbers=[row.number],
            low=self._letters.low(row.producer), compress=False,
        )  # fmt: skip
        is_open = [True]

        def answered(reply: Reply) -> None:
            if not is_open[0]:
                return
            is_open[0] = False
            hint = reply.get("hint")
            self._hints.pop(dead, None)
            if hint is not None:
                self._hints[dead] = hint
            if reply["status"] == "ok" and not self._is_over():
                payload = [self._group_id, self._fence, [[key, row.done]], DEAD_LETTER]
                self._propose(commands.GROUP_COPIED, payload, partial(self._copied, key, row))
                self._replica.host.pump()
            else:
                self._busy.discard(key)

        def timed_out() -> None:
            if is_open[0]:
                is_open[0] = False
                self._hints.pop(dead, None)
                self._busy.discard(key)

        enter = self._replica.host.entrance()

        def arrived(reply: Reply) -> None:
            if reply["status"] == "ok":  # the copy is there, also where its leader is gone
                first = reply.get("first_seq", 0)
                world.history.ack(value, (reply.get("seqs") or [first])[0])
            enter(partial(answered, reply))

        node = self._hints.get(dead) or self._rng.randint(1, world.options.nodes)
        world.request(node, {"op": "append", "key": dead, "batch": batch}, arrived, self._rng)
        self._replica.host.later(TIMEOUT_S, timed_out)

    def _copied(self, key: bytes, row: Row, replies: Sequence[Any] | None) -> None:
        self._busy.discard(key)
        if replies is not None and not self._is_over():
            self._letters.ended(row.producer, [row.number])
            self._on_moved()


def value_of(producer: int, number: int) -> bytes:
    """Return the value of a copy: values of the history are unique."""
    return b"dead.%x.%d" % (producer, number)
