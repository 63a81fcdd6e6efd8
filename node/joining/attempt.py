"""An attempt to join: the identity that an empty node claims, durable before the node asks.

The node that is asked registers the attempt and answers. A node that is killed before it has stored
the answer repeats the same attempt, and gets the same answer. So no node is registered twice, and
no invitation is lost.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...client.protocol.errors import CorruptData
from ...statemachine.meta import MetaStore
from ..directory import meta_keys
from ..directory.data_directory import new_incarnation


class Attempt(NamedTuple):
    """The fields that the cluster compares when a join is repeated, besides the key of the
    certificate."""

    incarnation: int
    process: int
    invitation: str
    """The id of the invitation, "" without an invitation."""


async def begin(
    meta: MetaStore,
    store: Callable[[dict[str, Any]], Awaitable[None]],
    invitation_id: str,
) -> Attempt:
    """Return this data directory's attempt with that invitation ("" without an invitation).

    `store` commits rows to `meta`. With another invitation than before, the directory makes another
    attempt and becomes another node: the cluster answers an attempt with one invitation only.
    Raises CorruptData.
    """
    row = meta.get(meta_keys.ATTEMPT)
    if row is not None:
        try:
            stored = Attempt(row["incarnation"], row["process"], row["invitation"])
        except (KeyError, TypeError):
            raise CorruptData("the attempt row of meta is not valid") from None
        if stored.invitation == invitation_id:
            return stored
    drawn = Attempt(new_incarnation(), new_incarnation(), invitation_id)
    await store({meta_keys.ATTEMPT: drawn._asdict()})
    return drawn
