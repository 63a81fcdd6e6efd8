"""The base of a merged range: the last bases of its neighbours, made one.

No entry is copied or renumbered (docs/design/ranges.md#seal-decide-install, promise S6). The
parents' seqs are unrelated, so each parent's rows of the manifest keep its span (`chains`). This
reverses `clip`.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

from ..client.protocol.invariants import invariant
from ..client.protocol.levels import LEVEL_MIN
from . import cursors, tails
from .floors import Marks
from .groups import stored
from .leases import Lease
from .producers import Table, united_rows
from .range_state import Base
from .spans import Span
from .state_hash import BEGIN, HASH_BYTES
from .union_rows import Rows, beside, common_places


class Parent(NamedTuple):
    """The keys of a range in [start, end), and its durable state at its seal."""

    start: bytes
    end: bytes | None
    base: Base

    @property
    def span(self) -> Span:
        """The range's keys."""
        return self.start, self.end


def united(parents: Sequence[Parent], index: int, term: int) -> Base:
    """Return the base, at this index and term, of one range with all keys of its parents.

    The parents are two or more neighbours in the order of keys. The manifest has all their rows,
    clipped to their spans. Rows on both sides of a border for one file, since a split, become one
    row again, so that a merge undoes a split. Seqs go on after the largest, log time after the
    latest; the feature level is the highest. Floors, marks, leases, positions of cursors and groups
    stay those of each parent's keys (x12, x14, x2.20), and the rows of producers follow x9 and x10.
    The result may exceed a limit, of producers or spans, say: nothing is dropped for that, but the
    range accepts no more.

    A table that this function does not know is taken from the first parent, and the others' are
    lost: a new table needs a rule here.

    Pure, and the same on every replica for the same bases, whose tables are shared, not copied:
    nobody changes the tables of a base. This takes some tenths of a second where both parents have
    rows of 100,000 producers, and a second where one producer has its whole window in both: too
    long for a loop.
    """
    invariant(
        len(parents) > 1 and all(left.end == right.start for left, right in pairwise(parents)),
        "the ranges of a merge are not neighbours", spans=[parent.span for parent in parents],
    )  # fmt: skip
    span = (parents[0].start, parents[-1].end)
    tables = [parent.base.tables for parent in parents]
    groups = stored.united(
        [(parent.span, parent.base.tables.get("groups", {})) for parent in parents]
    )
    level = max(each.get("level", LEVEL_MIN) for each in tables)
    found = cursors.united([(each.span, each.base.tables.get("cursors", {})) for each in parents])
    others = {name: table for each in reversed(tables) for name, table in each.items()}
    # The parents' seqs are unrelated, and a restore goes on from one next seq.
    others.pop("restoring", None)
    return Base(
        index,
        term,
        [info.of_range(span) for info in reduce(beside, map(_rows, parents)).rows],
        {
            **others,
            **({"level": level} if level > LEVEL_MIN else {}),
            **({"groups": groups} if groups else {}),
            "next_seq": max(each.get("next_seq", 1) for each in tables),
            "last_timestamp_ms": max(each.get("last_timestamp_ms", 0) for each in tables),
            "hash": united_hash([each.get("hash", BEGIN) for each in tables]),
            "sealed": None,
            "producers": reduce(united_rows, map(_producers, parents)).rows,
            "removal": _removal(parents),
            **({"cursors": found} if found else {}),
            **_tails(parents),
        },
    )


def _tails(parents: Sequence[Parent]) -> dict[str, Any]:
    """Return the tails of the partitions of all parents, if the log has partitions."""
    found = [(each.span, each.base.tables.get(tails.TABLE)) for each in parents]
    rows = [(span, each) for span, each in found if each is not None]
    return {tails.TABLE: tails.united(rows)} if rows else {}


def united_hash(hashes: Iterable[bytes]) -> bytes:
    """Return the first running hash of a range, from its parents' hashes in the order of keys."""
    return blake2b(b"".join(hashes), digest_size=HASH_BYTES).digest()


def _rows(parent: Parent) -> Rows:
    clipped = (info.clipped(parent.span) for info in parent.base.manifest)
    return Rows(parent.span, [info for info in clipped if info is not None])


def _producers(parent: Parent) -> Table:
    return Table(parent.span, parent.base.tables.get("producers", {}))


def _removal(parents: Sequence[Parent]) -> dict[str, Any] | None:
    """Return floors, marks and leases side by side: each parent's belong to its own keys."""
    bodies = [parent.base.tables.get("removal") for parent in parents]
    if not any(bodies):
        return None
    floors: dict[bytes, int] = {}
    leases: list[Lease] = []
    marks: list[tuple[Span, Marks]] = []
    for parent, body in zip(parents, bodies, strict=True):
        marks.append((parent.span, Marks.from_wire(body["marks"]) if body else Marks()))
        if body:
            floors.update(body["floors"])
            leases = _leases(leases, [Lease.from_wire(lease) for lease in body["leases"]])
    return {
        "floors": floors,
        "marks": Marks.united(marks).to_wire(),
        "leases": [lease.to_wire() for lease in leases],
    }


def _leases(left: list[Lease], right: list[Lease]) -> list[Lease]:
    """Return the leases of both, each in its own order, with both parts of a split lease joined.

    The order decides which of two views of one seq is asked first.
    """
    shared = common_places(
        [(lease.lease_id, lease.through_seq, lease.end) for lease in left],
        [(lease.lease_id, lease.through_seq, lease.start) for lease in right],
    )
    found: list[Lease] = []
    begin, other_begin = 0, 0
    for at, other in shared:
        found += [*left[begin:at], *right[other_begin:other], left[at].united(right[other])]
        begin, other_begin = at + 1, other + 1
    return [*found, *left[begin:], *right[other_begin:]]
