"""Trims of keys that hide nothing, which the leader of a range finds before it proposes them.

A floor hides the entries of a key below a seq, and is kept until retention has passed that seq. So
a trim of a key without such entries would fill the range's floors with rows that hide nothing, and
cost nobody an entry.

The leader looks behind a read barrier, where `next_seq` is S. If the key shows no entry below
`before`, then nothing below `min(before, S)` is ever seen again: what is there is hidden by what
hides it now, and whatever is appended from now on, also before the command is applied, has seqs
from S on. So a trim to there changes nothing, and the leader leaves the key out of the command,
from which all members apply the same. Where `before` is above S, the key shows nothing at all, and
its trim has happened at the moment of the look: entries that came later stay. A repetition finds
nothing to hide and does the same.
"""

from collections.abc import Sequence

from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns

Trim = tuple[bytes, int]
"""A key, and the seq below which its entries go."""


async def that_hide(replica: RangeReplica, trims: Sequence[Trim]) -> list[Trim]:
    """The trims that hide an entry; the others are done.

    Raises NotLeader, Sealed, Unavailable when the replica stops, and CorruptData for a file that
    is not what it should be.
    """
    await replica.lead_settled()
    if not replica.leads:
        raise replica.not_leader()
    await replica.read_barrier()
    found: list[Trim] = []
    looked = 0

    def look() -> list[Trim]:
        nonlocal looked
        while looked < len(trims):
            key, before = trims[looked]
            if replica.state.shows_below(key, before):
                found.append((key, before))
            looked += 1
            replica.state.store.moved_on()
        return found

    return await in_turns(replica, look)
