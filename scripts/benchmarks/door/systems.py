"""The systems that serve Kafka clients."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from lognode.client.ports import free_ports
from lognode.node.local.dev import LocalCluster

from .. import harness
from ..peers.kafka_peer import Kafka, KafkaSynced
from ..peers.lognode_peer import Lognode
from ..peers.system import Members, System


class Door(Lognode):
    """Three nodes with their defaults that serve Kafka clients."""

    def settings(self) -> str:
        return "defaults, --kafka; 3 replicas, and a range for each node at first\n"

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        cluster = LocalCluster(directory, 3)
        doors = [f"127.0.0.1:{port}" for port in free_ports(3)]
        for node, door in zip(cluster.nodes, doors, strict=True):
            node.add_flags("--kafka", door)
        with cluster:
            harness.wait_healthy(cluster)
            yield Members(doors, [node.pid for node in cluster.nodes])


class _Kept:
    """Topics that keep everything: consumers read a turn's records after they are produced."""

    topic: ClassVar[Mapping[str, str]] = {"min.insync.replicas": "2"}


class _Kafka(_Kept, Kafka):
    pass


class _KafkaSynced(_Kept, KafkaSynced):
    topic: ClassVar[Mapping[str, str]] = {"min.insync.replicas": "2", "flush.messages": "1"}


SYSTEMS: dict[str, System] = {"lognode": Door(), "kafka": _Kafka(), "kafka-fsync": _KafkaSynced()}
TOPICS: dict[str, Mapping[str, str]] = {
    "lognode": {}, "kafka": _Kafka.topic, "kafka-fsync": _KafkaSynced.topic,
}  # fmt: skip
"""The settings with which a topic is created."""
