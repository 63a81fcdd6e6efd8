"""Pull batches of a consumer group without a consumer that stays.

A consumer keeps its leases alive, and claims its keys from each new leader. A pull asks the leaders
once and remembers nothing: the ticket of a batch says all that a request to settle the batch needs,
so any process may settle it. Nobody extends the lease but the holder of the ticket. Nobody claims
it: after a change of leader, a split or a merge the leases of pulls are over, and the batches come
again.

A pull whose caller leaves is not cut off, since the leader may just give batches to it. The pull
ends soon, and gives its batches back.
"""

import asyncio
import base64
import binascii
import random
import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from . import group_names
from .cluster import Body, Cluster, LogRoutes
from .group_held import Held, Unit
from .group_settles import RELEASES, Settles
from .group_takes import batches_of
from .protocol import limits
from .protocol.errors import (
    InvalidArgument,
    LognodeError,
    Overloaded,
    Routing,
    Timeout,
    Unavailable,
    bare,
)
from .protocol.groups import BY_ENTRY, GROUP_TAKE
from .protocol.types import GroupInfo
from .routing import Range

_FORM: Final = struct.Struct(">BQQQQQ")
_VERSION: Final = 1
TICKET_CHARS_MAX: Final = (_FORM.size + limits.key_bytes_max + 2) // 3 * 4
_FENCES_MAX: Final = 4_096
_WAITING_MAX: Final = 16
"""Ranges that a pull without a batch waits for at the same time."""
_WAIT_S: Final = 1.0
"""How long a pull waits for a range. Then the pull looks at all ranges again."""
_RANGE_S: Final = 3.0
"""How long an answer of a range may take besides. Other ranges are then asked first."""
_FEW_FENCES: Final = 4
"""How often a pull asks a range again whose leader has changed."""
_RETRIED: Final = (Routing, Overloaded, Timeout, Unavailable)


class Ticket(NamedTuple):
    """What settles a batch: the lease of a key, and the seqs of the entries."""

    group: int
    consumer: int
    token: int
    first: int
    last: int
    key: bytes

    def to_text(self) -> str:
        """Return the ticket as text of letters, digits, `-` and `_`."""
        numbers = self.group, self.consumer, self.token, self.first, self.last
        packed = _FORM.pack(_VERSION, *numbers) + self.key
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> "Ticket":
        """Return the ticket of a text. Raises InvalidArgument."""
        try:
            if len(text) > TICKET_CHARS_MAX:
                raise ValueError
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            numbers: Sequence[int] = _FORM.unpack_from(packed)
            version, group, consumer, token, first, last = numbers
            found = cls(group, consumer, token, first, last, packed[_FORM.size :])
        except (binascii.Error, struct.error, ValueError):
            raise _not_a_ticket() from None
        is_fit = version == _VERSION and 1 <= len(found.key) <= limits.key_bytes_max
        if not is_fit or not all(1 <= number < limits.number_max for number in found[:5]):
            raise _not_a_ticket()
        if found.last < found.first or found.to_text() != text:
            raise _not_a_ticket()
        return found


def _not_a_ticket() -> InvalidArgument:
    return InvalidArgument(
        "the token is not of a batch; give the token of a batch as the pull returned it",
        what="token",
    )


class Pulled(NamedTuple):
    """The batches of a pull."""

    group: GroupInfo
    consumer: int
    batches: list[Held]

    def ticket(self, held: Held) -> Ticket:
        """Return the ticket of one of the batches."""
        return Ticket(
            self.group.id, self.consumer, held.token, held.first_seq, held.last_seq, held.key
        )


class GroupPulls:
    """The pulls of the groups of a log by one client, which is one consumer for the leaders."""

    def __init__(self, cluster: Cluster, routes: LogRoutes) -> None:
        self._cluster = cluster
        self._routes = routes
        self.consumer = random.getrandbits(62) | 1
        self._fences: OrderedDict[tuple[int, int, int], int] = OrderedDict()
        """The last fence by group, range and generation."""
        self._failed: set[int] = set()
        """The ranges that did not answer in time, which are asked last."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """Work whose callers may be gone."""

    async def pull(
        self, name: str, most: int, bytes_max: int, wait_s: float, timeout: float
    ) -> Pulled:
        """Return at most `most` batches of about `bytes_max` bytes. Wait for one for `wait_s`.

        Raises LogNotFound, NotFound, Unauthorized, Unsupported; Unavailable or Timeout if there is
        no batch and a range does not answer.
        """
        info = await group_names.found(
            self._cluster, self._routes.name, name, self._cluster.now() + timeout
        )
        pull = _Pull(self, info, most, bytes_max, self._cluster.now() + wait_s, timeout)
        task = self._spawn(pull.run())
        try:
            found = await asyncio.shield(task)
        except asyncio.CancelledError:
            pull.leave()
            task.add_done_callback(lambda done: self._unwanted(info, done))
            raise
        return Pulled(info, self.consumer, found)

    def give_back(self, info: GroupInfo, batches: Iterable[Held]) -> None:
        """Give batches back that nobody has got, without a wait."""
        for held in batches:
            ticket = Pulled(info, self.consumer, []).ticket(held)
            self._spawn(self._settle(info, RELEASES, self.consumer, [(ticket, [0, ""])], _RANGE_S))

    async def settle(
        self, name: str, kind: str, wanted: Sequence[tuple[Ticket, list[Any]]], timeout: float
    ) -> list[LognodeError | None]:
        """Settle batches: each with the rest of its row in the request. Return the error of each.

        Raises NotFound, and InvalidArgument for a ticket of another group.
        """
        deadline = self._cluster.now() + timeout
        info = await group_names.found(self._cluster, self._routes.name, name, deadline)
        by_consumer: dict[int, list[int]] = {}
        for at, (ticket, _) in enumerate(wanted):
            if ticket.group != info.id:
                raise InvalidArgument(
                    f"the token is of another group than {name!r}, or of an earlier group of this "
                    "name; pull again",
                    what="token",
                )
            by_consumer.setdefault(ticket.consumer, []).append(at)
        found: list[LognodeError | None] = [None] * len(wanted)
        for consumer, places in by_consumer.items():
            rows = [wanted[at] for at in places]
            left = max(0.1, deadline - self._cluster.now())
            errors = await self._settle(info, kind, consumer, rows, left)
            for at, error in zip(places, errors, strict=True):
                found[at] = error
        return found

    async def _settle(
        self, info: GroupInfo, kind: str, consumer: int,
        wanted: Sequence[tuple[Ticket, list[Any]]], timeout: float,
    ) -> list[LognodeError | None]:  # fmt: skip
        common = {"group": info.id, "consumer": consumer}
        settles = Settles(self._cluster, self._routes, common, timeout, _ignore, _ignore, _as_it_is)
        found: list[LognodeError | None] = [None] * len(wanted)

        def noted(at: int, error: LognodeError | None) -> None:
            found[at] = error

        try:
            for at, (ticket, rest) in enumerate(wanted):
                unit = ticket.key, ticket.first if info.ordering == BY_ENTRY else 0
                row = [ticket.key, ticket.token, *rest]
                settles.add(kind, row, partial(noted, at), unit)
            await settles.flush()
        finally:
            await settles.close()
        return found

    # For pulls.

    async def ranges(self, info: GroupInfo, deadline: float) -> list[Range]:
        """Return the ranges with keys of the group in random order, those that failed last."""
        found: dict[int, Range] = {}
        for span in group_names.spans_of(info):
            for known in await self._cluster.all_ranges(self._routes, deadline, span):
                found[known.range_id] = known
        self._failed &= found.keys()
        ranges = list(found.values())
        random.shuffle(ranges)
        return sorted(ranges, key=lambda known: known.range_id in self._failed)

    def is_failed(self, known: Range) -> bool:
        """Whether the range did not answer in time when it was asked last."""
        return known.range_id in self._failed

    async def take(
        self, info: GroupInfo, known: Range, count: int, bytes_max: int, wait_s: float
    ) -> list[Held]:
        """Return batches of a range. Raises the error of the range."""
        try:
            for _ in range(_FEW_FENCES):
                now = self._cluster.now()
                at = info.id, known.range_id, known.generation
                fence = self._fences.get(at, 0)
                body = {
                    "group": info.id, "consumer": self.consumer,
                    "prefix": group_names.prefix_of(info), "count": count, "bytes": bytes_max,
                    "fence": fence, "wait_ms": int(1000 * wait_s),
                }  # fmt: skip
                answer, known = await self._cluster.call(
                    self._routes, known.start, GROUP_TAKE, body,
                    deadline=now + wait_s + _RANGE_S, waits=wait_s > 0,
                )  # fmt: skip
                self._failed.discard(known.range_id)
                self._remember((info.id, known.range_id, known.generation), answer)
                if answer["fence"] == fence:
                    by_entry = info.ordering == BY_ENTRY
                    return batches_of(answer, self._cluster.now(), now, by_entry=by_entry)
        except _RETRIED:
            self._failed.add(known.range_id)
            raise
        return []

    def _remember(self, at: tuple[int, int, int], answer: Body) -> None:
        self._fences[at] = answer["fence"]
        self._fences.move_to_end(at)
        if len(self._fences) > _FENCES_MAX:
            self._fences.popitem(last=False)

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def waiting(self, info: GroupInfo, known: Range, bytes_max: int, wait_s: float) -> Any:
        """Return the task that waits for a batch of a range."""
        return self._spawn(self.take(info, known, 1, bytes_max, wait_s))

    def _unwanted(self, info: GroupInfo, task: "asyncio.Task[list[Held]]") -> None:
        """Give back what a task has found."""
        if not task.cancelled() and task.exception() is None:
            self.give_back(info, task.result())

    def left_behind(self, info: GroupInfo, tasks: Iterable["asyncio.Task[list[Held]]"]) -> None:
        """Give back what these tasks will find."""
        for task in tasks:
            task.add_done_callback(lambda done: self._unwanted(info, done))


class _Pull:
    """One pull, which waits until a time for its first batch."""

    def __init__(
        self, among: GroupPulls, info: GroupInfo, most: int, bytes_max: int, until: float,
        timeout: float,
    ) -> None:  # fmt: skip
        self._among = among
        self._info = info
        self._most = most
        self._bytes_max = bytes_max
        self._until = until
        self._timeout = timeout
        self._left = False
        self._error: LognodeError | None = None
        """The last error of a range, until a range has a batch."""

    def leave(self) -> None:
        """Wait no longer."""
        self._left = True

    async def run(self) -> list[Held]:
        """Return the batches. Raises the error of a range if no range has a batch."""
        loop = asyncio.get_running_loop()
        while True:
            self._error = None
            ranges = await self._among.ranges(self._info, loop.time() + self._timeout)
            found = await self._look(ranges)
            left_s = self._until - loop.time()
            if found or left_s <= 0 or self._left:
                return self._result(found)
            sound = [known for known in ranges if not self._among.is_failed(known)]
            if sound:
                found = await self._wait(sound[:_WAITING_MAX], min(left_s, _WAIT_S))
            else:
                await asyncio.sleep(min(left_s, _WAIT_S))
            if found:
                return self._result(found)

    def _result(self, found: list[Held]) -> list[Held]:
        if not found and self._error is not None:
            raise bare(self._error)
        return found

    async def _look(self, ranges: Iterable[Range]) -> list[Held]:
        """Ask the ranges one after another. A range that failed is asked if others have nothing."""
        found: list[Held] = []
        room = self._bytes_max
        for known in ranges:
            if self._left or (found and self._among.is_failed(known)):
                break
            try:
                batches = await self._among.take(
                    self._info, known, self._most - len(found), room, 0
                )
            except _RETRIED as error:
                self._error = error
                continue
            except LognodeError:
                self._among.give_back(self._info, found)
                raise
            found += batches
            room -= sum(held.size for held in batches)
            if len(found) >= self._most or room <= 0:
                break
        return found

    async def _wait(self, ranges: Iterable[Range], wait_s: float) -> list[Held]:
        """Wait until one of the ranges has a batch; return the batches of those that have."""
        tasks = {
            self._among.waiting(self._info, known, self._bytes_max, wait_s) for known in ranges
        }
        found: list[Held] = []
        while tasks and not found:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    found += task.result()
                elif isinstance(error, _RETRIED):
                    self._error = error
                elif isinstance(error, LognodeError):
                    self._among.left_behind(self._info, tasks)
                    self._among.give_back(self._info, found)
                    raise error
        self._among.left_behind(self._info, tasks)
        extra = found[self._most :]
        self._among.give_back(self._info, extra)
        return found[: self._most]


def _ignore(_: Unit, __: int) -> None:
    """Take the news of a unit that nobody remembers."""


async def _as_it_is(_: Range, node: int) -> int:
    """Return the node of a leader: a pull has claimed nothing."""
    return node
