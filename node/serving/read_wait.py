"""Decide what a read waits for before a replica answers, by the read's consistency.

This is the rule alone, without clocks and waiting: the node and the simulator both follow it.
"""

from typing import Final, Literal

BARRIER: Final = "barrier"


def wait_before(consistency: str, session: int, applied: int) -> Literal["barrier"] | int:
    """Return what to wait for at a replica that has applied entry `applied`.

    `BARRIER`: this replica must apply everything acknowledged before the read began, up to an
    index that a leader confirms (S7). Another number: it must apply the entry at this index,
    which earlier reads of the session have seen (`session`; x2.19). 0: nothing.
    """
    if consistency == "linearizable":
        return BARRIER
    return session if session > applied else 0
