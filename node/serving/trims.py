"""Find trims of keys that hide no entry, before the leader of a range proposes them.

A floor hides the entries of a key below a seq, and is kept until retention has passed that seq. A
client could fill the range's floors with trims of keys that have no such entries, and lose nothing.

The leader looks behind a read barrier, where `next_seq` is S. If the key shows no entry below
`before`, then no entry below `min(before, S)` is ever visible again: the existing entries stay
hidden, and every later append gets a seq from S on, even if it comes before the command is applied.
So a trim to this seq changes nothing, and the leader leaves the key out of the command, from which
all members apply the same. Where `before` is above S, the key shows no entry at all, and the trim
takes effect at the moment of the look: entries that come later stay. A repetition finds nothing to
hide and does the same.
"""

from collections.abc import Sequence

from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns

Trim = tuple[bytes, int]
"""A key, and the seq below which its entries are removed."""


async def that_hide(replica: RangeReplica, trims: Sequence[Trim]) -> list[Trim]:
    """Return the trims that hide an entry; the others are already done.

    Raises NotLeader, Sealed, Unavailable when the replica stops, and CorruptData for a damaged
    file.
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
