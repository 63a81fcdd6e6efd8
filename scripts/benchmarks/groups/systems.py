"""The modules of the systems that have groups of consumers."""

from types import ModuleType

from . import on_kafka, on_lognode, on_nats

SYSTEMS: dict[str, ModuleType] = {
    "lognode": on_lognode,
    "nats": on_nats,
    "nats-fsync": on_nats,
    "nats-debian": on_nats,
    "kafka": on_kafka,
    "kafka-fsync": on_kafka,
}
"""By the names of `peers.registry`."""
