"""The parts of a member that its leader's side and its follower's side share."""

from collections.abc import Callable
from dataclasses import dataclass

from .engine import Engine
from .journal import EngineJournal
from .outbox import Outbox
from .types import RaftOptions


@dataclass(frozen=True, slots=True)
class Member:
    """A member's engine, its view of the log and its outbox. `closed`: see `guard.HOLES`."""

    engine: Engine
    journal: EngineJournal
    outbox: Outbox
    options: RaftOptions
    clock: Callable[[], float]
    closed: frozenset[int]
