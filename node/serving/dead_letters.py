"""Copies the entries of parked keys to the log of dead letters of a group, on the leader.

A key whose entry failed too often is parked first, as in every group. For a group with
`dead_letter:LOG` the leader then takes three steps, each of which the next leader may repeat:

1. GROUP_LETTER stores the producer and the number of the copy with the parked key.
2. The entry is appended to LOG with this producer and number. A repetition has no effect (S8).
3. GROUP_COPIED lets the key go on behind the entry. It is proposed after the append is
   acknowledged, so a majority has the copy on disk (S1) before any position passes the entry (G2).

While LOG is missing or not available the key stays parked, and no other key waits for it (G5).
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    LogNotFound,
    Unavailable,
)
from ...client.protocol.records import check_record, encode_batch
from ...client.protocol.types import Headers
from ...partitions.groups import GroupRecord
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...statemachine import commands
from ...statemachine.groups.forms import DEAD_LETTER, LOST
from ...statemachine.groups.group import Group
from ...statemachine.groups.row import Row
from ...statemachine.page import Page
from ..audit.own_appends import OwnAppends
from ..dispatch.letters import EPOCH, Letters
from ..metrics import Metrics
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.unexpected import OnBroken

_LETTERS_MAX: Final = 256
"""Letters of one round."""
_READS_A_TURN: Final = 32
"""Entries that one turn of the loop reads: an entry takes about 50 us."""
_BYTES_MAX: Final = limits.MIB // 2
"""The keys and values of a round, except for one larger entry."""
_LOOKS: Final = 512
"""Parked keys that one turn of the loop looks at."""
_SENDS_MAX: Final = 8
"""Appends under way, each to a range of its own."""
_REST_S: Final = 0.2
_IDLE_S: Final = 1.0
_RETRY_FIRST_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_PARKED_S: Final = 30.0
"""After this time the leader tries an entry again that the log of dead letters does not take."""


@dataclass(frozen=True, slots=True)
class Post:
    """What the dead letters of all groups of a node need. `metadata` returns the cluster as this
    node knows it, `on_damaged` takes the damage that a read finds."""

    metadata: Callable[[], Metadata]
    appends: OwnAppends
    metrics: Metrics
    on_damaged: Callable[[RangeReplica, CorruptData], None]


class _Chosen(NamedTuple):
    """A parked unit to work on, as it was when it was chosen."""

    unit: bytes
    row: Row
    range_: Descriptor
    """Where the copy goes."""


class _Letter(NamedTuple):
    """An entry to copy."""

    unit: bytes
    key: bytes
    seq: int
    value: bytes | None
    headers: Headers
    range_: Descriptor


class _Retry:
    """When a range takes letters again."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.wait_s = _RETRY_FIRST_S
        self.why = ""

    def failed(self, now_s: float, why: str) -> None:
        self.at_s, self.why = now_s + self.wait_s, why
        self.wait_s = min(2 * self.wait_s, _RETRY_MAX_S)


class _Refused(NamedTuple):
    """An entry that the log of dead letters does not take."""

    done: int
    """The position of the key, at which the entry is."""
    again_s: float
    """When to try again."""
    why: str


class DeadLetters:
    """The dead letters of one group on one leader.

    `parked` returns the parked keys, `is_over` whether another leader goes on. `on_moved` is called
    after keys have moved, and `on_ended` with the error that ends the leader's work.
    """

    def __init__(
        self, replica: RangeReplica, record: GroupRecord, group: Group, post: Post, *,
        parked: Callable[[], Collection[bytes]], is_over: Callable[[], bool],
        on_moved: Callable[[], None], on_ended: Callable[[LognodeError], None],
        on_broken: OnBroken,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._record = record
        self._log = record.dead_letters or ""
        self._source = b""
        """The name of the log of the group."""
        self._group = group
        self._fence = group.fence
        self._post = post
        self._parked = parked
        self._is_over = is_over
        self._on_moved = on_moved
        self._on_ended = on_ended
        self._on_broken = on_broken
        self._letters = Letters(record.group_id, replica.gid, group.fence)
        self._stirred = asyncio.Event()
        self._now_s = asyncio.get_running_loop().time
        self._at = 0
        """How many of the parked keys were looked at, in a circle."""
        self._under_way: set[bytes] = set()
        self._sending: set[int] = set()
        """The ranges that have not answered an append yet."""
        self._retries: dict[int, _Retry] = {}
        self._refused: dict[bytes, _Refused] = {}
        """The parked keys whose next entry cannot be copied."""
        self._missing = ""
        """Why the log of dead letters takes nothing at all."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(self._run())

    def stir(self) -> None:
        """Look for parked keys now."""
        self._stirred.set()

    def stop(self) -> None:
        """Copy nothing more."""
        for task in self._tasks:
            task.cancel()

    def problem(self, key: bytes) -> str | None:
        """Return why the entry of a parked key is not copied yet, if the leader knows a reason."""
        if self._missing:
            return self._missing
        if key in self._refused:
            return self._refused[key].why
        try:
            metadata = self._post.metadata()
            log_id = metadata.log_named(self._log).log_id
            range_ = metadata.range_at(log_id, self._group.key_of(key))
        except (LogNotFound, IndexError):
            return None
        retry = self._retries.get(range_.range_id)
        return None if retry is None else retry.why

    # Life.

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LognodeError):
            if isinstance(error, CorruptData):
                self._post.on_damaged(self._replica, error)
            self._on_ended(error)
        elif error is not None:
            self._on_broken(error)

    async def _run(self) -> None:
        while not self._is_over():
            self._stirred.clear()
            chosen = self._choose()
            if chosen:
                await self._take(chosen)
                await asyncio.sleep(0)
            else:
                await self._rest()

    async def _rest(self) -> None:
        self._letters.look(self._group.rows)
        rest_s = _REST_S
        if not self._parked():
            rest_s = _IDLE_S
            self._refused.clear()
            self._retries.clear()
        timer = asyncio.get_running_loop().call_later(rest_s, self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()

    # Choosing.

    def _choose(self) -> list[_Chosen]:
        """Return some parked keys whose letters can go on now."""
        ranges = self._ranges_of()
        if ranges is None or len(self._sending) >= _SENDS_MAX:
            return []
        parked, now_s, found = list(self._parked()), self._now_s(), []
        begin = self._at if self._at < len(parked) else 0
        for at, key in enumerate((parked[begin:] + parked[:begin])[:_LOOKS], begin + 1):
            self._at = at % max(len(parked), 1)
            row = self._group.rows.get(key)
            if row is None or not row.parked or key in self._under_way:
                self._refused.pop(key, None)
                continue
            refused = self._refused.get(key)
            if refused is not None and refused.done != row.done:
                del self._refused[key]  # of an entry that was passed since
                refused = None
            range_ = ranges(self._group.key_of(key))
            retry = self._retries.get(range_.range_id)
            if (
                range_.range_id in self._sending
                or (retry is not None and retry.at_s > now_s)
                or (refused is not None and refused.again_s > now_s)
            ):
                continue
            found.append(_Chosen(key, row, range_))
            if len(found) == _LETTERS_MAX:
                break
        return found

    def _ranges_of(self) -> Callable[[bytes], Descriptor] | None:
        """Return what finds the range of a key in the log of dead letters; None: no such log."""
        metadata = self._post.metadata()
        source = metadata.logs.get(self._record.log_id)
        if source is None:
            return None  # the log goes, and the group with the log
        self._source = source.name.encode()
        try:
            log_id = metadata.log_named(self._log).log_id
        except LogNotFound:
            self._missing = f"no log {self._log} for dead letters; create the log"
            return None
        if not metadata.ranges_of(log_id):
            self._missing = f"log {self._log} for dead letters has no range yet"
            return None
        self._missing = ""
        return partial(metadata.range_at, log_id)

    # A round.

    async def _take(self, chosen: list[_Chosen]) -> None:
        """Give the entries of some parked keys their numbers, and send them."""
        read = await self._read(chosen)
        rows = self._group.rows
        present = [(each, page) for each, page in read if rows.get(each.unit) is each.row]
        letters, gone = [], []
        for (unit, row, range_), page in present:
            if (row.number or self._group.by_entry) and page.seqs[:1] != [row.done]:
                gone.append((unit, row.done))
            elif page.seqs and (headers := self._headers(unit, row, page)) is not None:
                key = self._group.key_of(unit)
                letters.append(_Letter(unit, key, page.seqs[0], page.values[0], headers, range_))
        await self._number([each for each in letters if not rows[each.unit].number])
        if gone:
            await self._pass(gone, LOST)
        if self._is_over():
            return
        parts: dict[tuple[int, int], list[tuple[int, _Letter]]] = {}
        for letter in letters:
            now = rows.get(letter.unit)
            if now is not None and now.parked and now.number and now.done == letter.seq:
                at = letter.range_.range_id, now.producer
                parts.setdefault(at, []).append((now.number, letter))
        for (range_id, producer), part in parts.items():
            if range_id not in self._sending:
                self._send(range_id, producer, sorted(part, key=itemgetter(0)))

    async def _read(self, chosen: list[_Chosen]) -> list[tuple[_Chosen, Page]]:
        """Return the keys with a page of one entry, or of none, up to the bytes of a round."""
        found: list[tuple[_Chosen, Page]] = []
        size = 0
        for at, each in enumerate(chosen, 1):
            if not at % _READS_A_TURN:
                await asyncio.sleep(0)
            try:
                page = await self._entry(each)
            except Unavailable as error:
                if "retry_after" not in error.fields:
                    raise
                self._refuse(each.unit, each.row.done, error.message)  # a tier is away
                continue
            size += len(each.unit) + sum(len(value or b"") for value in page.values)
            if found and size > _BYTES_MAX:
                break
            found.append((each, page))
        return found

    async def _entry(self, chosen: _Chosen) -> Page:
        begin, state, group = chosen.row.done, self._replica.state, self._group
        key, end = group.key_of(chosen.unit), group.end_of(chosen.unit, state.next_seq)
        while True:
            scan = partial(state.scan, key, begin, end, limit=1, bytes_max=limits.values_bytes_max)
            page = await in_turns(self._replica, scan)
            if page.seqs or not page.more:
                return page
            begin = page.next

    def _headers(self, unit: bytes, row: Row, page: Page) -> Headers | None:
        """Return the headers of a copy; None: the log of dead letters takes no such entry."""
        key = self._group.key_of(unit)
        headers = {
            **page.headers.get(0, {}),
            b"dead-letter-log": self._source,
            b"dead-letter-key": key,
            b"dead-letter-seq": b"%d" % page.seqs[0],
            b"dead-letter-timestamp-ms": b"%d" % page.timestamps[0],
            b"dead-letter-group": self._record.name.encode(),
            b"dead-letter-deliveries": b"%d" % row.deliveries,
            b"dead-letter-error": row.error.encode(),
        }
        try:
            check_record(key, page.values[0], headers)
        except LimitExceeded as error:
            self._refuse(unit, row.done, f"with its headers as a dead letter {error.message}")
            return None
        return headers

    async def _number(self, letters: list[_Letter]) -> None:
        """Store the names of the copies. The keys that are refused have moved meanwhile."""
        if not letters:
            return
        rows = self._group.rows
        producer, numbers = self._letters.draw([each.unit for each in letters])
        places = [
            [each.unit, rows[each.unit].done, each.seq, number]
            for each, number in zip(letters, numbers, strict=True)
        ]
        refused = await self._propose(commands.GROUP_LETTER, [producer, places])
        self._letters.ended(producer, [numbers[at] for at in refused])

    def _send(self, range_id: int, producer: int, numbered: list[tuple[int, _Letter]]) -> None:
        letters = [letter for _, letter in numbered]
        batch = encode_batch(
            [each.key for each in letters], [each.value for each in letters],
            producer=producer, epoch=EPOCH, low=self._letters.low(producer),
            numbers=[number for number, _ in numbered],
            headers=[each.headers for each in letters],
            compress=False,  # compressing a large value would hold the loop
        )  # fmt: skip
        self._sending.add(range_id)
        self._under_way.update(each.unit for each in letters)
        self._begin(self._sent(letters, batch))

    async def _sent(self, letters: list[_Letter], batch: bytes) -> None:
        """Append copies to one range, and let their keys go on."""
        range_ = letters[0].range_
        try:
            await self._post.appends.send(range_, batch)
        except (LimitExceeded, InvalidArgument) as error:
            for letter in letters:
                self._refuse(letter.unit, letter.seq, error.message)
        except LognodeError as error:
            why = f"log {self._log} for dead letters: {error.message}"
            retry = self._retries.setdefault(range_.range_id, _Retry())
            retry.failed(self._now_s(), why[: limits.group_text_chars_max])
        else:
            self._retries.pop(range_.range_id, None)
            if not self._is_over():
                await self._pass([(each.unit, each.seq) for each in letters], DEAD_LETTER)
        finally:
            self._sending.discard(range_.range_id)
            self._under_way.difference_update(each.unit for each in letters)
            self._stirred.set()

    async def _pass(self, copies: list[tuple[bytes, int]], what: int) -> None:
        """Let keys go on behind the entries at these seqs."""
        named = [self._group.rows.get(key) for key, _ in copies]
        payload = [[list(each) for each in copies], what]
        refused = await self._propose(commands.GROUP_COPIED, payload)
        for at, row in enumerate(named):
            if row is not None and at not in refused:
                self._letters.ended(row.producer, [row.number])
        if what == DEAD_LETTER:
            counted = self._post.metrics.group_dead_letters.labels(str(self._record.group_id))
            counted.inc(len(copies) - len(refused))
        self._on_moved()

    async def _propose(self, kind: int, payload: list[Any]) -> Sequence[int]:
        """Propose a command of this leader; return the refused places.

        Raises LognodeError: another leader goes on.
        """
        whole = [self._record.group_id, self._fence, *payload]
        reply = await self._replica.propose_and_wait(kind, whole)
        if reply.get("status") == "error":  # the group was reset or deleted, or has another leader
            raise Unavailable("the group begins anew in the range; ask again", outcome="unknown")
        refused: Sequence[int] = reply.get("refused", ())
        return refused

    def _refuse(self, key: bytes, done: int, why: str) -> None:
        told = why[: limits.group_text_chars_max]
        self._refused[key] = _Refused(done, self._now_s() + _PARKED_S, told)
