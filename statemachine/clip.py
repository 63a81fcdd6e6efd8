"""What a child of a split begins with: of its parent's last base what concerns its keys.

No entry is copied (docs/design/ranges.md#seal-decide-install). A child's manifest names the
parent's files, so that they also hold keys of its neighbours: `Held` and whoever reads from it keep
these out, and a merge of segments drops them. `unite` is the way back.
"""

from collections.abc import Mapping
from typing import Any

from .range_state import Base
from .removal import Removal


def clipped(base: Base, start: bytes, end: bytes | None) -> Base:
    """The part of a base that concerns the keys in [start, end), at the same index and term.

    The manifest keeps the rows of segments that may hold such keys, in their order. A clip that has
    all of them says nothing any more, and goes; another is cut to them. Of the tables only the
    removal state is cut: floors, marks and leases are of keys. All others are as the parent has
    them, those too that this function has never heard of: what a child has too much of does no harm
    (of producers docs/design/ranges.md#producers says so), what it has too little of is lost. A
    table that is kept per key and is to be cut has to be named here.

    Pure, and the same on every replica for the same base. The parent's tables are shared, not
    copied: nobody changes those of a base.
    """
    tables: dict[str, Any] = dict(base.tables)
    if tables.get("removal") is not None:
        tables["removal"] = _removal(tables, start, end)
    span = (start, end)
    rows = (info.clipped(span) for info in base.manifest)
    manifest = [row.of_range(span) for row in rows if row is not None]
    return Base(base.applied_index, base.applied_term, manifest, tables)


def _removal(tables: Mapping[str, Any], start: bytes, end: bytes | None) -> dict[str, Any]:
    removal = Removal.from_wire(tables["removal"], start, end)
    return removal.to_wire(tables.get("last_timestamp_ms", 0))
