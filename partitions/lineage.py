"""Where one generation ends and the next begins: the state that all members must agree on.

A generation's end is the state at its seal: index and term of the seal entry, the next seq, the
last timestamp and the running hash (x6). These functions read the end from the plain tables of a
durable base, so that the disk storage and the simulator use the same code.
"""

from collections.abc import Mapping
from typing import Any

from .model import Lineage
from .recovery import SEQS_LEFT_OUT

Gid = tuple[int, int]
"""The id of a range, and its generation."""

FIRST_APPLIED = (1, 0)
"""Index and term of the sentinel with which every generation's log begins."""


def lineage_of(gid: Gid, applied: tuple[int, int], tables: Mapping[str, Any]) -> Lineage | None:
    """Return the end of a generation from a base at its seal, or None for any other base."""
    sealed = tables.get("sealed")
    if not sealed or sealed[1] != applied[0]:
        return None
    return Lineage(
        *gid, *applied, tables["next_seq"], tables["last_timestamp_ms"], tables["hash"],
    )  # fmt: skip


def effects_of(tables: Mapping[str, Any]) -> bytes:
    """Return the running hash of the effects of the entries that led to these tables.

    `differ` compares two of these hashes.
    """
    effects: bytes = tables.get("effects", b"")
    return effects


def same_end(one: Lineage, other: Lineage) -> bool:
    """Whether both name the same final entry: their states must then be equal too."""
    return one[:4] == other[:4]


def successor(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first tables of the next generation, at `FIRST_APPLIED` of its own log."""
    return {**tables, "sealed": None}


def recovered(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return `successor` for a range that may have lost entries whose seqs readers have seen."""
    return {**successor(tables), "next_seq": tables["next_seq"] + SEQS_LEFT_OUT}
