"""Take Raft messages from other nodes: check their sender, and that both sides mean the same group.

A frame carries the messages of all groups, rounds of read confirmations, answers to such rounds,
and the sender's boot and wall clock. Each message names its generation and the fingerprint of its
descriptor (members and lineage): a message of another descriptor is dropped. So is every frame of a
process that a later boot of the same node has replaced: its data directory was probably copied
(x2.24).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ...client.protocol import limits
from ...client.protocol.errors import RemoteProtocolError
from ...raft.types import GroupId, Message
from ..metrics import Metrics
from ..replicas.clocks import Clocks
from ..replicas.replica import Replica
from .confirmations import Confirmations
from .pings import Pings

Body = dict[str, Any]

Boot = tuple[int, int]
"""The boot number and the process number of a node's process; see `membership`."""

_OTHERS_MAX: Final = 1_000
log = logging.getLogger("lognode.raft_in")


def frame(
    items: Mapping[str, list[list[object]]], *, boot: Boot, clock_ms: int, ping: list[object]
) -> Body:
    """Return the body of the one-way message `raft`.

    `items` has `messages`, each made by `item`, and `reads` and `answers`, made by
    `raft.read_rounds`; any of these may be missing. `ping` is the ping of `raft.liveness`."""
    return {**items, "boot": boot[0], "process": boot[1], "clock": clock_ms, "ping": ping}


def item(gid: GroupId, fingerprint: bytes, message: Message) -> list[object]:
    """Return the item of a frame for one message of one group."""
    return [gid.range_id, gid.generation, fingerprint, message]


class RaftIn:
    """Gives messages to their replicas. `registered` returns the boot of a node in the metadata, or
    None for a node that is not registered, or was removed."""

    def __init__(
        self,
        *,
        replica: Callable[[GroupId], Replica | None],
        confirmations: Confirmations,
        pings: Pings,
        registered: Callable[[int], Boot | None],
        clocks: Clocks,
        metrics: Metrics,
    ) -> None:
        self._replica = replica
        self._confirmations = confirmations
        self._pings = pings
        self._registered = registered
        self._clocks = clocks
        self._dropped = metrics.raft_dropped
        self._boots: dict[int, Boot] = {}
        """The latest boot that a message came from, by registered node."""
        self._told: set[int] = set()
        """Registered nodes whose impossible boot was logged."""
        self._others: set[tuple[int, GroupId]] = set()
        """Nodes and groups for which another descriptor was logged."""

    def take(self, sender: int, body: Body) -> None:
        """Give each message to its replica.

        If the sender is not registered here, only its messages to replicas count that have it as a
        member: their descriptors may be newer than the image.

        Raises RemoteProtocolError for a frame with more parts than one turn of the loop may take,
        and for a malformed message.
        """
        _check_parts(body)
        boot = (body["boot"], body["process"])
        items = body["messages"] or ()
        registered = self._registered(sender)
        if registered is None:
            self._dropped.labels("unregistered").inc()
            self._take_messages(sender, items)
            return
        refusal = self._refusal(sender, boot, registered)
        if refusal is not None:
            self._dropped.labels(refusal).inc(max(1, len(items)))
            return
        self._clocks.heard(sender, body["clock"])
        self._pings.heard(sender, boot[0], body["ping"])
        self._take_messages(sender, items)
        for message in body["reads"] or ():
            self._confirmations.receive(sender, message)
        for message in body["answers"] or ():
            self._confirmations.answered(sender, message)

    def _take_messages(self, sender: int, items: Iterable[Sequence[Any]]) -> None:
        for range_id, generation, fingerprint, message in items:
            gid = GroupId(range_id, generation)
            replica = self._replica(gid)
            if replica is None:
                self._dropped.labels("no_replica").inc()
            elif replica.fingerprint != fingerprint:
                self._dropped.labels("other_descriptor").inc()
                self._tell_once(sender, gid)
            else:
                replica.receive(sender, message)

    def _tell_once(self, sender: int, gid: GroupId) -> None:
        if (sender, gid) in self._others or len(self._others) >= _OTHERS_MAX:
            return
        self._others.add((sender, gid))
        log.warning(
            "a message is of a group with another descriptor",
            extra={"fields": {"peer": sender, "range": gid.range_id,
                              "generation": gid.generation}},
        )  # fmt: skip

    def _refusal(self, sender: int, boot: Boot, registered: Boot) -> str | None:
        """Return why the frame is dropped, or None if it is from the node's latest process.

        A later boot is accepted before it is registered: the node must take messages to elect the
        leader that registers it. A boot that no number of starts could reach is refused; else the
        true node would be shut out.
        """
        if boot[0] > limits.boot_max or boot[0] - registered[0] > limits.boot_jump_max:
            if sender not in self._told:
                self._told.add(sender)
                told = {"peer": sender, "boot": boot[0], "registered": registered[0]}
                log.warning(
                    "the node drops frames with an impossible boot number", extra={"fields": told}
                )
            return "boot_jump"
        newest = self._boots.get(sender, registered)
        if registered[0] >= newest[0]:
            newest = registered
        if boot[0] > newest[0]:
            self._boots[sender] = boot
            return None
        return None if boot == newest else "old_boot"


def _check_parts(body: Body) -> None:
    """Raise RemoteProtocolError for a frame with more than `raft_parts_max` parts.

    A frame is handled in one turn of the loop, so the sum over the frame counts, not the size of a
    single message."""
    parts = 0
    for *_, message in body["messages"] or ():  # `raft.messages` has not checked them yet
        if message and type(message[-1]) is list:
            parts += len(message[-1])
    for row in (*(body["reads"] or ()), *(body["answers"] or ())):
        parts += len(row[-1])
    if parts > limits.raft_parts_max:
        raise RemoteProtocolError(
            f"a frame has {parts:,} entries and read confirmations; "
            f"{limits.raft_parts_max:,} are allowed. Send several frames."
        )
