"""What the leader's and the follower's side of one member share."""

from collections.abc import Callable
from dataclasses import dataclass

from .engine import Engine
from .journal import EngineJournal
from .outbox import Outbox
from .types import RaftOptions


@dataclass(frozen=True, slots=True)
class Member:
    """One member's engine, its view of the log, and its way out. `closed`: see `guard.HOLES`."""

    engine: Engine
    journal: EngineJournal
    outbox: Outbox
    options: RaftOptions
    clock: Callable[[], float]
    closed: frozenset[int]
