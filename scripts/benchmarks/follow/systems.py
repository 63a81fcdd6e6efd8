"""The modules of the systems that can be followed."""

from types import ModuleType

from . import on_lognode, on_nats

SYSTEMS: dict[str, ModuleType] = {
    "lognode": on_lognode,
    "nats": on_nats,
    "nats-fsync": on_nats,
    "nats-debian": on_nats,
}
"""By the names of `peers.registry`."""
