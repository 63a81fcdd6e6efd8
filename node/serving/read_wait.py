"""What a read has to wait for before a replica answers it, by the consistency that it asks for.

The rule alone, without clocks and waiting: the node and the simulator both follow it.
"""

from typing import Final, Literal

BARRIER: Final = "barrier"


def wait_before(consistency: str, session: int, applied: int) -> Literal["barrier"] | int:
    """Return what comes before the answer of a replica that has applied entry `applied`.

    `BARRIER`: everything acknowledged before the read began has to be applied here, by an index
    that a leader confirms (S7). Another number: the entry at this index has to be applied here,
    because earlier reads of the session have seen it (`session`; x2.19). 0: nothing.
    """
    if consistency == "linearizable":
        return BARRIER
    return session if session > applied else 0
