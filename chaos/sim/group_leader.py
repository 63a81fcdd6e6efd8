"""The leader's part of a consumer group in a range: the real dispatcher, driven by the simulator.

It does what `node.serving.group_driver` does on a node: GROUP_OPEN first, then commands in the
order of the log; it is given up with the lead, or with another fence.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData, LognodeError
from ...client.protocol.levels import LEVEL_MAX
from ...node.dispatch.batches import Batches
from ...node.dispatch.commands import AckFrom, Appending, Proposal
from ...node.dispatch.dispatcher import Dispatcher, Options
from ...node.dispatch.settling import Settling
from ...node.dispatch.supply import KeyRead
from ...raft.types import NotLeaderError
from ...statemachine import commands
from ...statemachine.groups.selection import Selection
from .clients import Reply
from .letters import DELIVERIES_MAX, Copies, Living

if TYPE_CHECKING:
    from .replica import Answer, RangeReplica

GROUP: Final = 1
LEASE_MS: Final = 1_500
_DELIVERIES_MAX: Final = 100_000
"""Without dead letters no key is parked: at the end every entry is acknowledged."""
_TICK_S: Final = 0.2
_PAGE: Final = 8
_READS: Final = 16
"""Pages that the leader reads before an answer, so that some answers come before all is read."""
_REFUSED: Final[Reply] = {"status": "error", "hint": None}


class GroupLeader:
    """The group on one member of a range. Requests name units, in place of keys (`units`)."""

    def __init__(self, replica: "RangeReplica") -> None:
        self._replica = replica
        self._dispatcher: Dispatcher | None = None
        self._copies: Copies | None = None
        self._term = 0
        self._removals = 0
        self._asked: list[tuple[dict[str, Any], Answer]] = []
        """Requests that wait until the group is open."""

    def request(self, body: dict[str, Any], answer: "Answer") -> None:
        """Serve a consumer, as leader."""
        dispatcher = self._present()
        if dispatcher is None:
            self._open(body, answer)
        elif body["what"] == "take":
            try:
                self._take(dispatcher, body, answer)
            except CorruptData as error:  # another member has the file
                self._replica.host.damage_found(self._replica, error)
                answer(_REFUSED)
        elif body["what"] == "append":
            self._append(dispatcher, body, answer)
        else:
            self._settle(dispatcher, body, answer)

    def _now_ms(self) -> int:
        return int(self._replica.host.world.clock.now * 1000)

    def _present(self) -> Dispatcher | None:
        """Return the dispatcher, unless it is over."""
        replica, dispatcher = self._replica, self._dispatcher
        group = replica.store.state.groups.by_id.get(GROUP)
        if dispatcher is None or not replica.takes_commands or group is None:
            return None
        is_mine = replica.group.term == self._term and group.fence == dispatcher.fence
        return dispatcher if is_mine else None

    # Beginning.

    def _open(self, body: dict[str, Any], answer: "Answer") -> None:
        replica = self._replica
        if replica.store.state.level < LEVEL_MAX:
            replica.propose_level(LEVEL_MAX)
            answer(_REFUSED)
            return
        self._dispatcher = None
        self._asked.append((body, answer))
        if len(self._asked) == 1:
            group = replica.store.state.groups.by_id.get(GROUP)
            fence, term = 0 if group is None else group.fence, replica.group.term
            opened = partial(self._opened, fence, term)
            by_entry = [True] * replica.host.options.unordered
            self._propose(commands.GROUP_OPEN, [GROUP, 1, False, *by_entry], opened)

    def _opened(self, before: int, term: int, replies: Sequence[Any] | None) -> None:
        replica, asked = self._replica, self._asked
        self._asked = []
        group = replica.store.state.groups.by_id.get(GROUP)
        is_open = replies is not None and replies[0].get("fence") == getattr(group, "fence", None)
        if group is None or not is_open or not replica.takes_commands or replica.group.term != term:
            for _, answer in asked:
                answer(_REFUSED)
            return
        span = replica.descriptor.span
        self._term, self._removals = term, replica.store.state.removal.changes
        has_letters = replica.host.options.letters
        options = Options(
            LEASE_MS, DELIVERIES_MAX if has_letters else _DELIVERIES_MAX,
            Living() if has_letters else Selection(),
        )  # fmt: skip
        dispatcher = self._dispatcher = Dispatcher(
            GROUP, group, (span.start, span.end), options, now_ms=self._now_ms(),
            reclaims=before > 0,
        )  # fmt: skip
        self._copies = None
        if has_letters:
            self._copies = Copies(
                replica, GROUP, group.fence, self._propose, lambda: self._present() is None
                or self._dispatcher is not dispatcher, dispatcher.decided,
            )  # fmt: skip
        self._tick(dispatcher)
        for body, answer in asked:
            self.request(body, answer)

    def _tick(self, dispatcher: Dispatcher) -> None:
        if self._present() is dispatcher:
            dispatcher.tick(self._now_ms())
            if self._copies is not None:
                self._copies.look()
            self._flush(dispatcher)
            self._replica.host.later(_TICK_S, partial(self._tick, dispatcher))
            self._replica.host.pump()

    # Commands.

    def _propose(self, kind: int, payload: list[Any], settled: Any) -> None:
        stamp_ms = self._replica.host.wall_ms()
        self._replica.propose(commands.proposal(kind, stamp_ms, payload), settled)

    def _flush(self, dispatcher: Dispatcher) -> None:
        if self._present() is not dispatcher:
            return
        next_seq = self._replica.store.state.next_seq
        for proposal in dispatcher.proposals(next_seq, self._now_ms()):
            deliveries, fence = self._replica.host.world.deliveries, dispatcher.fence
            for lease, through in zip(proposal.leases, proposal.acked_to, strict=True):
                deliveries.proposed(fence, lease.key, lease.token, through)
            for key, token, _, through in proposal.appending.acks if proposal.appending else ():
                deliveries.proposed(fence, key, token, through)
            settled = partial(self._applied, dispatcher, proposal)
            self._propose(proposal.kind, proposal.payload, settled)

    def _applied(
        self, dispatcher: Dispatcher, proposal: Proposal, replies: Sequence[Any] | None
    ) -> None:
        if replies is None or self._dispatcher is not dispatcher:
            return
        (reply,) = replies
        if proposal.appending is not None:
            dispatcher.append_applied(proposal, reply, self._now_ms())
            self._replica.host.later(0.0, partial(self._flush_on, dispatcher))
            return
        if reply["status"] == "error":
            if proposal.kind == commands.GROUP_FLOOR:
                dispatcher.claim_refused()
            else:
                self._dispatcher = None
            return
        refused = reply.get("refused", ())
        dispatcher.applied(proposal, refused, reply.get("actual", ()), self._now_ms())
        self._replica.host.later(0.0, partial(self._flush_on, dispatcher))

    def _flush_on(self, dispatcher: Dispatcher) -> None:
        self._flush(dispatcher)
        self._replica.host.pump()

    # Consumers.

    def _take(self, dispatcher: Dispatcher, body: dict[str, Any], answer: "Answer") -> None:
        replica = self._replica
        deliveries, now_ms = replica.host.world.deliveries, self._now_ms()
        told: Reply = {
            "status": "ok", "fence": dispatcher.fence, "span": replica.descriptor.span,
            "batches": [], "refused": [],
        }  # fmt: skip
        dispatcher.join(body["consumer"], now_ms)
        if body["fence"] != dispatcher.fence:
            answer(told)
            return
        held = {key: lease.token for key, lease in dispatcher.in_flight.items()}
        claims: list[tuple[bytes, int]] = []
        if body["holds"] is not None:
            next_seq = replica.store.state.next_seq
            kept = {key for key, _ in body["holds"]}
            dispatcher.keep_only(body["consumer"], kept, now_ms)
            told["refused"] = dispatcher.claim(body["consumer"], body["holds"], next_seq, now_ms)
            claims = [hold for hold in body["holds"] if hold[0] not in told["refused"]]
        self._read(dispatcher)
        found = dispatcher.take(body["consumer"], body["count"], 1 << 16, now_ms)
        told["batches"] = _batches(found)
        was_acked = {batch[0] for batch in told["batches"] if deliveries.chose(*batch)}

        def confirmed(index: int | None) -> None:
            if index is None:
                answer(_REFUSED)
                return
            for key, token in claims:
                deliveries.claimed(key, token, held.get(key))
            for key, token, _ in told["batches"]:
                deliveries.gave(key, token, was_acked=key in was_acked)
            answer(told)

        try:
            replica.ask_read(confirmed)
        except NotLeaderError:
            answer(_REFUSED)

    def _read(self, dispatcher: Dispatcher) -> None:
        state = self._replica.store.state
        if state.removal.changes != self._removals:
            self._removals = state.removal.changes
            dispatcher.removed()
        for _ in range(_READS):
            read = dispatcher.next_read(state.next_seq)
            if read is None:
                return
            if isinstance(read, KeyRead):
                page = state.scan(
                    read.key, read.from_seq, read.end_seq, limit=_PAGE, bytes_max=read.bytes_max
                )
            else:
                page = state.read_span(
                    read.start, read.end, read.from_seq, read.end_seq, limit=_PAGE,
                    bytes_max=read.bytes_max,
                )  # fmt: skip
            dispatcher.take_page(read, page, self._now_ms())

    def _settle(self, dispatcher: Dispatcher, body: dict[str, Any], answer: "Answer") -> None:
        deliveries = self._replica.host.world.deliveries
        old = {key for key, token, through in body["acks"]
               if deliveries.is_old(key, token, through)}  # fmt: skip

        def done() -> None:
            refused = [each.key for each in settling.refused]
            deliveries.refused += len(refused)
            for key in old.difference(refused):
                deliveries.accepted(key)
            answer({"status": "ok", "refused": refused})

        settling = Settling(done)
        dispatcher.settle(
            body["consumer"], body["acks"], body["releases"], (), body["extends"], settling,
            now_ms=self._now_ms(), leaves=body["leaves"],
        )  # fmt: skip
        self._flush(dispatcher)

    def _append(self, dispatcher: Dispatcher, body: dict[str, Any], answer: "Answer") -> None:
        """Append an output with the acknowledgement of its entries."""
        state, deliveries = self._replica.store.state, self._replica.host.world.deliveries
        ack = AckFrom(*body["ack"])
        try:
            batch = self._replica.store.admit(body["batch"])
        except LognodeError:
            answer(_REFUSED)
            return
        known = state.repeated(batch)
        if known is not None:
            dispatcher.repeated(body["consumer"], [ack], self._now_ms())
            self._flush(dispatcher)
            answer({"status": "ok", "refused": False, "seq": known["seqs"][0]})
            return
        is_old = deliveries.is_old(ack.key, ack.token, ack.through)

        def done() -> None:
            reply = appending.reply or {"status": "error"}
            if reply["status"] == "ok" and is_old:
                deliveries.accepted(ack.key)
            is_refused = reply["status"] != "ok"
            answer({"status": "ok", "refused": is_refused, "seq": reply.get("first_seq")})

        appending = Appending([ack], body["batch"], 1, done)
        dispatcher.append(body["consumer"], appending, self._now_ms())
        self._flush(dispatcher)


def _batches(found: Batches) -> list[tuple[bytes, int, list[int]]]:
    """Return each unit with its token and its seqs."""
    batches, at = [], 0
    for lease, token, count in zip(found.leases, found.tokens, found.counts, strict=True):
        batches.append((lease.key, token, found.seqs[at : at + count]))
        at += count
    return batches
