"""Where one generation ends and the next begins: the same state, named by all that must agree.

A generation's end is the state at its seal: index and term of that entry, the next seq, the last
timestamp and the running hash (x6). These functions read it from the plain tables of
a durable base, so that whoever stores a base, on a disk or in a simulation, asks the same code.
"""

from collections.abc import Mapping
from typing import Any

from .model import Lineage
from .recovery import SEQS_LEFT_OUT

Gid = tuple[int, int]
"""Range and generation."""

FIRST_APPLIED = (1, 0)
"""Index and term of the sentinel in which every generation's log begins."""


def lineage_of(gid: Gid, applied: tuple[int, int], tables: Mapping[str, Any]) -> Lineage | None:
    """The end of a generation, from a base of it at its seal; None for any other base."""
    sealed = tables.get("sealed")
    if not sealed or sealed[1] != applied[0]:
        return None
    return Lineage(
        *gid, *applied, tables["next_seq"], tables["last_timestamp_ms"], tables["hash"],
    )  # fmt: skip


def effects_of(tables: Mapping[str, Any]) -> bytes:
    """The running hash of what the entries did that led to these tables; see `differ`."""
    effects: bytes = tables.get("effects", b"")
    return effects


def same_end(one: Lineage, other: Lineage) -> bool:
    """Whether both name the same final entry: then their states must be the same too."""
    return one[:4] == other[:4]


def successor(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with which the next generation begins, at `FIRST_APPLIED` of its own log."""
    return {**tables, "sealed": None}


def recovered(tables: Mapping[str, Any]) -> dict[str, Any]:
    """As `successor`, where entries may be lost whose seqs somebody has seen."""
    return {**successor(tables), "next_seq": tables["next_seq"] + SEQS_LEFT_OUT}
