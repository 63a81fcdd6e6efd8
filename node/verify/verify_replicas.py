"""Check that meta and the WAL agree on the replicas of a directory, as a start requires."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...client.protocol.errors import CorruptData
from ...partitions.model import CONTROLLER_RANGE, Descriptor, Span
from ...raft.types import GroupId
from ...raft.wal_recovery import Recovery
from ...statemachine.range_state import Base
from ...statemachine.segment_format import SegmentInfo
from ..directory import meta_keys
from ..directory.image_rows import ImageRows
from ..directory.kept_files import Place, from_row
from ..rules.recovering import misfit
from .verify_bases import KnownBase


@dataclass(frozen=True, slots=True)
class KnownReplica:
    """A replica's row in meta."""

    applied: tuple[int, int]
    damaged: str | None
    installed: bool


@dataclass(slots=True)
class Known:
    """The rows of meta that other data can be compared with."""

    replicas: dict[GroupId, KnownReplica] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    bases: list[KnownBase] = field(default_factory=list)
    kept: dict[GroupId, Mapping[str, Place]] = field(default_factory=dict)
    """The files that each replica has in the tier only."""
    others: dict[str, Any] = field(default_factory=dict)
    images: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The images of the metadata, by the key of an image's head row: the prefix of its buckets'
    rows, and the head row."""
    buckets: dict[str, bytes] = field(default_factory=dict)
    """The rows of all buckets, by key."""

    def take(self, key: str, value: Any) -> None:
        """Keep what later checks compare. Raises CorruptData for a malformed row."""
        try:
            if key.startswith((meta_keys.REPLICA, meta_keys.CONTROLLER)):
                self.add_replica(key, value)
            elif key.startswith(meta_keys.MARK):
                self.marks[int(key.removeprefix(meta_keys.MARK))] = int(value)
            elif key.startswith(meta_keys.PREPARED):
                self.add_prepared(key, value)
            elif key == meta_keys.IMAGE:
                self.images[key] = meta_keys.IMAGE_BUCKETS, value
            elif key.startswith((meta_keys.IMAGE_BUCKETS, meta_keys.CONTROLLER_BUCKETS)):
                self.buckets[key] = value
            elif key.startswith(meta_keys.KEPT):
                self.kept[meta_keys.kept_gid(key)] = from_row(value)
            elif key.startswith(meta_keys.SOUND):
                if value is not True:
                    raise ValueError(value)
            elif key in ("identity", meta_keys.CLEAN, meta_keys.REFUSED, meta_keys.TIER):
                self.others[key] = value
            elif key == meta_keys.LEVEL:
                self.others[key] = int(value)
        except CorruptData as error:
            if f"meta row {key}" in error.message:
                raise
            raise CorruptData(f"meta row {key} is not valid: {error.message}") from None
        except (KeyError, TypeError, ValueError, AttributeError, LookupError) as error:
            raise CorruptData(f"meta row {key} is not valid: {error!r}") from None

    def add_prepared(self, key: str, value: dict[str, Any]) -> None:
        """Add the row of a state prepared for an operation. Raises the errors of `add_replica`."""
        number = meta_keys.prepared_operation(key)
        gid = GroupId(int(value["range"]), int(value["generation"]))
        base = Base.from_wire(value["base"])
        name = f"data prepared for operation {number}"
        self.bases.append(KnownBase(name, Span(b"", None), base, gid))

    def check_images(self) -> list[str]:
        """Return what is wrong with the images of the metadata."""
        wrong = []
        for row_key, (prefix, head) in self.images.items():
            items = [(key, data) for key, data in self.buckets.items() if key.startswith(prefix)]
            try:
                ImageRows(prefix).load(items, head)
            except CorruptData as error:
                wrong.append(error.message)
            except (KeyError, TypeError, AttributeError) as error:
                wrong.append(f"meta row {row_key} is not valid: {error!r}")
        return wrong

    def segments(self) -> list[SegmentInfo]:
        """Return every segment file that a manifest names."""
        return [info for known in self.bases for info in known.base.manifest]

    def far(self) -> set[str]:
        """Return the content ids of the files that all states which name them have in the tier."""
        near = {
            info.content_id
            for known in self.bases
            for info in known.base.manifest
            if info.content_id not in self.kept.get(known.gid, {})
        }
        return {name for places in self.kept.values() for name in places} - near

    def add_replica(self, key: str, value: dict[str, Any]) -> None:
        """Add a replica's row. Raises CorruptData, and Python's errors for a wrong shape."""
        descriptor = Descriptor.from_wire(value["descriptor"])
        gid = GroupId(descriptor.range_id, descriptor.generation)
        if key.startswith(meta_keys.CONTROLLER):
            self.images[key] = meta_keys.controller_buckets(gid.generation), value
            index, term = value["applied"]
            expected = meta_keys.controller_key(gid.generation)
        else:
            base = Base.from_wire(value["base"])
            index, term = base.applied_index, base.applied_term
            self.bases.append(KnownBase(group_name(gid), descriptor.span, base, gid))
            expected = meta_keys.replica_key(gid)
        if key != expected:
            raise CorruptData(f"meta row {key} belongs to {expected}")
        self.replicas[gid] = KnownReplica(
            (index, term), value.get("damaged"), bool(value.get("installed"))
        )


def check_replicas(known: Known, recovery: Recovery) -> tuple[str, list[str]]:
    """Return a summary of what was checked, and the disagreements."""
    wrong = []
    notes: dict[str, int] = {}
    for gid, replica in known.replicas.items():
        if gid in recovery.retired:
            _count(notes, "is over and goes at the next start")
            continue
        if gid in recovery.damaged:
            _count(notes, "has a damaged log")
            continue
        reason = _disagreement(gid, replica, recovery)
        if known.marks.get(gid.range_id, 0) < gid.generation:
            reason = reason or "meta does not say that it was started"
        if reason is not None:
            wrong.append(f"{group_name(gid)}: {reason}")
    for gid in recovery.groups.keys() - known.replicas.keys():
        over = gid.generation <= known.marks.get(gid.range_id, 0)
        _count(
            notes, "has ended, and the next start removes the data" if over else "was never begun"
        )
    found = f"{len(known.replicas)} replicas"
    for what, count in sorted(notes.items()):
        found += f", {count} that {what}"
    return found, wrong


def _disagreement(gid: GroupId, replica: KnownReplica, recovery: Recovery) -> str | None:
    if replica.damaged:
        return f"the replica is known as damaged: {replica.damaged}"
    log = recovery.groups.get(gid)
    if log is None:
        return "its log is not in the WAL"
    return misfit(log, replica.applied, installed=replica.installed)


def group_name(gid: GroupId) -> str:
    """Return a name of the group for people."""
    if gid.range_id == CONTROLLER_RANGE:
        return f"the controller's replica, generation {gid.generation}"
    return f"range {gid.range_id} generation {gid.generation}"


def _count(notes: dict[str, int], what: str) -> None:
    notes[what] = notes.get(what, 0) + 1
