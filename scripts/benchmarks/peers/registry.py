"""The systems by name, in the order of their turns."""

from .etcd_peer import Etcd
from .kafka_peer import Kafka, KafkaSynced
from .lognode_peer import Lognode
from .nats_peer import Nats, NatsNew, NatsSynced
from .syncobj_peer import PySyncObj
from .system import System

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        Lognode(), Nats(), NatsNew(), NatsSynced(), Kafka(), KafkaSynced(), Etcd(), PySyncObj(),
    )
}  # fmt: skip
