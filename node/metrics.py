"""The node's Prometheus metrics, in a registry of their own; labels are bounded, never by key."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from ..client.accepting.budget import Budget
from ..client.accepting.meter import NodeBudgets
from ..client.protocol.quotas import COUNTERS
from .quota.quotas import Quotas
from .runtime.commit import commit

LATENCY_BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
_LAG_BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0,
    86_400.0,
)  # fmt: skip


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe the time of a block, in seconds. The histogram's own `time` keeps the clock that it
    found at its import, and the simulator could not replace that clock."""
    began = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - began)


class Metrics:
    """Every metric of a node, made once per node."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self._of_program(registry)
        self.appended_records = Counter(
            "lognode_appended_records", "Records in answered appends to ranges that this node "
                                        "leads.",
            registry=registry,
        )  # fmt: skip
        self.appended_bytes = Counter(
            "lognode_appended_bytes", "Bytes of the log entries of those records, as received.",
            registry=registry,
        )  # fmt: skip
        self.reads = Counter(
            "lognode_reads", "Reads of ranges that this node has answered, and pages that it "
                             "has pushed to followers.",
            registry=registry,
        )  # fmt: skip
        self.requests = Counter(
            "lognode_requests", "Requests by operation and result.", ("op", "result"),
            registry=registry,
        )  # fmt: skip
        self._add_times(registry)
        self._add_loop(registry)
        self.wal_syncs = Counter(
            "lognode_wal_syncs",
            "Syncs of WAL files; one sync serves all groups.",
            registry=registry,
        )
        self.wal_files = Gauge("lognode_wal_files", "WAL files in use.", registry=registry)
        self.replicas = Gauge(
            "lognode_replicas", "Replicas on this node by role.", ("role",), registry=registry
        )
        self.connections = Gauge(
            "lognode_connections", "Open connections by role.", ("role",), registry=registry
        )
        self.follows = Gauge("lognode_follows", "Follows that this node serves.", registry=registry)
        self.raft_dropped = Counter(
            "lognode_raft_messages_dropped", "Messages of members that this node has refused, by "
                                             "reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.raft_frames = Counter(
            "lognode_raft_frames", "Frames with messages to other members.", registry=registry
        )
        self.raft_messages = Counter(
            "lognode_raft_messages", "Messages to other members in these frames.",
            registry=registry,
        )  # fmt: skip
        self.wakes = Counter(
            "lognode_group_wakes", "Groups on this node that ended their rest, by role.", ("role",),
            registry=registry,
        )  # fmt: skip
        self.idle_replicas = Gauge(
            "lognode_idle_replicas", "Replicas on this node whose groups rest.", registry=registry
        )
        self._of_groups(registry)
        self._of_http(registry)
        self._of_kafka(registry)
        self._of_levels(registry)
        self._of_connections(registry)
        self._of_ranges(registry)
        self._of_storage(registry)
        self._of_tier(registry)

    def _of_tier(self, registry: CollectorRegistry) -> None:
        self.tier_waiting_files = Gauge(
            "lognode_tier_waiting_files", "Segment files of ranges led here that the tier does "
                                          "not have yet.",
            registry=registry,
        )  # fmt: skip
        self.tier_waiting_bytes = Gauge(
            "lognode_tier_waiting_bytes", "Bytes of these files.", registry=registry
        )
        self.tier_waiting_seconds = Gauge(
            "lognode_tier_waiting_seconds",
            "Longest time for which a range led here has had such files without any upload; 0 "
            "without such files.",
            registry=registry,
        )  # fmt: skip
        self.tier_uploaded_files = Counter(
            "lognode_tier_uploaded_files", "Segment files that this node has uploaded to the tier.",
            registry=registry,
        )  # fmt: skip
        self.tier_uploaded_bytes = Counter(
            "lognode_tier_uploaded_bytes", "Bytes of these files.", registry=registry
        )
        self.tier_removed_objects = Counter(
            "lognode_tier_removed_objects", "Objects that sweeps of this node have removed from "
                                            "the tier.",
            registry=registry,
        )  # fmt: skip
        self.tier_removed_bytes = Counter(
            "lognode_tier_removed_bytes", "Bytes of the removed parts of files.", registry=registry
        )
        self.tier_only_files = Gauge(
            "lognode_tier_only_files", "Segment files that this node has in the tier only.",
            registry=registry,
        )  # fmt: skip
        self.tier_only_bytes = Gauge(
            "lognode_tier_only_bytes", "Bytes of these files.", registry=registry
        )
        self.tier_received_files = Counter(
            "lognode_tier_received_files", "Segment files that replicas of this node have got from "
                                           "the tier rather than from another member.",
            registry=registry,
        )  # fmt: skip
        self.tier_received_bytes = Counter(
            "lognode_tier_received_bytes", "Bytes of these files.", registry=registry
        )
        self.tier_errors = Counter(
            "lognode_tier_errors", "Uploads, fetches and sweeps of the tier that failed on this "
                                   "node and are tried again.",
            registry=registry,
        )  # fmt: skip
        self.tier_success_time = Gauge(
            "lognode_tier_last_success_timestamp_seconds",
            "Unix time of the last manifest that this node has published in the tier; 0: none.",
            registry=registry,
        )  # fmt: skip

    def _of_program(self, registry: CollectorRegistry) -> None:
        # The times of creation would be a second series for each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._build = Info(
            "lognode_build", "The versions of lognode and of Python, and the commit if known.",
            registry=registry,
        )  # fmt: skip
        self._tell_build("")

    def _tell_build(self, commit: str) -> None:
        known = {"version": version("lognode"), "python": platform.python_version()}
        self._build.info({**known, "commit": commit})

    def _add_times(self, registry: CollectorRegistry) -> None:
        self.append_seconds = Histogram(
            "lognode_append_seconds", "Time from the arrival of an append to its acknowledgement.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.read_seconds = Histogram(
            "lognode_read_seconds",
            "Time from the arrival of a read of a range to its answer, without the sending.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.follow_delivery_seconds = Histogram(
            "lognode_follow_delivery_seconds",
            "Time from the application of an entry to its push to a follow that waited for "
            "entries, by page.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.wal_round_seconds = Histogram(
            "lognode_wal_round_seconds", "Time of the write and sync of one WAL round.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.wal_sync_seconds = Histogram(
            "lognode_wal_sync_seconds", "Time of one fdatasync of a WAL file.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip

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

    def _of_groups(self, registry: CollectorRegistry) -> None:
        self.group_lag_seconds = Histogram(
            "lognode_group_lag_seconds",
            "Age of the oldest entry that an answer hands out to a consumer of a group.",
            buckets=_LAG_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.group_redeliveries = Counter(
            "lognode_group_redeliveries",
            "Batches of consumer groups that were handed out again after a failure.",
            registry=registry,
        )  # fmt: skip
        self.group_dead_letters = Counter(
            "lognode_group_dead_letters",
            "Entries that failed too often and were copied to a log of dead letters, by the id of "
            "the consumer group.",
            ("group",), registry=registry,
        )  # fmt: skip
        self.groups = Gauge(
            "lognode_consumer_groups", "Dispatchers of consumer groups on this node, their "
                                       "consumers, keys in flight, waiting, parked; seqs behind.",
            ("what",), registry=registry,
        )  # fmt: skip

    def show_groups(self, numbers: Callable[[], Mapping[str, int]]) -> None:
        """Show what the dispatchers of consumer groups have."""
        for name in numbers():
            self.groups.labels(name).set_function(partial(_number, numbers, name))

    def _of_http(self, registry: CollectorRegistry) -> None:
        self.http_requests = Counter(
            "lognode_http_requests",
            "Requests to REST by operation and HTTP status; 499: the asker left before the answer.",
            ("route", "status"), registry=registry,
        )  # fmt: skip
        self.http_request_seconds = Histogram(
            "lognode_http_request_seconds",
            "Time from the arrival of a request to REST to the end of its answer; event streams "
            "and pulls are left out.",
            buckets=LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.http_under_way = Gauge(
            "lognode_http_requests_under_way", "Requests to REST under way, without streams.",
            registry=registry,
        )  # fmt: skip
        self.http_streams = Gauge(
            "lognode_http_streams", "Open event streams, and pulls that wait.", registry=registry
        )

    def _of_kafka(self, registry: CollectorRegistry) -> None:
        self.kafka_requests = Counter(
            "lognode_kafka_requests", "Requests of Kafka clients by API.", ("api",),
            registry=registry,
        )  # fmt: skip
        self.kafka = Gauge(
            "lognode_kafka", "Open connections of Kafka clients, the groups that this node "
                             "coordinates, their members, and the topics in use.",
            ("what",), registry=registry,
        )  # fmt: skip

    def show_kafka(self, numbers: Callable[[], Mapping[str, int]]) -> None:
        """Show what the port for Kafka clients has."""
        for name in numbers():
            self.kafka.labels(name).set_function(partial(_number, numbers, name))

    def _of_levels(self, registry: CollectorRegistry) -> None:
        self.feature_level = Gauge(
            "lognode_feature_level", "The feature level of the cluster, as this node knows it.",
            registry=registry,
        )  # fmt: skip
        self.feature_level_max = Gauge(
            "lognode_feature_level_max", "The highest feature level that this program knows.",
            registry=registry,
        )  # fmt: skip

    def _of_connections(self, registry: CollectorRegistry) -> None:
        self.insecure = Gauge(
            "lognode_insecure", "1: this node runs with --insecure and may be open to every "
                                "client.",
            registry=registry,
        )  # fmt: skip
        self.clients_refused = Counter(
            "lognode_clients_refused", "Clients that this node refused because they had no valid "
                                       "token or certificate.", registry=self.registry,
        )  # fmt: skip
        self.handshakes_refused = Counter(
            "lognode_handshakes_refused", "Connections that ended during their handshake, by "
                                          "code; only with TLS.", ("code",), registry=registry,
        )  # fmt: skip
        self.certificate_expiry = Gauge(
            "lognode_certificate_expiry_seconds", "Time until the certificate of the "
                                                  "node, or the first of its CAs, expires.",
            ("certificate",), registry=registry,
        )  # fmt: skip
        self.unusable_records = Counter(
            "lognode_unusable_records",
            "Uses of committed records that failed because the record is not usable, by kind.",
            ("kind",), registry=registry,
        )  # fmt: skip
        self.refused_peers = Counter(
            "lognode_peer_requests_refused",
            "Requests in the name of a node that this node refuses to serve, by reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.restarted_parts = Counter(
            "lognode_parts_restarted", "Parts of this node that were started again after a bug, "
                                       "by name.",
            ("part",), registry=registry,
        )  # fmt: skip
        self.connections_ended = Counter(
            "lognode_connections_ended",
            "Connections that this node has ended or refused, by reason.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.answer_bytes = Gauge(
            "lognode_answer_bytes",
            "Bytes of answers that the node makes or that wait for their readers: of all "
            "clients, of the principal and of the connection with the most bytes, and of "
            "the nodes of the cluster.",
            ("level",), registry=registry,
        )  # fmt: skip
        self.request_bytes = Gauge(
            "lognode_request_bytes", "Bytes of requests on this node, by the same levels.",
            ("level",), registry=registry,
        )  # fmt: skip
        self.room_waits = Gauge(
            "lognode_room_waits", "Answers and frames of clients that wait for space.",
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
            "lognode_descriptors_open", "Files and connections that the process has open; 0: "
                                        "unknown.",
            registry=registry,
        )  # fmt: skip

    def watch_process(self) -> None:
        """Show the use of the process, which is the node's alone, and its commit."""
        self._tell_build(commit())
        ProcessCollector(registry=self.registry)

    def watch(self, budgets: NodeBudgets) -> None:
        """Show these budgets."""
        clients, peers = budgets.clients, budgets.peers
        _show(self.answer_bytes, clients.answers, peers.answers)
        _show(self.request_bytes, clients.requests, peers.requests)
        self.room_waits.set_function(lambda: clients.answers.tickets + clients.requests.tickets)

    def watch_use(self, quotas: Quotas) -> None:
        """Show what all principals together have used; the number of labels is bounded."""
        used = Gauge(
            "lognode_used", "Use of this node by clients since its start, by kind of limit.",
            ("what",), registry=self.registry,
        )  # fmt: skip
        for at, counter in enumerate(COUNTERS):
            used.labels(counter).set_function(partial(quotas.sum_of, at))
        principals = Gauge(
            "lognode_principals", "Principals that this node remembers.", registry=self.registry
        )
        principals.set_function(lambda: len(quotas.principals))

    def _of_ranges(self, registry: CollectorRegistry) -> None:
        self.nodes = Gauge(
            "lognode_nodes", "Nodes of the cluster by state, as this node knows them.", ("state",),
            registry=registry,
        )  # fmt: skip
        self.leaderless_ranges = Gauge(
            "lognode_leaderless_ranges",
            "Ranges of the cluster without a leader that this node knows, and 1 more if the "
            "controller has none.",
            registry=registry,
        )  # fmt: skip
        self.operations = Gauge(
            "lognode_operations", "Operations on ranges in progress in the cluster.",
            registry=registry,
        )  # fmt: skip
        self.hot_ranges = Gauge(
            "lognode_hot_ranges", "Busy ranges that this node leads and in which a single key "
                                  "has most of the load.",
            registry=registry,
        )  # fmt: skip
        self.damaged_replicas = Gauge(
            "lognode_damaged_replicas",
            "Replicas on this node that take no part.",
            registry=registry,
        )

    def _of_storage(self, registry: CollectorRegistry) -> None:
        self.disk_free_bytes = Gauge(
            "lognode_disk_free_bytes", "Free bytes on the disk of the data directory.",
            registry=registry,
        )  # fmt: skip
        self.disk_level = Gauge(
            "lognode_disk_level",
            "0: enough free space; 1: less than the reserve, 2: less than half of the "
            "reserve, 3: less than a quarter.",
            registry=registry,
        )  # fmt: skip
        self.transfer_sent_bytes = Counter(
            "lognode_transfer_sent_bytes", "Bytes of segment files that this node has sent to "
                                           "other members.",
            registry=registry,
        )  # fmt: skip
        self.transfer_received_bytes = Counter(
            "lognode_transfer_received_bytes", "Bytes of segment files that this node has received "
                                               "from other members.",
            registry=registry,
        )  # fmt: skip
        self.segments_in_doubt = Gauge(
            "lognode_segments_in_doubt", "Damaged segments that this node repairs now.",
            registry=registry,
        )  # fmt: skip
        self.segments_repaired = Counter(
            "lognode_segments_repaired", "Damaged segments that this node has replaced by a "
                                         "peer's copy.",
            registry=registry,
        )  # fmt: skip
        self.scrubbed_bytes = Counter(
            "lognode_scrubbed_bytes", "Bytes of segments that this node has read and hashed again.",
            registry=registry,
        )  # fmt: skip
        self.segments_built = Counter(
            "lognode_segments_built", "Segments that this node has built.", registry=registry
        )
        self.segments_merged = Counter(
            "lognode_segments_merged",
            "Segments that this node has merged into others.",
            registry=registry,
        )
        self.merged_bytes = Counter(
            "lognode_merged_bytes",
            "Bytes of segments that merges on this node have written.",
            registry=registry,
        )
        self.segment_bytes = Gauge(
            "lognode_segment_bytes", "Bytes of the segment files of the replicas on this node.",
            registry=registry,
        )  # fmt: skip
        self.segments_removed = Counter(
            "lognode_segments_removed", "Segments that this node has dropped because no reader "
                                        "could see their entries.",
            registry=registry,
        )  # fmt: skip
        self.removed_bytes = Counter(
            "lognode_removed_bytes", "Bytes of the dropped segments.", registry=registry
        )
        self.memtable_bytes = Gauge(
            "lognode_memtable_bytes", "Bytes in memtables.", registry=registry
        )
        self.cached_bytes = Gauge(
            "lognode_cached_bytes",
            "Bytes that this node keeps in memory to read them faster: the newest log entries of "
            "all groups, blocks and copies of segments, and unpacked batches of memtables.",
            ("cache",), registry=registry,
        )  # fmt: skip

    def exposition(self) -> bytes:
        """Return the text that `/metrics` serves."""
        return generate_latest(self.registry)


def _number(numbers: Callable[[], Mapping[str, int]], name: str) -> int:
    return numbers()[name]


def _show(gauge: Gauge, clients: Budget, peers: Budget) -> None:
    gauge.labels("node").set_function(lambda: clients.held)
    gauge.labels("principal").set_function(lambda: clients.largest()[0])
    gauge.labels("connection").set_function(lambda: clients.largest()[1])
    gauge.labels("peers").set_function(lambda: peers.held)
