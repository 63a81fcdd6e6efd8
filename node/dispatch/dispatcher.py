"""Hands out the keys of a group in a range, on the leader, for as long as its fence is the newest.

See `node/dispatch/__init__.py` for the duties of the caller.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress, zip_longest
from operator import lt
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.groups import FULL, LEASE, POSITION
from ...statemachine import commands as of_range
from ...statemachine.groups.claim import Claim
from ...statemachine.groups.forms import PARK, REJECT
from ...statemachine.groups.group import Group
from ...statemachine.groups.selection import Selection
from ...statemachine.page import Page
from ...statemachine.spans import Span, has
from .ack_turns import KEYS_A_TURN, AckTurns
from .appends import Appends, Keys
from .batches import Batches
from .commands import AckFrom, Appending, Failure, Proposal
from .entry_leases import EntryLeases
from .floor_claims import Pending, floor_claim
from .key_line import Line, Place
from .leases import GIVEN_BACK, Lease, Leases
from .ready_keys import ReadyKeys
from .settling import Settling
from .supply import KeyRead, PageRead, Supply

RECLAIM_MS: Final = 1_000
"""After a change of leader, how long consumers have to claim the keys that they have."""
_FLOOR_MS: Final = 1_000
"""How often the floor rises while the group has few rows."""
_ROWS_MORE: Final = limits.group_rows_max // 4
"""New rows after which the floor rises earlier: a claim looks at every line and row."""
_ROWS_FEW: Final = limits.group_rows_max // 32
"""The same while the group has more rows than `_ROWS_TIGHT`."""
_ROWS_TIGHT: Final = limits.group_rows_max // 4 * 3
_BATCH_BYTES: Final = 32
"""The most bytes of a batch in a frame, besides its entries."""
_ROWS_SPARE: Final = limits.group_keys_a_command_max
"""Rows that are kept for slow keys when the floor rises."""
_READY_MAX: Final = 2 * limits.group_take_keys_max
"""Keys that wait for a consumer, above which the leader reads no further."""
_PUT_OFF_MAX: Final = 64
"""Keys that an answer passes because an acknowledgement may find no row."""


class Options(NamedTuple):
    """What the group was registered with."""

    lease_ms: int
    max_deliveries: int
    selection: Selection


class Dispatcher:
    """One group in a range. Times are in ms of a clock that never goes back."""

    def __init__(
        self, group_id: int, group: Group, span: Span, options: Options, *, now_ms: int,
        reclaims: bool,
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self._group = group
        self.fence = group.fence
        self._span = span
        self._options = options
        self._reclaim_until_ms = now_ms + RECLAIM_MS if reclaims else now_ms
        self._supply = Supply(group, span, options.selection)
        self._leases = EntryLeases(self.fence) if group.by_entry else Leases(self.fence)
        self._ready = ReadyKeys()
        self._seen_ms: dict[int, int] = {}
        """When each consumer was heard last."""
        self._silent: set[int] = set()
        """Consumers that were not heard since one of their leases ended: they may stand still."""
        self._delayed: list[tuple[int, bytes]] = []
        keys = Keys(self._expected, self._acked, self._goes_on, self._lost, self._parks)
        self._appends = Appends(group_id, group, self._leases, keys)
        self._ack_turns = AckTurns()
        self._failures: list[Failure] = []
        self._claim: Pending | None = None
        self._floor_ms = now_ms
        self._floor_rows = 0
        self._floor_at = 0
        self._redelivered = 0

    # What the leader reads.

    def next_read(self, next_seq: int) -> PageRead | KeyRead | None:
        """Return what to read next of a range whose entries end at `next_seq`."""
        found = self._supply.next_key()
        if found is not None or len(self._ready) >= _READY_MAX:
            return found
        return self._supply.next_page(next_seq)

    def take_page(self, read: PageRead | KeyRead, page: Page, now_ms: int) -> None:
        """Take what was read."""
        if isinstance(read, PageRead):
            for line in self._supply.take_page(read, page):
                self._ready.put(line.key, now_ms)
            self._ack_turns.wanted(page.keys)
        elif (found := self._supply.take_key(read, page)) is not None:
            self._ready.put(found.key, now_ms)

    def removed(self) -> None:
        """Forget the entries in memory: some entries of the range were removed."""
        for line in self._supply.emptied():
            self._ready.remove(line.key)
        self._supply.revived()

    # Consumers.

    @property
    def silent(self) -> Collection[int]:
        """The consumers that get no key before they ask again.

        A request that was under way when a lease of its consumer ended may be that of a paused
        process. A key given to the process would fail once more, for one pause.
        """
        return self._silent

    def has_for(self, consumer: int, now_ms: int) -> bool:
        """Whether `take` may find a key for the consumer."""
        if consumer in self._silent:
            return False
        return now_ms >= self._reclaim_until_ms and self._ready.has_for(consumer)

    def join(self, consumer: int, now_ms: int) -> bool:
        """Note that a consumer lives; False: there are too many."""
        if consumer not in self._seen_ms and len(self._seen_ms) >= limits.group_consumers_max:
            return False
        self._seen_ms[consumer] = now_ms
        self._silent.discard(consumer)
        self._ready.joined(consumer)
        return True

    def keep_only(self, consumer: int, keys: Collection[bytes], now_ms: int) -> None:
        """Give back the keys of a consumer other than these: their batches never arrived."""
        for key in self._leases.keys_of(consumer):
            lease = self._leases.of[key]
            if key not in keys and not lease.busy and not lease.wanted:
                self._give_back(lease, now_ms)

    def claim(
        self, consumer: int, holds: Sequence[tuple[bytes, int]], next_seq: int, now_ms: int,
        fences: Sequence[int] = (),
    ) -> list[bytes]:  # fmt: skip
        """Let a consumer keep keys that it has by these tokens. Return the refused keys.

        `fences`: for each key the fence of the last leader that gave the key or let the consumer
        keep the key. An older consumer gives none; then only the fences in the tokens are known.
        Keys of the leader before can be claimed as long as this leader gives no key to anybody:
        afterwards another consumer may have had the key and settled it (G1).
        """
        refused = []
        rows_left = self._rows_left(len(holds))
        for (key, token), fence in zip_longest(holds, fences):
            if self._leases.held(key, token, consumer) is not None:
                continue
            has_no_row = key not in self._group.rows and rows_left <= 0
            is_late = now_ms >= self._reclaim_until_ms
            if is_late or has_no_row or not self._may_claim(key, token, fence):
                refused.append(key)
                continue
            rows_left -= key not in self._group.rows
            self._ready.remove(key)
            line = self._supply.claimed(key)
            until = now_ms + self._options.lease_ms
            through = self._group.end_of(key, next_seq)
            self._leases.claim(key, token, consumer, line.first, through, until)
        return refused

    def _may_claim(self, key: bytes, token: int, fence: int | None) -> bool:
        line, row = self._supply.lines.get(key), self._group.rows.get(key)
        return (
            self._leases.is_of_the_leader_before(token, fence)
            and has(self._span, self._group.key_of(key))
            and key not in self._leases.of
            and (line is None or line.place is not Place.DELAYED)
            and not (row is not None and row.parked)
            and self._options.selection.matches(self._group.key_of(key))
        )

    def take(self, consumer: int, count: int, bytes_max: int, now_ms: int) -> Batches:
        """Lease keys to a consumer: at most `count`, and about `bytes_max` bytes of entries."""
        found = Batches(self._group)
        if now_ms < self._reclaim_until_ms or consumer in self._silent:
            return found
        count = min(count, KEYS_A_TURN)
        until = now_ms + self._options.lease_ms
        room, rows_left, put_off = bytes_max, self._rows_left(count), 0
        rows, lines, leases = self._group.rows, self._supply.lines, self._leases
        floors = [floor for *_, floor in self._group.floors.within(*self._span)]
        floor = floors[0] if len(floors) == 1 and not self._group.by_entry else None
        while len(found.leases) < count and room > 0 and len(found.seqs) < limits.page_entries_max:
            key = self._ready.take(consumer, now_ms)
            if key is None:
                break
            line, row = lines[key], rows.get(key)
            if row is not None and row.parked:
                self._supply.park(key)
                continue
            if row is not None:
                position = row.done
            else:
                position = self._group.rest(key) if floor is None else floor
            if not line.seqs or line.seqs[0] < position:
                self._supply.passed(line, position)
            if not line.seqs:
                self._supply.free(line, position)
                continue
            if row is None and rows_left <= 0:
                self._ready.put(key, now_ms)
                put_off += 1
                if put_off == _PUT_OFF_MAX:
                    break
                continue
            most = 1 if row is not None and row.deliveries else len(line.seqs)
            taken, size = _fitting(line, min(most, limits.page_entries_max - len(found.seqs)), room)
            if not taken and found.leases:
                self._ready.put(key, now_ms)
                break
            taken = max(taken, 1)
            lease = leases.begin(key, consumer, line.seqs[0], line.seqs[taken - 1] + 1, until)
            deliveries = 1
            if row is None:
                rows_left -= 1
            elif row.deliveries:
                deliveries += row.deliveries
                self._redelivered += 1
            found.add(lease, line, deliveries, taken)
            room -= size
            self._supply.leased(line, lease.first, lease.through)
            self._ready.leased(key, consumer)
        return found

    def settle(
        self,
        consumer: int,
        acks: Sequence[tuple[bytes, int, int]],
        releases: Iterable[tuple[bytes, int, int, str]],
        rejects: Iterable[tuple[bytes, int, str]],
        extends: Iterable[tuple[bytes, int]],
        settling: Settling,
        *,
        now_ms: int,
        leaves: bool = False,
        patient: bool = False,
    ) -> None:
        """Take the request of a consumer. `settling` is told of every key, at once or later.

        `patient`: nobody waits for the acknowledgements, so they may gather (`ack_turns`).
        """
        if consumer in self._seen_ms:
            self._seen_ms[consumer] = now_ms
            self._silent.discard(consumer)
        self._settle_acks(consumer, acks, settling, patient=patient)
        for key, token, delay_ms, error in releases:
            lease = self._free_lease(consumer, key, token, settling)
            if lease is not None and error:
                self._fail(lease, 0, error, now_ms + delay_ms, settling)
            elif lease is not None:
                self._give_back(lease, now_ms, delay_ms)
        for key, token, error in rejects:
            lease = self._free_lease(consumer, key, token, settling)
            if lease is not None:
                self._fail(lease, REJECT, error, now_ms, settling)
        for key, token in extends:
            lease = self._leases.held(key, token, consumer)
            if lease is None:
                self._refuse(settling, key, LEASE)
            else:
                self._leases.extend(lease, now_ms + self._options.lease_ms)
        if leaves:
            self._leave(consumer, now_ms)
        settling.settled()

    def _settle_acks(
        self, consumer: int, acks: Sequence[tuple[bytes, int, int]], settling: Settling,
        *, patient: bool,
    ) -> None:  # fmt: skip
        awaited, waiting, lines = 0, self._ack_turns.leases, self._supply.lines
        for key, token, through in acks:
            lease = self._leases.held(key, token, consumer)
            if lease is None:
                if not self._leases.was_settled(key, token, through):
                    self._refuse(settling, key, LEASE)
            elif through > lease.through or (lease.claimed and through <= lease.first):
                self._refuse(settling, key, POSITION)
            elif lease.busy and not lease.wanted:  # a failure of the key is under way
                self._refuse(settling, key, LEASE)
            elif through > lease.first:
                awaited += 1
                lease.wants(through, settling)
                if not lease.busy:
                    waiting[key] = lease
        if awaited:
            has_more = patient and any(
                lines[key].has_from(through) for key, _, through in acks if key in lines
            )
            self._ack_turns.added(patient=patient and not has_more)
            settling.awaits(awaited)

    def append(self, consumer: int, appending: Appending, now_ms: int) -> None:
        """Take acknowledgements that shall be applied with a batch, all of it or nothing."""
        if consumer in self._seen_ms:
            self._seen_ms[consumer] = now_ms
        self._appends.add(consumer, appending)

    def repeated(self, consumer: int, acks: Sequence[AckFrom], now_ms: int) -> None:
        """Take acknowledgements that were applied with a batch that came again."""
        self._appends.repeated(consumer, acks, now_ms)

    def _free_lease(
        self, consumer: int, key: bytes, token: int, settling: Settling
    ) -> Lease | None:
        """Return the lease of a key that is to be given back, unless it is over or settled."""
        lease = self._leases.held(key, token, consumer)
        if lease is not None and not lease.busy and not lease.wanted:
            return lease
        if lease is not None or not self._leases.was_given_back(key, token):
            self._refuse(settling, key, LEASE)
        return None

    def _refuse(self, settling: Settling, key: bytes, reason: str) -> None:
        settling.refuses(key, reason, self._group.position(key))

    def _give_back(self, lease: Lease, now_ms: int, delay_ms: int = 0) -> None:
        """End a lease; the key goes to a consumer again, after the delay."""
        self._leases.end(lease, GIVEN_BACK)
        self._put_back(lease.key, now_ms + delay_ms, now_ms)

    def _put_back(self, key: bytes, ready_ms: int, now_ms: int) -> None:
        line = self._supply.lines[key]
        if ready_ms > now_ms:
            self._supply.delayed(line)
            heapq.heappush(self._delayed, (ready_ms, key))
        else:
            self._free(line, self._group.position(key), now_ms)

    def _free(self, line: Line, position: int, now_ms: int) -> None:
        """Let a key go on at its position."""
        if self._supply.free(line, position):
            self._ready.put(line.key, now_ms)

    def _leave(self, consumer: int, now_ms: int) -> None:
        for key in self._leases.keys_of(consumer):
            lease = self._leases.of[key]
            if not lease.busy and not lease.wanted:
                self._give_back(lease, now_ms)
        self._seen_ms.pop(consumer, None)
        self._silent.discard(consumer)
        self._ready.left(consumer)

    def _fail(
        self, lease: Lease, parked: int, error: str, ready_ms: int, settling: Settling | None
    ) -> None:
        """Note a failed delivery; the lease is over when the note is applied."""
        lease.begins_command()
        if settling is not None:
            settling.awaits()
        self._failures.append(Failure(lease.key, 0, 0, parked, error, ready_ms, settling))

    # Time.

    def tick(self, now_ms: int) -> None:
        """End what is over: leases, delays, and the wait for consumers that are gone."""
        for lease in self._leases.due(now_ms):
            self._fail(lease, 0, "the lease ended", now_ms, None)
            if lease.consumer in self._seen_ms:
                self._silent.add(lease.consumer)
                self._ready.left(lease.consumer)
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, key = heapq.heappop(self._delayed)
            line = self._supply.lines.get(key)
            if line is not None and line.place is Place.DELAYED:
                self._free(line, self._group.position(key), now_ms)
        gone = now_ms - self._options.lease_ms - limits.group_wait_ms_max
        for consumer in [each for each, seen in self._seen_ms.items() if seen < gone]:
            if not self._leases.keys_of(consumer):
                self._leave(consumer, now_ms)
        if not self._seen_ms and self._supply.size:
            self.removed()  # nobody asks: the entries are read again when somebody does

    def next_tick_ms(self, now_ms: int) -> int | None:
        """Return when something is over next, or None."""
        found = [
            self._leases.next_deadline_ms(),
            self._delayed[0][0] if self._delayed else None,
            self._ack_turns.next_ms,
        ]
        if self._reclaim_until_ms > now_ms:
            found.append(self._reclaim_until_ms)
        return min((each for each in found if each is not None), default=None)

    # Commands.

    def proposals(self, next_seq: int, now_ms: int) -> list[Proposal]:
        """Return the commands to propose now, in this order. Each is proposed, or the dispatcher
        is given up."""
        found: list[Proposal] = []
        for leases in self._ack_turns.take(now_ms):
            found += self._propose_acks(leases, now_ms)
        self._ack_turns.begun(len(found), now_ms)
        found += self._appends.proposals(now_ms)
        failures, self._failures = self._failures, []
        for at in range(0, len(failures), KEYS_A_TURN):
            found += self._propose_failures(failures[at : at + KEYS_A_TURN], now_ms)
        claim = self._next_claim(next_seq, now_ms)
        if claim is not None:
            self._claim = Pending(claim)
            payload = claim.payload(self.group_id, self.fence)
            found.append(Proposal(of_range.GROUP_FLOOR, payload, claim=claim))
        return found

    def _expected(self, keys: Sequence[bytes]) -> list[int]:
        """Return the positions that keys will have once the claim under way is applied."""
        if self._claim is None:
            return self._group.positions(keys)
        return [self._claim.position(self._group, key) for key in keys]

    def _propose_acks(self, leases: list[Lease], now_ms: int) -> list[Proposal]:
        keys = [lease.key for lease in leases]
        through = [lease.wanted for lease in leases]
        expected = self._expected(keys)
        if not all(map(lt, expected, through)):  # somebody else has moved keys
            for lease, position in zip(leases, expected, strict=True):
                if position >= lease.wanted:
                    self._lost(lease, now_ms)
            ahead = list(map(lt, expected, through))
            leases, keys = list(compress(leases, ahead)), list(compress(keys, ahead))
            expected, through = list(compress(expected, ahead)), list(compress(through, ahead))
        for lease in leases:
            lease.begins_command()
        payload = [self.group_id, self.fence, keys, expected, through]
        return [Proposal(of_range.GROUP_ACK, payload, leases)] if leases else []

    def _propose_failures(self, failures: list[Failure], now_ms: int) -> list[Proposal]:
        told = []
        for failure in failures:
            lease = self._leases.of[failure.key]
            (expected,) = self._expected((failure.key,))
            if expected >= lease.through:  # the failed entry is not the next one any more
                self._end_failed(failure, now_ms)
                continue
            row = self._group.rows.get(failure.key)
            deliveries = 1 + (row.deliveries if row is not None else 0)
            is_dead = deliveries >= self._options.max_deliveries
            parked = failure.parked or PARK * is_dead
            told.append(failure._replace(expected=expected, deliveries=deliveries, parked=parked))
        rows = [[each.key, each.expected, each.deliveries, each.parked, each.error]
                for each in told]  # fmt: skip
        payload = [self.group_id, self.fence, rows, ""]
        return [Proposal(of_range.GROUP_NOTE, payload, failures=told)] if rows else []

    def _next_claim(self, next_seq: int, now_ms: int) -> Claim | None:
        """Return the claim to propose, if the floor shall rise now."""
        if self._claim is not None:
            return None
        rows = len(self._group.rows)
        grown = rows - self._floor_rows
        many = grown > _ROWS_MORE or (grown > _ROWS_FEW and rows > _ROWS_TIGHT)
        if not many and now_ms < self._floor_ms + _FLOOR_MS:
            return None
        self._floor_ms = now_ms
        self._supply.revived()
        left = limits.group_rows_max - len(self._group.rows)
        spans = list(self._group.floors.within(*self._span))
        for _ in spans:
            self._floor_at = (self._floor_at + 1) % len(spans)
            start, end, _ = spans[self._floor_at]
            claim = floor_claim(self._supply, self._group, (start, end), next_seq, left)
            if claim is not None:
                return claim
        self._floor_rows = len(self._group.rows)
        return None

    def append_applied(self, proposal: Proposal, reply: Mapping[str, Any], now_ms: int) -> None:
        """Take the reply to a batch with acknowledgements, which may be an error."""
        self._appends.applied(proposal, reply, now_ms)

    def applied(
        self, proposal: Proposal, refused: Sequence[int], actual: Sequence[int], now_ms: int
    ) -> None:
        """Take the answer to a proposal that was applied, with the places that it refused."""
        places = dict(zip(refused, actual, strict=True))
        if proposal.claim is not None:
            self._claim = None
            self._floor_rows = len(self._group.rows)
        for at, failure in enumerate(proposal.failures):
            self._failure_applied(failure, places.get(at), now_ms)
        if not proposal.leases:
            return
        self._ack_turns.ended(now_ms)
        _, _, _, expected, through = proposal.payload
        acked = []
        for at, (lease, to) in enumerate(zip(proposal.leases, through, strict=True)):
            if at in places:
                self._ack_refused(lease, (expected[at], to), places[at], now_ms)
            else:
                acked.append((lease, to))
        self._acked(acked, now_ms)

    def _ack_refused(self, lease: Lease, step: tuple[int, int], actual: int, now_ms: int) -> None:
        """Take the refusal of a step from one position to the next; the key is at `actual`."""
        expected, through = step
        row = self._group.rows.get(lease.key)
        if row is not None and row.parked:
            self._parks(lease)
        elif actual >= through or actual < lease.first:
            self._lost(lease, now_ms)
        elif actual == expected:
            self._answer(lease, FULL)
            lease.rests()
        else:  # the key's position moved to an entry that the consumer has
            self._ack_turns.add(lease)

    def _goes_on(self, lease: Lease) -> None:
        """Let the consumer keep a key, and propose the acknowledgements that wait."""
        lease.rests()
        if lease.waiting:
            lease.wants(max(through for through, _ in lease.waiting))
            self._ack_turns.add(lease)

    def _parks(self, lease: Lease) -> None:
        """End a lease of a key that was parked."""
        self._answer(lease, LEASE)
        self._leases.drop(lease)
        self._supply.park(lease.key)

    def _lost(self, lease: Lease, now_ms: int) -> None:
        """End a lease of a key that somebody else has moved, past what the consumer has done."""
        self._answer(lease, POSITION)
        self._leases.drop(lease)
        self._put_back(lease.key, now_ms, now_ms)

    def _answer(self, lease: Lease, reason: str) -> None:
        """Refuse what waits for a lease."""
        position = self._group.position(lease.key)
        for settling in lease.answered(lease.wanted):
            settling.refuses(lease.key, reason, position)
            settling.settled()

    def _acked(self, acked: list[tuple[Lease, int]], now_ms: int) -> None:
        """Let consumers keep the rest of their batches; keys whose batches are done go on."""
        done: dict[Settling, int] = {}
        positions = self._group.positions([lease.key for lease, _ in acked])
        lines = self._supply.lines
        for (lease, through), position in zip(acked, positions, strict=True):
            for settling in lease.answered(through):
                done[settling] = done.get(settling, 0) + 1
            lease.acked(through)
            if lease.wanted > through:
                self._ack_turns.add(lease)
                self._supply.lines[lease.key].moved(Place.LEASED, through)
            elif through < lease.through and not lease.claimed:
                lease.rests()
                self._supply.lines[lease.key].moved(Place.LEASED, through)
            else:
                self._leases.end(lease, through)
                if self._supply.free(lines[lease.key], position):
                    self._ready.put(lease.key, now_ms)
        for settling, count in done.items():
            settling.settled(count)

    def _failure_applied(self, failure: Failure, actual: int | None, now_ms: int) -> None:
        lease = self._leases.of[failure.key]
        row = self._group.rows.get(failure.key)
        is_parked = row is not None and row.parked
        has_moved = actual is not None and failure.expected != actual < lease.through
        if has_moved and not is_parked:
            self._failures.append(failure)  # at the new position
            return
        self._end_failed(failure, now_ms)

    def _end_failed(self, failure: Failure, now_ms: int) -> None:
        """End the lease of a failed delivery; park the key, or let it go on after the delay."""
        lease = self._leases.of[failure.key]
        if failure.waiting is None:
            self._leases.drop(lease)  # the lease has ended by itself, and its consumer is late
        else:
            self._leases.end(lease, GIVEN_BACK)
            failure.waiting.settled()
        row = self._group.rows.get(failure.key)
        if row is not None and row.parked:
            self._supply.park(failure.key)
        else:
            self._put_back(failure.key, failure.ready_ms, now_ms)

    # Operators.

    def decided(self) -> None:
        """Look for parked keys that an operator let go on, or moved."""
        self._supply.revived()

    def claim_refused(self) -> None:
        """Note that the proposed floor was refused, and changed nothing."""
        self._claim = None

    # Numbers.

    def unit(self, token: int) -> bytes | None:
        """Return the unit of a token in a group without an order, if the leader knows the token."""
        return self._leases.unit(token) if isinstance(self._leases, EntryLeases) else None

    def _rows_left(self, enough: int) -> int:
        """Return how many keys without a row may be leased: an acknowledgement makes a row.

        From `enough` on the number may be too low.
        """
        rows = self._group.rows
        left = limits.group_rows_max - _ROWS_SPARE - len(rows)
        if left - len(self._leases.of) >= enough:
            return left - len(self._leases.of)
        return left - sum(key not in rows for key in self._leases.of)

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return self._options.lease_ms

    @property
    def size(self) -> int:
        """The bytes of the entries in memory."""
        return self._supply.size

    @property
    def ready(self) -> int:
        """How many keys wait for a consumer with entries in memory."""
        return len(self._ready)

    @property
    def in_flight(self) -> dict[bytes, Lease]:
        """The leases by key."""
        return self._leases.of

    @property
    def consumers(self) -> int:
        """How many consumers were heard lately."""
        return len(self._seen_ms)

    @property
    def waiting(self) -> int:
        """How many keys with undone entries no consumer has, of those that are known."""
        return len(self._supply.lines) - len(self._leases.of)

    @property
    def parked(self) -> int:
        """How many keys are parked."""
        return len(self._supply.parked)

    @property
    def parked_keys(self) -> Collection[bytes]:
        """The parked keys; some may go on already."""
        return self._supply.parked.keys()

    @property
    def redelivered(self) -> int:
        """How many batches were delivered again after a failure."""
        return self._redelivered


def _fitting(line: Line, most: int, room: int) -> tuple[int, int]:
    """Return how many of the first entries of a line fit in `room` bytes, and their bytes."""
    if most == len(line.seqs) and line.size + _BATCH_BYTES <= room:
        return most, line.size + _BATCH_BYTES
    count, size = 0, _BATCH_BYTES
    for at in range(most):
        size_of = line.entry_bytes(at)
        if size + size_of > room:
            break
        count, size = count + 1, size + size_of
    return count, size
