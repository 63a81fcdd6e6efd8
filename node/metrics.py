"""The node's Prometheus metrics, in a registry of their own; labels are bounded, never by key."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..client.accepting.budget import Budget
from ..client.accepting.meter import NodeBudgets
from ..client.protocol.quotas import COUNTERS
from .quota.quotas import Quotas

_LATENCY_BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Metrics:
    """Every metric of a node, made once per node."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.appended_records = Counter(
            "lognode_appended_records", "Records in answered appends to ranges led here.",
            registry=registry,
        )  # fmt: skip
        self.appended_bytes = Counter(
            "lognode_appended_bytes", "Bytes of the log entries of those records, as they came.",
            registry=registry,
        )  # fmt: skip
        self.reads = Counter(
            "lognode_reads", "Reads of ranges answered here, and pages pushed to who follows.",
            registry=registry,
        )  # fmt: skip
        self.requests = Counter(
            "lognode_requests", "Requests by operation and result.", ("op", "result"),
            registry=registry,
        )  # fmt: skip
        self.append_seconds = Histogram(
            "lognode_append_seconds", "From receiving an append to its acknowledgement.",
            buckets=_LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._add_loop(registry)
        self.wal_round_seconds = Histogram(
            "lognode_wal_round_seconds", "Write and sync of one WAL round.",
            buckets=_LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.wal_syncs = Counter(
            "lognode_wal_syncs", "Syncs of WAL files, each for all groups.", registry=registry
        )
        self.wal_files = Gauge("lognode_wal_files", "WAL files in use.", registry=registry)
        self.replicas = Gauge(
            "lognode_replicas", "Replicas on this node by role.", ("role",), registry=registry
        )
        self.connections = Gauge(
            "lognode_connections", "Open connections by role.", ("role",), registry=registry
        )
        self.follows = Gauge("lognode_follows", "Follows that are served.", registry=registry)
        self.raft_dropped = Counter(
            "lognode_raft_messages_dropped", "Messages of members not taken, by reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.raft_frames = Counter(
            "lognode_raft_frames", "Frames of messages to other members.", registry=registry
        )
        self.raft_messages = Counter(
            "lognode_raft_messages", "Messages to other members, in those frames.",
            registry=registry,
        )  # fmt: skip
        self.wakes = Counter(
            "lognode_group_wakes", "Groups that ceased to rest here, by role.", ("role",),
            registry=registry,
        )  # fmt: skip
        self.idle_replicas = Gauge(
            "lognode_idle_replicas", "Replicas here whose groups rest.", registry=registry
        )
        self._of_connections(registry)
        self._of_ranges(registry)
        self._of_storage(registry)

    def _add_loop(self, registry: CollectorRegistry) -> None:
        self.loop_lag_seconds = Gauge(
            "lognode_event_loop_lag_seconds", "Largest delay of the event loop in the last 10 s.",
            registry=registry,
        )  # fmt: skip
        self.turn_cpu_seconds = Gauge(
            "lognode_event_loop_turn_cpu_seconds",
            "Most processor time of one turn of the event loop in the last 10 s.",
            registry=registry,
        )  # fmt: skip
        self.long_turns = Counter(
            "lognode_event_loop_long_turns",
            "Turns of the event loop with over 50 ms of processor time.", registry=registry,
        )  # fmt: skip

    def _of_connections(self, registry: CollectorRegistry) -> None:
        self.insecure = Gauge(
            "lognode_insecure", "1: this node runs with --insecure, and may be open to everybody.",
            registry=registry,
        )  # fmt: skip
        self.feature_level = Gauge(
            "lognode_feature_level", "The feature level of the cluster, as this node knows it.",
            registry=registry,
        )  # fmt: skip
        self.feature_level_max = Gauge(
            "lognode_feature_level_max", "The highest feature level that this program knows.",
            registry=registry,
        )  # fmt: skip
        self.clients_refused = Counter(
            "lognode_clients_refused", "Clients that were refused for lack of a valid token or "
            "certificate.", registry=self.registry,
        )  # fmt: skip
        self.handshakes_refused = Counter(
            "lognode_handshakes_refused", "Connections that ended before their handshake was done, "
            "by code; only with TLS.", ("code",), registry=registry,
        )  # fmt: skip
        self.certificate_expiry = Gauge(
            "lognode_certificate_expiry_seconds", "Time until a certificate expires: the node's, "
            "and the first of its CAs'.", ("certificate",), registry=registry,
        )  # fmt: skip
        self.unusable_records = Counter(
            "lognode_unusable_records",
            "Uses of committed records that failed since nobody could use the record, by kind.",
            ("kind",), registry=registry,
        )  # fmt: skip
        self.refused_peers = Counter(
            "lognode_peer_requests_refused",
            "Requests in the name of a node that this node does not serve, by reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.restarted_parts = Counter(
            "lognode_parts_restarted", "Parts of this node begun again after a bug, by name.",
            ("part",), registry=registry,
        )  # fmt: skip
        self.connections_ended = Counter(
            "lognode_connections_ended",
            "Connections that this node has ended or not let in, by reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.answer_bytes = Gauge(
            "lognode_answer_bytes",
            "Bytes of answers that are being made or wait for their readers: of all clients, of "
            "the principal and of the connection that have most, and of the nodes of the cluster.",
            ("level",), registry=registry,
        )  # fmt: skip
        self.request_bytes = Gauge(
            "lognode_request_bytes", "Bytes of requests that are here, by the same levels.",
            ("level",), registry=registry,
        )  # fmt: skip
        self.room_waits = Gauge(
            "lognode_room_waits", "Answers and frames of clients that wait for room.",
            registry=registry,
        )  # fmt: skip
        self.client_connections_max = Gauge(
            "lognode_client_connections_max", "Clients that may be connected at once.",
            registry=registry,
        )  # fmt: skip
        self.descriptors_max = Gauge(
            "lognode_descriptors_max", "Files and connections that the process may have open.",
            registry=registry,
        )  # fmt: skip
        self.descriptors_open = Gauge(
            "lognode_descriptors_open", "Files and connections that it has open; 0: unknown.",
            registry=registry,
        )  # fmt: skip

    def watch(self, budgets: NodeBudgets) -> None:
        """Show these budgets."""
        clients, peers = budgets.clients, budgets.peers
        _show(self.answer_bytes, clients.answers, peers.answers)
        _show(self.request_bytes, clients.requests, peers.requests)
        self.room_waits.set_function(lambda: clients.answers.tickets + clients.requests.tickets)

    def watch_use(self, quotas: Quotas) -> None:
        """Show what all principals together have used; the number of labels is bounded."""
        used = Gauge(
            "lognode_used", "What clients have used since the node started, by what is limited.",
            ("what",), registry=self.registry,
        )  # fmt: skip
        for at, counter in enumerate(COUNTERS):
            used.labels(counter).set_function(partial(quotas.sum_of, at))
        principals = Gauge(
            "lognode_principals", "Principals that the node remembers.", registry=self.registry
        )
        principals.set_function(lambda: len(quotas.principals))

    def _of_ranges(self, registry: CollectorRegistry) -> None:
        self.operations = Gauge(
            "lognode_operations", "Operations on ranges under way in the cluster.",
            registry=registry,
        )  # fmt: skip
        self.hot_ranges = Gauge(
            "lognode_hot_ranges", "Busy ranges led here of which one key has most of the load.",
            registry=registry,
        )  # fmt: skip
        self.damaged_replicas = Gauge(
            "lognode_damaged_replicas", "Replicas here that take no part.", registry=registry
        )

    def _of_storage(self, registry: CollectorRegistry) -> None:
        self.disk_free_bytes = Gauge(
            "lognode_disk_free_bytes", "Room on the disk of the data directory.",
            registry=registry,
        )  # fmt: skip
        self.disk_level = Gauge(
            "lognode_disk_level",
            "0: room enough; 1: less than the reserve, 2: than half, 3: than a quarter of it.",
            registry=registry,
        )  # fmt: skip
        self.segments_in_doubt = Gauge(
            "lognode_segments_in_doubt", "Damaged segments that are being mended.",
            registry=registry,
        )  # fmt: skip
        self.segments_repaired = Counter(
            "lognode_segments_repaired", "Damaged segments replaced by a peer's copy.",
            registry=registry,
        )  # fmt: skip
        self.scrubbed_bytes = Counter(
            "lognode_scrubbed_bytes", "Bytes of segments read and hashed again.",
            registry=registry,
        )  # fmt: skip
        self.segments_built = Counter(
            "lognode_segments_built", "Segments built here.", registry=registry
        )
        self.segments_merged = Counter(
            "lognode_segments_merged", "Segments that went into a merge here.", registry=registry
        )
        self.merged_bytes = Counter(
            "lognode_merged_bytes", "Bytes of segments written by merges here.", registry=registry
        )
        self.segment_bytes = Gauge(
            "lognode_segment_bytes", "Bytes of the segment files of the replicas here.",
            registry=registry,
        )  # fmt: skip
        self.segments_removed = Counter(
            "lognode_segments_removed", "Segments let go here: nobody could see anything of them.",
            registry=registry,
        )  # fmt: skip
        self.removed_bytes = Counter(
            "lognode_removed_bytes", "Bytes of those segments.", registry=registry
        )
        self.memtable_bytes = Gauge(
            "lognode_memtable_bytes", "Bytes in memtables.", registry=registry
        )

    def exposition(self) -> bytes:
        """Return the text that `/metrics` serves."""
        return generate_latest(self.registry)


def _show(gauge: Gauge, clients: Budget, peers: Budget) -> None:
    gauge.labels("node").set_function(lambda: clients.held)
    gauge.labels("principal").set_function(lambda: clients.largest()[0])
    gauge.labels("connection").set_function(lambda: clients.largest()[1])
    gauge.labels("peers").set_function(lambda: peers.held)
