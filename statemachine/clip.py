"""The base of a child of a split: the part of its parent's last base that concerns its keys.

No entry is copied (docs/design/ranges.md#seal-decide-install). A child's manifest names the
parent's files, which also hold keys of its neighbours: `Held` and its readers leave these keys out,
and a merge of segments drops them. `unite` reverses a split.
"""

from collections.abc import Mapping
from typing import Any

from . import cursors, tails
from .groups import stored
from .range_state import Base
from .removal import Removal


def clipped(base: Base, start: bytes, end: bytes | None) -> Base:
    """Return the part of a base that concerns the keys in [start, end), at the same index and term.

    The manifest keeps the rows of segments that may hold such keys, in their order. A clip that has
    all of the keys is dropped; any other clip is cut to them. Only the removal state, the cursors,
    the groups and the tails are cut among the tables: floors, marks, leases, positions and rows
    belong to keys, and tails to partitions of keys. The child keeps all other tables of the parent,
    including tables that this function does not know. Extra data in a child does no harm (for
    producers see docs/design/ranges.md#producers); missing data is lost. A new table that is kept
    per key and must be cut has to be named here.

    Pure, and the same on every replica for the same base. The parent's tables are shared, not
    copied: nobody changes the tables of a base.
    """
    tables: dict[str, Any] = dict(base.tables)
    if tables.get("removal") is not None:
        tables["removal"] = _removal(tables, start, end)
    span = (start, end)
    found = cursors.clipped(tables.pop("cursors", {}), span)
    if found:  # a base without cursors looks as older versions wrote it
        tables["cursors"] = found
    if tails.TABLE in tables:
        tables[tails.TABLE] = tails.clipped(tables[tails.TABLE], span)
    if tables.get("groups"):
        tables["groups"] = stored.clipped(tables["groups"], span)
    rows = (info.clipped(span) for info in base.manifest)
    manifest = [row.of_range(span) for row in rows if row is not None]
    return Base(base.applied_index, base.applied_term, manifest, tables)


def _removal(tables: Mapping[str, Any], start: bytes, end: bytes | None) -> dict[str, Any]:
    removal = Removal.from_wire(tables["removal"], start, end)
    return removal.to_wire(tables.get("last_timestamp_ms", 0))
