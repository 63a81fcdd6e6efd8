"""Reads of a replica in turns: no read holds the loop for long (`statemachine.turn_limits`)."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from ...client.protocol.errors import CorruptData, NotLeader
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import RangeState
from ...statemachine.turn_limits import NotPrepared, TurnOver, Turns
from .prepare import prepare

T = TypeVar("T")


class Readable(Protocol):
    """What reads need of a range: a replica, or a copy of the range elsewhere."""

    @property
    def gid(self) -> GroupId:
        """The range and its generation."""

    @property
    def descriptor(self) -> Descriptor:
        """The keys of the range."""

    @property
    def state(self) -> RangeState:
        """The applied entries."""

    @property
    def stopped(self) -> bool:
        """Whether nothing can be read here any more."""


async def in_turns(replica: Readable, read: Callable[[], T]) -> T:
    """Return what `read` returns; begin it again until one turn is enough for it.

    Nothing else runs between the end of `read` and the end of this call. Raises what `read` raises,
    CorruptData for a file that cannot be opened, or NotLeader when the replica stops meanwhile.
    """
    turns, state = Turns(), replica.state
    while not replica.stopped:
        try:
            with state.store.on_hand(turns):
                return read()
        except TurnOver:
            await asyncio.sleep(0)
        except NotPrepared as missing:
            try:
                await prepare(state, missing, turns)
            except CorruptData:
                if not replica.stopped:  # otherwise its files are gone for good
                    raise
    raise NotLeader("this replica has stopped", hint=None)
