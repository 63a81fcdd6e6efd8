"""Heartbeats: every node asks the controller's leader for news, and so shows that it is alive.

The request names the image that the node has. It waits at the leader until there is a newer image,
at most half a second. The answer carries the first page of the changes since then, and the table of
leaders. The request carries what the node itself leads. None of this is needed for safety
(docs/design/ranges.md#metadata).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata as metadata_of_package
from typing import Any

from ...client.connection import Connection
from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument, LognodeError, NotLeader
from ...client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from ...client.protocol.peers import HEARTBEAT
from ...partitions import levels
from ...partitions.facts import Facts
from ...partitions.leads import LEAD_RESTS_S
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, NodeRecord
from ...partitions.planner import Damage, Large
from ...partitions.shrinking import Small
from ..access.exposure import Exposure
from ..directory.disk_room import DiskRoom
from ..lifecycle.draining import Draining
from ..lifecycle.handover import Handover
from ..load.busy_ranges import HotRanges
from ..load.large_ranges import LargeRanges
from ..load.stored import Stored
from ..metadata.view import View
from ..replicas.controller_replica import ControllerReplica
from ..replicas.host import Host
from ..rules import heartbeats
from ..rules.heartbeats import PERIOD_S, Told, damage_told, has_news, is_heard
from ..runtime.slices import in_slices
from . import images
from .images import Images

_RETRY_S = 0.1
_ALIVE_S = 2.0
"""A node that was not heard for this time leads nothing any more."""
_HEARD_S = 3.0
"""A node that was not heard for this time is not shown as alive."""
_LARGE = 4
"""Number of fields in a row about a large or busy range, as sent."""
_VERSION_CHARS = 64
_ROWS = limits.told_rows_max

log = logging.getLogger("lognode.heartbeat")
Body = dict[str, Any]


class Heartbeat:
    """Both sides of a heartbeat: `run` asks, `serve` answers on the leader."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        facts: Facts,
        connection: Callable[[int], Connection | None],
        room: DiskRoom,
        draining: Draining,
        large: LargeRanges,
        handover: Handover,
        hot: HotRanges,
        exposure: Exposure,
        images: Images,
        stored: Stored,
        program: Program,
        noted: Callable[[], int],
        kafka: str | None = None,
    ) -> None:
        self._own_program = program
        self._kafka = kafka
        """Where Kafka clients reach this node."""
        self._noted = noted
        """Returns the feature level that the directory has noted."""
        self._stored = stored
        self._exposure = exposure
        self._images = images
        self._room = room
        self._draining = draining
        self._large = large
        self._handover = handover
        self._hot = hot
        self._node_id = node_id
        self._host = host
        self._view = view
        self._facts = facts
        self._connection = connection
        self.last_answer_at = time.monotonic()
        self._told_alive: set[int] | None = None
        """The nodes that the controller's leader last heard, as its last answer tells."""
        self._confirmed_at = time.monotonic()
        """When a quorum of the controller last confirmed the metadata that this node has."""
        self._try = 0
        self._told = ((0, 0, 0), 0)
        """The controller leader (node, generation, term) that knows this node's table of leaders up
        to this number."""
        self._seen = [0, 0, 0]
        """Generation and term of the controller leader, and the number up to which its table is
        known here."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._note_own()
            replica = self._host.controller
            if replica is not None and replica.leader is not None:
                # The view forgets the leader after an unanswered heartbeat; the replica may still
                # know it.
                self._view.learn(replica.gid, replica.group.term, replica.leader)
            if replica is not None and replica.leads and not replica.is_sealed:
                self._hear(self._node_id, self._draining.leads_left)
                self._stored.learn(self._stored_in_all())
                self.last_answer_at = time.monotonic()
                if len(replica.metadata.controller.members) == 1:
                    self._confirmed_at = self.last_answer_at
                await self._view.changed(PERIOD_S / 2)
                continue
            try:
                await self._ask()
            except LognodeError as error:
                level = logging.ERROR if isinstance(error, InvalidArgument) else logging.DEBUG
                log.log(level, "no heartbeat", extra={"fields": {"error": str(error)}})
                await asyncio.sleep(_RETRY_S)

    def unsure_s(self) -> float:
        """Return for how many seconds this node has not known whether its metadata is the newest.

        A quorum confirms the controller's leader whenever another node asks it, which the members
        do twice a second. A leader without a quorum is not confirmed.
        """
        return time.monotonic() - self._confirmed_at

    @property
    def _program(self) -> Program:
        return self._own_program._replace(noted=self._noted())

    def _own_news(self) -> Body:
        """Return what this node reports of itself, apart from the table of leaders."""
        return {
            "damaged": damage_told(self._host.stored_damage),
            "halted": damage_told(self._host.halted),
            "disk_free": self._room.told_free,
            "leads_left": self._draining.leads_left,
            "wishes": self._handover.wishes(LEAD_RESTS_S)[:_ROWS],
            "large": [list(told[:_LARGE]) for told in self._large.told[:_ROWS]],
            "busy": [list(told[:_LARGE]) for told in self._hot.told[:_ROWS]],
            "small": list(map(list, self._large.small[:_ROWS])),
            "insecure": self._exposure.insecure,
            "stored": self._stored.told(),
            "program": list(self._program),
            "kafka": self._kafka,
        }

    async def _ask(self) -> None:
        node = self._view.controller_leader()
        if node is None or node == self._node_id:
            self._try += 1
            node = heartbeats.next_to_ask(self._view.metadata, self._node_id, self._try)
        if node is None:
            await asyncio.sleep(_RETRY_S)
            return
        connection = self._connection(node)
        if connection is None:
            self._view.forget_controller_leader()
            await asyncio.sleep(_RETRY_S)
            return
        metadata, leaders = self._view.metadata, self._view.leaders
        (told_node, *told_term), told_number = self._told
        telling = leaders.number
        body = {
            "generation": metadata.controller.generation,
            "version": metadata.version,
            "leaders": leaders.since(told_number if told_node == node else 0),
            "seen": self._seen,
            **self._own_news(),
        }
        asked_at = time.monotonic()
        deadline = asyncio.get_running_loop().time() + 4 * PERIOD_S
        try:
            answer = await connection.request(HEARTBEAT, body, deadline=deadline)
        except NotLeader as error:
            self._view.forget_controller_leader()
            hint: Any = error.fields.get("hint")
            known = type(hint) is int and hint in metadata.controller.members
            if known and hint != self._node_id:
                self._view.learn_leaders(
                    [(CONTROLLER_RANGE, metadata.controller.generation, 0, hint)]
                )
            if not known or self._connection(hint) is None:
                # The leader may be a node that this node, after a long absence, does not know.
                await self._images.pull(connection, images.KNOWN)
            raise
        except LognodeError:
            self._view.forget_controller_leader()
            raise
        self.last_answer_at = time.monotonic()
        self._told_alive = None if answer["alive"] is None else set(answer["alive"])
        if answer["page"] is not None:  # first: leaders are learnt only of known generations
            await self._images.pull(connection, images.NEWEST, first=answer["page"])
        self._confirmed_at = asked_at  # the leader asks a quorum before it answers
        await in_slices(self._view.learning(answer["leaders"]))
        self._seen = answer["seen"]
        generation, term, _ = self._seen
        # The answer does not repeat a leader that it named before this node forgot it.
        self._view.learn_leaders([(CONTROLLER_RANGE, generation, term, node)])
        # A leader of another term began with an empty table: the next heartbeat sends everything.
        knows = (told_node, told_term) == (node, [generation, term])
        self._told = ((node, generation, term), telling if knows else 0)
        damaged = {node: await in_slices(_damage(told)) for node, told in answer["damaged"]}
        halted = {node: await in_slices(_damage(told)) for node, told in answer["halted"] or ()}
        self._view.learn_replicas(damaged, halted)
        self._room.told_all(answer["short"])
        self._stored.learn(answer["stored"] or {})
        own = self._node_id
        insecure = {**dict(answer["insecure"]), own: self._exposure.insecure}
        programs = {node: Program(*told) for node, *told in answer["programs"] or ()}
        kafka = dict(answer["kafka"] or ())
        if self._kafka is not None:
            kafka[own] = self._kafka
        self._view.learn_nodes(insecure, {**programs, own: self._program}, kafka)

    async def serve(self, node: int, body: Body) -> Body:
        """Answer a heartbeat as the leader. Raises NotLeader."""
        replica = self._host.controller
        if replica is None or not replica.leads:
            raise NotLeader(
                "this node does not lead the controller", hint=self._view.controller_leader()
            )
        *seen, seen_number = body["seen"]
        has = (body["generation"], body["version"])
        await replica.ready()
        self._confirmed_at = time.monotonic()
        if not is_heard(node, replica.metadata):
            return await self._parting(replica, has)
        self._hear(node, body["leads_left"])
        # There may be tens of thousands of rows: each list takes many turns of the loop.
        damaged = await in_slices(_damage(body["damaged"]))
        halted = await in_slices(_damage(body["halted"]))
        large = await in_slices(Large(*told) for told in body["large"])
        busy = await in_slices(Large(*told)._replace(by_load=True) for told in body["busy"])
        small = await in_slices(Small(*told) for told in body["small"])
        await in_slices(self._view.learning(body["leaders"]))
        await in_slices(self._keeping(body["wishes"]))
        told = Told(damaged, large + busy, small, body["stored"] or {})
        heartbeats.keep(self._facts, node, told)
        self._room.told(node, body["disk_free"])
        self._view.learn_node(
            node, damaged, halted, insecure=body["insecure"],
            program=program_told(body["program"], replica.metadata.nodes.get(node)),
            kafka=body["kafka"],
        )  # fmt: skip
        self._facts.learn_short(self._room.short.keys())
        metadata = replica.metadata
        if not has_news(metadata, has):
            await self._view.changed(PERIOD_S)
        now_leads, table = [replica.gid.generation, replica.group.term], self._view.leaders
        news = has_news(metadata, has)
        page = await self._images.first_page(metadata, has[1]) if news else None
        return {
            "page": page,
            "leaders": table.since(seen_number if seen == now_leads else 0),
            "seen": [*now_leads, table.number],
            "damaged": list(self._view.damaged.items()),
            "halted": list(self._view.halted.items()),
            "short": list(self._room.short.items()),
            "insecure": list(self._view.insecure.items()),
            "stored": self._stored_in_all(),
            "programs": self._programs(metadata),
            "kafka": [[n, at] for n, at in self._view.kafka.items() if n in metadata.nodes],
            "alive": sorted(self._facts.alive(time.monotonic(), _HEARD_S) & metadata.nodes.keys()),
        }

    def _programs(self, metadata: Metadata) -> list[list[Any]]:
        """Return the programs of the nodes that were not removed, of which there are few enough."""
        programs, present = self._view.programs, levels.present(metadata)
        return [[n.node_id, *programs[n.node_id]] for n in present if n.node_id in programs]

    def alive(self) -> set[int]:
        """Return the nodes that were heard lately, as the controller's leader."""
        return self._facts.alive(time.monotonic(), _ALIVE_S)

    def shown_alive(self) -> set[int] | None:
        """Return the nodes that the controller's leader heard lately; None while nobody knows,
        since this node does not lead and no leader answers.

        Every node gets the leader's list with its heartbeats, so all nodes show the same, at most a
        second apart, and no status waits for a leader that is away.
        """
        now, replica = time.monotonic(), self._host.controller
        if replica is not None and replica.leads:
            return self._facts.alive(now, _HEARD_S)
        return self._told_alive if now - self.last_answer_at <= _HEARD_S else None

    def _stored_in_all(self) -> dict[str, int]:
        return self._facts.stored_in_all(time.monotonic(), _ALIVE_S)

    async def _parting(self, replica: ControllerReplica, has: tuple[int, int]) -> Body:
        """Answer a node that was removed; ignore everything that the node reports."""
        metadata = replica.metadata
        news = has_news(metadata, has)
        return {
            "page": await self._images.first_page(metadata, has[1]) if news else None,
            "leaders": [],
            "seen": [replica.gid.generation, replica.group.term, 0],
        }

    def _hear(self, node: int, leads_left: int | None) -> None:
        self._facts.hear(node, time.monotonic(), leads_left)

    def _note_own(self) -> None:
        mine = damage_told(self._host.stored_damage)
        told = Told(mine, self._large.told + self._hot.told, self._large.small, self._stored.told())
        heartbeats.keep(self._facts, self._node_id, told)
        self._view.learn_node(
            self._node_id, mine, damage_told(self._host.halted),
            insecure=self._exposure.insecure, program=self._program, kafka=self._kafka,
        )  # fmt: skip
        self._facts.learn_short(self._room.short.keys())
        deque(self._keeping(self._handover.wishes(LEAD_RESTS_S)), maxlen=0)

    def _keeping(self, wishes: Iterable[Sequence[Any]]) -> Iterator[None]:
        """Keep ranges for a while at the node that an operator asked to lead them."""
        until = time.monotonic() + LEAD_RESTS_S
        for range_id, node, ago_s in wishes:
            self._facts.keep(range_id, node, until - ago_s)
            yield


def own_program(boot: int, process: int) -> Program:
    """Return the program that this process runs, which is registered with these numbers."""
    try:
        version = metadata_of_package.version("lognode")
    except metadata_of_package.PackageNotFoundError:
        version = "unknown"
    return Program(boot, process, LEVEL_MIN, LEVEL_MAX, version[:_VERSION_CHARS])


def program_told(told: Sequence[Any] | None, node: NodeRecord | None) -> Program | None:
    """Return the program that a node reports; an earlier version reports none."""
    if told is not None:
        return Program(*told)
    return None if node is None else Program.of_older(node)


def _damage(told: Any) -> Iterator[Damage]:
    return ((range_id, generation, why) for range_id, generation, why in told)
