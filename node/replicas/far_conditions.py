"""Conditions of appends whose files are in the tier only: looked up before the append is proposed.

Applying an entry must not depend on an object store: an entry whose condition needs a file of a
store that gives no answer would hold up all entries behind it. So the leader looks first, and
refuses the append with Unavailable while the store is away. Filters of such files are on the disk
(`tier.kept_pages`), so most conditions on new keys need no store.

A batch that comes later may be proposed first. Batches of a producer name the records that each of
theirs follows, so this is as safe as the refusal of the first batch for another reason.

If the file leaves the disk after the look, the entry waits for the store, as all entries of a
follower do (`RangeReplica.may_apply`). Callers that wait for this entry, or for a later one, are
told so (`held_up`): a wait would end with a timeout, which does not say why, and after which a
caller does not know whether an append was applied.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData, LognodeError, Overloaded, Unavailable
from ...client.protocol.records import Batch
from ...raft.types import GroupId
from ...statemachine.range_state import RangeState, conditional_keys
from ...statemachine.turn_limits import LOOKUP_COST
from .read_turns import Readable, in_turns

AGAIN_S: Final = 1.0
"""When an entry is tried again whose conditions need a file of a tier that gives no answer. The
tier is not asked each time: it has rests of its own."""


class FarConditions:
    """The appends of one replica that wait for a look."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self.held_up: Unavailable | None = None
        """Why the next committed entry waits for the store; None: the entry does not wait."""

    def hold_up(self, why: Unavailable) -> None:
        """Note that the next entry waits for the store."""
        self.held_up = why

    def goes_on(self) -> None:
        """Note that the next entry does not wait."""
        self.held_up = None

    def check(self, gid: GroupId) -> None:
        """Raise Unavailable with `retry_after` while the next entry waits for the store."""
        if self.held_up is not None:
            raise Unavailable(
                f"range {gid.range_id} waits for the store of the tier: an append whose `expect` "
                f"needs an old entry is not applied here yet ({self.held_up.message}). Repeat the "
                "call later",
                **{"retry_after": AGAIN_S, **self.held_up.fields},
            )

    def may_need(self, state: RangeState, batch: Batch) -> bool:
        """Whether conditions of the batch may need a file that is in the tier only."""
        if batch.expects is None or state.store.run_elsewhere is None:
            return False
        return not all(state.store.is_listed(info.content_id) for info in state.manifest)

    def look(
        self, replica: Readable, batch: Batch, size: int,
        future: "asyncio.Future[Any]", then: Callable[[], None],
    ) -> None:  # fmt: skip
        """Look the conditions up and call `then`; an error goes to the future.

        Raises Overloaded while appends of too many bytes wait. `size`: the bytes of the batch.
        """
        if self._size + size > limits.append_queue_bytes_max:
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        self._size += size
        task = asyncio.get_running_loop().create_task(self._look(replica, batch, future, then))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, size))

    async def looked_up(self, replica: Readable, batch: Batch) -> None:
        """Return when the conditions of a batch were looked up. Raises the errors of a read, but
        not CorruptData."""
        if self.may_need(replica.state, batch):
            with contextlib.suppress(CorruptData):  # applying finds and repairs the damage
                keys = list(dict.fromkeys(conditional_keys(batch)))
                await in_turns(replica, partial(_look_up, replica.state, keys))

    async def _look(
        self, replica: Readable, batch: Batch, future: "asyncio.Future[Any]",
        then: Callable[[], None],
    ) -> None:  # fmt: skip
        try:
            await self.looked_up(replica, batch)
            then()
        except LognodeError as error:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the caller may be gone

    def _ended(self, size: int, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._size -= size


def _look_up(state: RangeState, keys: list[bytes]) -> None:
    """Look up some of the keys, which are then taken from the list. A turn may end in between."""
    while keys:
        state.store.spend(LOOKUP_COST)
        state.last_seq(keys[-1])
        state.store.moved_on()
        keys.pop()
