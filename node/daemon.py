"""The daemon: assembles the parts of a node, starts them in order and stops them in order."""

import asyncio
import contextlib
import logging
import os
import random
import time
from functools import partial
from typing import Any

from ..client.accepting.meter import NodeBudgets
from ..client.protocol import Operation
from ..client.protocol import peers as protocol
from ..client.protocol.address import split_address
from ..partitions.facts import Facts
from ..partitions.metadata import Metadata
from ..partitions.model import CONTROLLER_RANGE, Descriptor, Span
from ..raft.types import DiskFailure, RaftOptions
from ..raft.wal import Wal
from ..statemachine.meta import LmdbMeta
from ..statemachine.segments import SegmentStore
from .access.entrance import Entrance
from .access.exposure import Exposure
from .audit.auditing import Auditing
from .certificates.tls import NodeTls
from .config import Config, check_kafka
from .control.controller_changes import ControllerChanges
from .control.controller_driver import ControllerDriver
from .control.heartbeat import Heartbeat, own_program
from .control.images import Images
from .control.lead_balance import LeadBalance
from .control.reports import Reports
from .directory import meta_keys
from .directory.data_directory import DataDirectory, Identity, identity_row, new_incarnation
from .directory.disk_room import DiskRoom, reserve_bytes
from .directory.feature_level import check_level
from .directory.given_files import DialMap, read_secret
from .door.clients import maker, most_clients
from .door.door import Door
from .joining.identifying import identified
from .joining.joining import registration
from .joining.membership import Membership, check_not_refused
from .joining.readiness import Readiness
from .joining.strangers import Strangers
from .kafka import server as kafka_server
from .lifecycle.base_server import BaseServer
from .lifecycle.base_transfer import BaseFetcher
from .lifecycle.draining import Draining
from .lifecycle.duty_runner import DutyRunner
from .lifecycle.handover import Handover
from .lifecycle.recoveries import Recoveries
from .links.confirmations import Confirmations
from .links.known_peers import KnownPeers
from .links.peers import PeerLinks
from .links.pings import Pings
from .links.raft_in import RaftIn
from .listeners.doors import Doors, client_bounds
from .listeners.peer_server import PeerServer
from .listeners.turned_away import TurnedAway
from .load.busy_ranges import HotRanges
from .load.large_ranges import LargeRanges
from .load.load_reports import Loads
from .load.stored import Stored
from .metadata.view import View
from .metrics import Metrics, timed
from .reactions.controller_member import ControllerMember
from .reactions.newer_image import NewerImage
from .reactions.signals import react_to_signals
from .replicas.clocks import Clocks
from .replicas.flush import Flusher
from .replicas.host import Host
from .replicas.range_replica import RangeReplica
from .replicas.replica import Memory, Services
from .replicas.rounds import Rounds
from .replicas.traces import Traces, exporting
from .runtime import descriptors, logs
from .runtime.garbage import Garbage
from .runtime.interpreter import run
from .runtime.parts import Parts
from .runtime.rate import TokenBucket
from .runtime.shutdown import Shutdown
from .runtime.supervision import supervised
from .runtime.surroundings import Surroundings
from .runtime.turn_ends import TurnEnds
from .serving.cluster_service import ClusterService
from .serving.data_service import DataService
from .serving.group_service import GroupService
from .serving.node_reports import NodeReports
from .serving.partition_tails import PartitionTails
from .serving.server import PeerHandler, Server
from .serving.status import Status
from .serving.view_service import ViewService
from .tier import node_tier
from .tier.node_tier import NodeTier
from .tier.tier_store import TierStore
from .upkeep.cluster_gauges import ClusterGauges
from .upkeep.disk_watch import DiskWatch
from .upkeep.group_states import GroupStates
from .upkeep.levels import Levels
from .upkeep.maintenance import Maintenance
from .upkeep.memtables import Memtables
from .upkeep.merges import Merges
from .upkeep.removals import Removals
from .upkeep.scrub import Scrub
from .upkeep.segment_repair import SegmentRepair
from .web.http import HttpServer

_STOP_S = 9.5
_HANDOVER_S = 3.0
_LAST_ROUND_S = 3.0

log = logging.getLogger("lognode.node")


class Node:
    """One node of a cluster. `run` starts the node, serves until asked to stop, and stops it."""

    def __init__(
        self, config: Config, clocks: Clocks | None = None, around: Surroundings | None = None
    ) -> None:
        self._config = config
        self._around = Surroundings() if around is None else around
        self._rng = random.Random()
        self._directory = DataDirectory(config.data)
        self._budgets = NodeBudgets()
        self._metrics = Metrics()
        self._metrics.watch(self._budgets)
        check_kafka(config)
        self._exposure = Exposure.of(config, self._metrics)
        self.shutdown = Shutdown(config.data, self._around)
        self.parts = Parts(self.shutdown.fail)
        self._ends = contextlib.ExitStack()
        """Ends the parts that were made, the last part first; each may be ended twice."""
        self._files_open = contextlib.ExitStack()
        self._clocks = Clocks() if clocks is None else clocks
        self._process = new_incarnation()
        self._traces: Traces | None = None

    def watch_process(self) -> None:
        """Show the use of the process in the metrics: the node has the process for itself."""
        self._metrics.watch_process()

    async def run(self) -> int:
        """Run the node; return exit code 0 after an orderly stop, 1 after a failure. Raises
        LognodeError when the node cannot start."""
        self._directory.open()
        try:
            log.info("node starts", extra={"fields": {"data": self._config.data}})
            try:
                await self._start()
            except DiskFailure as error:
                self.shutdown.fail(error)  # in one line, and the process ends
                raise
            except BaseException:
                # The error is the last word: no thread or task may continue without the loop.
                self.parts.cancel()
                self._ends.close()
                raise
            log.info(
                "node is ready and serves",
                extra={"fields": {"node": self.identity.node_id, "listen": self._config.listen,
                                  "peers": self._config.peer_listened,
                                  "http": self._config.http, "data": self._config.data}},
            )  # fmt: skip
            await self.shutdown.asked()
            await self._stop()
        finally:
            self._directory.close()
        failure = self.shutdown.failure
        if failure is not None:
            log.critical(
                "node stopped: %s", failure, extra={"fields": {"kind": type(failure).__name__}}
            )
            return 1
        return 0

    # Starting.

    async def _start(self) -> None:
        config = self._config
        asyncio.get_running_loop().set_exception_handler(self.shutdown.unhandled)
        limit = descriptors.raise_limit()
        self._plan = descriptors.plan(limit, config.http_streams, kafka=bool(config.kafka))
        self._secret = read_secret(config.secret_file)
        tier = node_tier.opened(config, self._around)
        self._tls = NodeTls.of(config, self._metrics)
        self._dial_map = DialMap(config.dial_map)
        self._meta = self._ends.enter_context(contextlib.closing(LmdbMeta(self._directory.meta)))
        self._files_open.callback(self._meta.close)
        self._sync = self._around.thread("lognode-wal", self.shutdown.fail)
        self._ends.callback(self._sync.close)
        self._files = self._around.thread("lognode-files", self.shutdown.fail)
        self._ends.callback(self._files.close)
        self._meta.sync()  # data that a killed predecessor left in the page cache (x4)
        self._directory.sync()
        check_not_refused(self._meta)
        await self._identify()
        disk = self._around.disk(self._directory.wal, self._plan.wal)
        self._files_open.callback(disk.close)
        disk.watch_syncs(partial(timed, self._metrics.wal_sync_seconds))
        self._wal = Wal.open(disk, entropy=os.urandom, file_bytes=config.wal_file_bytes)
        self._writer = self._around.writer(
            self._wal, self._sync, disk, on_failure=self.shutdown.fail,
            on_sync=self._metrics.wal_sync_seconds.observe,
        )  # fmt: skip
        self._ends.callback(self._writer.close)
        for note in self._wal.recovery.notes:
            log.warning("WAL: %s", note)
        self._store = SegmentStore(self._directory.files, open_max=self._plan.segments // 2)
        self._ends.callback(self._store.close)
        self._files_open.callback(self._store.close)
        self._builder = self._around.builder()
        self._ends.callback(self._builder.stop)
        self._merger = self._around.merger()
        self._ends.callback(self._merger.stop)
        self._facts = Facts(lambda *generation: self._view.leader(*generation))
        self._memory = Memory()
        self._assemble()
        self._assemble_work()
        self._assemble_tier(tier)
        self._assemble_control()
        self._assemble_cluster()
        self._view.load()
        check_level(self._view.metadata.feature_level)
        nodes = self._view.metadata.nodes
        self._plan.check_nodes(sum(node.state != "REMOVED" for node in nodes.values()))
        if self._tls is not None:
            self._tls.learn(nodes)
        self._disk_watch.check_size()
        self._entrance.check()
        await self._disk_watch.look()
        log.info(
            "the node recovers its replicas", extra={"fields": {"node": self.identity.node_id}}
        )
        await self._host.recover()
        if self._founding and self._host.controller is None:
            controller = Descriptor(CONTROLLER_RANGE, 1, 0, Span(b"", None), (1,))
            await self._host.create_controller(controller, Metadata(), (1, 0), campaign=True)
        self._pings.start()
        await self._listen()
        await self._listen_for_kafka()
        if self._host.controller is not None:
            self._controller_member.began(self._host.controller)
        self._begin_parts()
        self._repair.begin()
        self._newer_image.react()
        react_to_signals(self.shutdown, self._tls, self._dial_map, self._links)

    def _begin_parts(self) -> None:
        """Begin the parts that run until the node stops."""
        for part in (
            self._duty_runner.run(), self._maintenance.run(), self._memtables.watch(),
            self._scrub.run(), self._memtables.build(), self._merges.run(), self._removals.run(),
            self._group_states.run(), self._exposure.run(), self._disk_watch.run(),
            self._entrance.run(), self._changes.run(), self._auditing.run(), self._levels.run(),
            ClusterGauges(view=self._view, metrics=self._metrics).run(),
            Garbage(lambda: not self._view.metadata.operations,
                    lambda: self._doors.ended() + kafka_server.tls_ended(self._kafka)).run(),
        ):  # fmt: skip
            self.parts.begin(part)
        for name, begin in (
            ("heartbeat", self._heartbeat.run), ("registration", self._membership.register),
            ("loads", self._loads.run), ("large", self._large.run), ("hot", self._hot.run),
            ("draining", self._draining.run), ("producers", self._cluster.producers.expire),
            ("stored", self._stored.run), *(() if self._tier is None else self._tier.parts()),
        ):  # fmt: skip
            self.parts.begin(supervised(name, begin, self._metrics))
        if self._config.balance == "on":
            self.parts.begin(supervised("leads", self._leads.run, self._metrics))
        if self._tls is not None:
            self.parts.begin(self._tls.run())

    async def _identify(self) -> None:
        """Learn which node this directory is, and count this start."""
        config = self._config
        identity = await identified(
            config, directory=self._directory, meta=self._meta, store=self._store_rows,
            secret=self._secret, tls=self._tls, resolve=self._dial_map.resolve,
            bounds=client_bounds(self._plan, config.idle_timeout),
        )  # fmt: skip
        self.identity = Identity(
            identity.cluster_id, identity.node_id, identity.incarnation, identity.boot + 1
        )
        self._clean = self._meta.get(meta_keys.CLEAN) is not None
        await self._store_rows({**identity_row(self.identity), meta_keys.CLEAN: None})
        self._founding = identity.node_id == 1
        if self._tls is not None:
            self._tls.bind(self.identity)

    async def _store_rows(self, puts: dict[str, Any]) -> None:
        await self._files.run(lambda: self._meta.commit(puts))

    def _assemble(self) -> None:
        """Make the parts that replicas run on."""
        identity, node_id = self.identity, self.identity.node_id
        self._turn_ends = TurnEnds(
            propose=lambda: self._rounds.propose(), flush=lambda: self._links.flush_queued(),
            begin_round=lambda: self._rounds.begin(), on_broken=self.shutdown.fail,
            is_alone=self._around.is_alone(),
        )  # fmt: skip
        self._links = PeerLinks(
            who=lambda: (identity.cluster_id, node_id, identity.incarnation),
            secret=self._secret, tls=self._tls,
            resolve=self._dial_map.resolve,
            on_up=self._link_up, on_down=self._link_down,
            on_full=lambda peer: self._host.pause(peer),
            on_room=lambda peer: self._host.resume(peer),
            on_broken=self.shutdown.fail, on_queued=self._turn_ends.schedule, rng=self._rng,
            boot=(identity.boot, self._process), clock_ms=self._clocks.wall_ms,
            ping_to=lambda peer: self._pings.ping(peer), check_nodes=self._plan.check_nodes,
            metrics=self._metrics,
        )  # fmt: skip
        self._rounds = Rounds(
            self._wal, self._writer, on_synced=lambda gids: self._host.synced(gids),
            on_failure=self.shutdown.fail, on_file_begun=lambda: self._disk_watch.look_soon(),
            turn_ends=self._turn_ends, metrics=self._metrics,
        )  # fmt: skip
        self._ends.callback(self._rounds.stop)
        options = RaftOptions()
        reserve = reserve_bytes(self._config.disk_reserve_bytes, self._config.wal_file_bytes)
        self._room = DiskRoom(node_id, reserve)
        self._confirmations = Confirmations(
            links=self._links, replica=lambda gid: self._host.groups.get(gid), options=options,
            on_broken=self.shutdown.fail,
        )  # fmt: skip
        self._ends.callback(self._confirmations.stop)
        self._pings = Pings(
            boot=identity.boot, options=options, rng=self._rng, send=self._links.ping,
            replica=lambda gid: self._host.groups.get(gid), metrics=self._metrics,
            on_broken=self.shutdown.fail,
        )  # fmt: skip
        self._ends.callback(self._pings.stop)
        if self._config.traces == "on":
            self._traces = exporting(node_id)
        services = Services(
            node_id=node_id, links=self._links, confirmations=self._confirmations,
            rounds=self._rounds, turn_ends=self._turn_ends, options=options,
            rng=self._rng, metrics=self._metrics, memory=self._memory,
            stamp_ms=self._clocks.stamp_ms, liveness=self._pings.liveness,
            on_appended=lambda *appended: self._entrance.gate.applied(*appended),
            on_leader=lambda gid, term, leader: self._view.learn(gid, term, leader),
            on_broken=self.shutdown.fail,
            on_stuck=lambda replica, error: self._repair.step_found(replica, error),
            room=self._room, traces=self._traces,
        )  # fmt: skip
        self._host = Host(
            wal=self._wal, meta=self._meta, sync=self._files, rounds=self._rounds,
            store=self._store, services=services, links_up=self._links.epochs,
            links_full=self._links.full, on_change=self._replica_changed,
            hash_files=not self._clean,
        )  # fmt: skip
        self._ends.callback(self._host.stop)
        self._ends.callback(self._links.stop)

    def _assemble_work(self) -> None:
        """Make the parts that work beside the replicas."""
        node_id = self.identity.node_id
        self._handover = Handover(self._host, self._links.connection)
        self._view = View(
            self._meta, self._files, on_change=lambda: self._newer_image.react(),
            present=lambda n: n == node_id or not self._pings.liveness.missing(n),
        )  # fmt: skip
        self._images = Images(self._host, self._view)
        self._flusher = Flusher(
            builder=self._builder, tmp=self._directory.tmp, store=self._store, meta=self._meta,
            sync=self._files, rounds=self._rounds, memory=self._memory, metrics=self._metrics,
        )  # fmt: skip
        fetcher = BaseFetcher(
            host=self._host, store=self._store, tmp=self._directory.tmp, sync=self._files,
            connection=self._links.connection, dial=self._links.dial, metrics=self._metrics,
            bucket=TokenBucket(self._config.transfer_bytes_per_s, time.monotonic),
        )  # fmt: skip
        self._loads = Loads(
            node_id=node_id, host=self._host, view=self._view, connection=self._links.connection,
            present=lambda n: not self._pings.liveness.missing(n), metrics=self._metrics,
        )  # fmt: skip
        self._repair = SegmentRepair(
            node_id=node_id, host=self._host, store=self._store, fetcher=fetcher,
            metrics=self._metrics, on_broken=self.shutdown.fail,
        )  # fmt: skip
        self._ends.callback(self._repair.stop)
        self._merges = Merges(
            merger=self._merger, host=self._host, tmp=self._directory.tmp, store=self._store,
            meta=self._meta, sync=self._files, room=self._room,
            on_damaged=self._repair.read_found, metrics=self._metrics,
        )  # fmt: skip
        self._scrub = Scrub(
            host=self._host, store=self._store, bytes_per_s=self._config.scrub_bytes_per_s,
            doubt=self._repair.doubt, room=self._room, metrics=self._metrics,
        )  # fmt: skip
        places = (self._directory.root, self._directory.wal, self._directory.files)
        self._disk_watch = DiskWatch(
            room=self._room, places=places, host=self._host, handover=self._handover,
            on_change=self._replica_changed, wal=self._wal, wal_directory=self._directory.wal,
            metrics=self._metrics,
        )  # fmt: skip
        self._reports = Reports(
            node_id=node_id, host=self._host, view=self._view, connection=self._links.connection,
            facts=self._facts, on_news=lambda: self._driver.wake(),
        )  # fmt: skip
        self._duty_runner = DutyRunner(
            node_id=node_id, host=self._host, view=self._view, flusher=self._flusher,
            fetcher=fetcher, sync=self._files, report=self._reports.send, room=self._room,
            on_broken=self.shutdown.fail,
        )  # fmt: skip
        self._maintenance = Maintenance(
            host=self._host, wal=self._wal, sync=self._sync, rounds=self._rounds,
            flusher=self._flusher, metrics=self._metrics, room=self._room,
        )  # fmt: skip
        self._memtables = Memtables(
            host=self._host, wal=self._wal, flusher=self._flusher, memory=self._memory,
            room=self._room,
        )  # fmt: skip
        self._group_states = GroupStates(self._host.ranges)
        self._removals = Removals(host=self._host, clocks=self._clocks, policy=self._view.policy)
        self._levels = Levels(
            host=self._host, view=self._view, meta=self._meta, sync=self._files,
            on_end=self.shutdown.fail, metrics=self._metrics,
        )  # fmt: skip

    def _assemble_tier(self, store: TierStore | None) -> None:
        """Make the part that uploads segments, if the settings name a tier."""
        self._tier: NodeTier | None = None
        if store is not None:
            self._tier = NodeTier(
                store, config=self._config, identity=self.identity, host=self._host,
                files=self._store, view=self._view, wall_ms=self._clocks.wall_ms, sync=self._files,
                repair=self._repair, metrics=self._metrics, around=self._around,
            )  # fmt: skip
            self._ends.callback(self._tier.stop)

    def _assemble_control(self) -> None:
        """Make the parts that report to the controller, and the work of its leader."""
        node_id, host, view = self.identity.node_id, self._host, self._view
        self._draining = Draining(node_id=node_id, host=host, view=view, handover=self._handover)
        self._large = LargeRanges(host=host, view=view, on_damaged=self._repair.read_found)
        self._hot = HotRanges(
            host=host, view=view, rng=self._rng, wall_ms=self._clocks.wall_ms,
            rest_s=self._config.split_rest, metrics=self._metrics,
        )  # fmt: skip
        self._stored = Stored(host, view, lambda: self._entrance.gate.quotas)
        self._heartbeat = Heartbeat(
            node_id=node_id, host=host, view=view, facts=self._facts,
            connection=self._links.connection, room=self._room, draining=self._draining,
            large=self._large, handover=self._handover, hot=self._hot, exposure=self._exposure,
            images=self._images, stored=self._stored,
            program=own_program(self.identity.boot, self._process),
            noted=lambda: self._levels.noted, kafka=self._config.advertised_kafka,
        )  # fmt: skip
        self._driver = ControllerDriver(
            self._facts, self._clocks.wall_ms, self._config.repair_after,
            balanced=self._config.balance == "on", merge_after_s=self._config.merge_after,
        )  # fmt: skip
        self._leads = LeadBalance(
            node_id=node_id, host=self._host, view=self._view, facts=self._facts,
            connection=self._links.connection, handover=self._handover,
        )  # fmt: skip
        self._changes = ControllerChanges(
            node_id=node_id, host=self._host, connection=self._links.connection,
            image=lambda: self._view.metadata,
            began=lambda replica: self._controller_member.began(replica),
            on_broken=self.shutdown.fail,
        )  # fmt: skip

    def _assemble_cluster(self) -> None:
        """Make the parts that replicas call as soon as they are recovered."""
        identity = self.identity
        self._known_peers = KnownPeers(lambda: self._view.metadata.nodes, self._metrics)
        self._recoveries = Recoveries(
            node_id=identity.node_id, host=self._host, view=self._view,
            connection=self._links.connection,
        )  # fmt: skip
        self._status = Status(
            node_id=identity.node_id, host=self._host, view=self._view,
            heartbeat=self._heartbeat, room=self._room, repair=self._repair, loads=self._loads,
            budgets=self._budgets, kafka=lambda: kafka_server.row(self._kafka),
            descriptors=lambda: self._doors.row(), consumer_groups=lambda: self._groups.numbers(),
            tier=lambda: None if self._tier is None else self._tier.row(),
        )  # fmt: skip
        self._cluster = ClusterService(
            node_id=lambda: identity.node_id, host=self._host, view=self._view,
            connection=self._links.connection, status=self._status.page, rng=self._rng,
            handover=self._handover, recoveries=self._recoveries, room=self._room,
            images=self._images, wall_ms=self._clocks.wall_ms, alive=self._heartbeat.alive,
        )  # fmt: skip
        self._entrance = Entrance(
            config=self._config, secret=self._secret, tls=self._tls, exposure=self._exposure,
            metadata=lambda: self._view.metadata, command=self._cluster.command,
            refresh=self._cluster.refresh, wall_ms=self._clocks.wall_ms, metrics=self._metrics,
            was_on=self._meta.get(meta_keys.AUTH) is not None, unsure_s=self._heartbeat.unsure_s,
            keep=lambda: self._store_rows({meta_keys.AUTH: True}), on_end=self.shutdown.fail,
            is_fresh=lambda: self._known_peers.boot(identity.node_id)
            == (identity.boot, self._process),
        )  # fmt: skip
        self._auditing = Auditing(
            identity=identity, view=self._view, connection=self._links.connection,
            create=self._cluster.create_log, wall_ms=self._clocks.wall_ms,
            quotas=self._entrance.gate.quotas,
            is_known=lambda: self._entrance.accesses.is_on or self._tls is not None,
        )  # fmt: skip
        body = registration(
            self._config, identity.incarnation, identity.boot, self._process, identity.node_id,
            key="" if self._tls is None else self._tls.key,
        )  # fmt: skip
        self._membership = Membership(
            identity=identity, process=self._process, body=body,
            knows_cluster=lambda: bool(self._view.metadata.cluster_id),
            command=self._cluster.command, store=self._store_rows, on_end=self.shutdown.fail,
        )  # fmt: skip
        self._controller_member = ControllerMember(
            cluster_id=identity.cluster_id, host=self._host, view=self._view, driver=self._driver,
            auditing=self._auditing, entrance=self._entrance, sync=self._files,
            metrics=self._metrics, spawn=self.parts.begin,
        )  # fmt: skip
        self._newer_image = NewerImage(
            node_id=identity.node_id, view=self._view, tls=self._tls, entrance=self._entrance,
            membership=self._membership, links=self._links, duty_runner=self._duty_runner,
        )  # fmt: skip

    async def _listen(self) -> None:
        identity, cluster = self.identity, self._cluster
        bases = BaseServer(
            self._host, TokenBucket(self._config.transfer_bytes_per_s, time.monotonic),
            self._repair.doubt, self._metrics,
        )  # fmt: skip
        data = DataService(
            node_id=identity.node_id, replica=self._host.serving,
            describe=cluster.catalog.describe_range, metrics=self._metrics,
            damaged=self._host.refusal, for_good=self._host.damaged.__contains__,
            on_damaged=self._repair.read_found,
            level=lambda: self._view.metadata.feature_level,
        )  # fmt: skip
        groups = self._groups = GroupService(
            data=data, metadata=lambda: self._view.metadata, refresh=cluster.refresh,
            appends=self._auditing.appends, metrics=self._metrics, on_broken=self.shutdown.fail,
        )  # fmt: skip
        views = ViewService(
            data=data, metadata=lambda: self._view.metadata, confirmed=cluster.confirmed,
            has_consumers=groups.has_consumers,
        )  # fmt: skip
        tails = PartitionTails(data)
        self._group_states.look_with(groups.look_after)
        self._auditing.append_with(data.append)
        reports = NodeReports(
            node_id=identity.node_id, config=self._config, wal=self._wal, room=self._room,
            replicas=self._status.replicas, connections=lambda: self._doors.clients(),
            files=lambda: self._doors.row(),
        )  # fmt: skip
        self._raft_in = RaftIn(
            replica=self._host.groups.get, confirmations=self._confirmations,
            pings=self._pings, registered=self._known_peers.boot, clocks=self._clocks,
            metrics=self._metrics,
        )  # fmt: skip

        server = Server(
            who=lambda: (identity.cluster_id, identity.node_id),
            peer_address=self._config.peer_advertised, raft_in=self._raft_in, data=data,
            handlers={**cluster.handlers, **groups.handlers, **self._entrance.handlers},
            paid_handlers={
                **cluster.paid_handlers, **groups.paid_handlers, **views.paid_handlers,
                **self._entrance.paid_handlers, **reports.paid_handlers, **tails.paid_handlers,
            },
            accesses=self._entrance.accesses, proves_nodes=self._entrance.proves_nodes,
            visible=self._entrance.visible, join=cluster.join,
            peer_handlers=self._for_peers(bases), known_peers=self._known_peers,
            gate=self._entrance.gate, audit=self._auditing.audit,
            reserved=self._auditing.reserved, metrics=self._metrics, turn_ends=self._turn_ends,
            on_broken=self.shutdown.fail,
            on_stranger=Strangers(
                cluster=identity.cluster_id, config=self._config, founding=self._founding,
                metadata=lambda: self._view.metadata, on_end=self.shutdown.fail,
            ).met,
        )  # fmt: skip
        told = TurnedAway(self._metrics)
        peers = PeerServer(
            server, is_known=self._links.is_peer, address=self._config.advertised, on_closed=told
        )
        self._doors = Doors(
            self._config, self._plan, secret=self._secret, tls=self._tls, budgets=self._budgets,
            metrics=self._metrics, told=told, audit=self._auditing.audit,
        )  # fmt: skip
        if self._tls is not None:
            self._tls.recheck_with(self._doors.recheck, self._links.recheck)
        await self._doors.open(server, peers, self._http(told))

    async def _listen_for_kafka(self) -> None:
        """Serve Kafka clients, if the settings say so."""
        self._kafka = await kafka_server.opened(
            self._config, node_id=self.identity.node_id, connections_max=self._plan.kafka,
            view=self._view, alive=self._heartbeat.shown_alive, metrics=self._metrics,
            tls=self._tls, accesses=self._entrance.accesses, audit=self._auditing.audit,
        )  # fmt: skip

    def _http(self, told: TurnedAway) -> HttpServer:
        """Make what serves HTTP."""
        readiness = Readiness(
            shutdown=self.shutdown, membership=self._membership, entrance=self._entrance,
            heartbeat=self._heartbeat, room=self._room, host=self._host,
        )  # fmt: skip
        host, port = split_address(self._config.http, "http")
        return HttpServer(
            host=host, port=port, metrics=self._metrics, not_ready=readiness.lacking,
            tls=None if self._tls is None else self._tls.http_context,
            status=self._status.whole, connections_max=self._plan.over_http, on_closed=told,
            guard=self._entrance.guard, visible=self._entrance.visible,
            on_refused=self._auditing.audit.turned_away, door=self._door(),
        )  # fmt: skip

    def _door(self) -> Door:
        """Make what serves REST and events."""
        plan = self._plan
        return Door(
            guard=self._entrance.guard, make=maker(self._config),
            most=lambda: most_clients(plan.dials, len(self._view.metadata.nodes)),
            requests_max=plan.door_requests, version=own_program(0, 0).version,
            streams_max=min(self._config.http_streams, plan.door - plan.door_requests),
            metrics=self._metrics, traces=self._traces,
        )  # fmt: skip

    def _for_peers(self, bases: BaseServer) -> dict[Operation, PeerHandler]:
        """Return the handlers of the operations between nodes."""
        return {
            protocol.BASE: bases.describe,
            protocol.BASE_PIECE: bases.base_piece,
            protocol.FILE: bases.piece,
            protocol.FILE_CHECK: bases.check,
            protocol.HEARTBEAT: self._heartbeat.serve,
            protocol.IMAGE_PAGE: self._images.serve,
            protocol.REPORT: self._reports.take,
            protocol.COMMAND: self._cluster.peer_command,
            protocol.PRODUCERS_PAGE: self._cluster.producers.peer_page,
            protocol.LOADS: self._loads.serve,
            protocol.REPLICA_END: self._recoveries.serve,
            protocol.CONTROLLER_INSTALL: self._changes.install,
            protocol.TAKE_OVER: self._handover.take_over,
            protocol.HAND_OVER: self._handover.hand_over,
            protocol.GIVE_LEAD: self._handover.give,
        }

    def _link_up(self, peer: int, epoch: int) -> None:
        self._host.connected(peer, epoch)
        self._confirmations.connected(peer, epoch)

    def _link_down(self, peer: int) -> None:
        self._host.disconnected(peer)
        self._confirmations.disconnected(peer)

    def _replica_changed(self) -> None:
        self._controller_member.changed()
        self._duty_runner.wake()

    # Stopping.

    async def _stop(self) -> None:
        log.info("node stops")
        with self.shutdown.within(_STOP_S):
            await self._stop_parts()

    async def _stop_parts(self) -> None:
        if self.shutdown.failure is None:
            await self._auditing.finish()
            left = await self._handover.all_groups(_HANDOVER_S)
            log.info("handed over the lead", extra={"fields": {"still_led": left}})
        self.parts.cancel()
        await self._disk_watch.stop()  # before another process may use the directory
        await kafka_server.close(self._kafka)
        await self._doors.close()
        if self._traces is not None:
            await self._traces.close()
        self._links.stop()
        self._host.stop()
        if self.shutdown.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_ROUND_S):
                    await self._rounds.durable()
                    await self._store_rows({meta_keys.CLEAN: True})
        self._ends.close()

    def ranges(self) -> tuple[RangeReplica, ...]:
        """Return the replicas of ranges, for the simulator."""
        return self._host.ranges()

    def waiting_files(self) -> int:
        """Return how many files wait for the tier, for the simulator."""
        return 0 if self._tier is None else self._tier.row()["waiting_files"]

    def abandon(self) -> None:
        """Close all files and write nothing, as the kernel does when a process is killed."""
        self._files_open.close()
        self._directory.close()


def main(config: Config) -> int:
    """Run a node until it is stopped; return the exit code."""
    os.umask(0o077)  # no other user may read the node's data
    logs.set_up(config.log_level, config.log_format)
    node = Node(config)
    node.watch_process()
    return run(node.run())
