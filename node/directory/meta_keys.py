"""The keys of the rows of meta, and what each row holds.

identity                        cluster, node, incarnation, boot
replica/<range>/<generation>    descriptor, base, damaged: a replica that was started here;
                                installed: the base came from a peer, its log may end below it
mark/<range>                    the highest generation ever started here (x3)
controller/<generation>         descriptor, applied, damaged, installed: as for a range; version
                                and number of the rows that hold its metadata
metadata/<generation>/...       the rows of that metadata: each is a bucket of records
image                           version and number of the rows that hold the newest metadata image
                                this node has acted on
image/...                       the rows of that image (`image_rows`)
clean                           true after an orderly stop, until the next start
auth                            true: clients always need tokens here
refused                         why the cluster refuses this directory for ever; with `level`:
                                why earlier versions of lognode refuse it
level                           the feature level of the cluster, above the first level
joins                           the cluster that this new directory is about to join
attempt                         the identity that this new directory gives when it asks to join:
                                incarnation, process, id of the invitation
sound/<content id>              true: the segment file was read from the disk, and was sound
prepared/<operation>            range, generation, base: a parent's state at its final index
kept/<range>/<generation>       content id, size, path: files that the replica has in the tier only
tier                            the token of the tier that has these files
"""

from collections.abc import Mapping
from typing import Any

from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import Base

REPLICA = "replica/"
CONTROLLER = "controller/"
MARK = "mark/"
PREPARED = "prepared/"
KEPT = "kept/"
TIER = "tier"
SOUND = "sound/"
CONTROLLER_BUCKETS = "metadata/"
IMAGE = "image"
IMAGE_BUCKETS = "image/"
CLEAN = "clean"
AUTH = "auth"
REFUSED = "refused"
LEVEL = "level"
JOINS = "joins"
ATTEMPT = "attempt"


def replica_key(gid: GroupId) -> str:
    """Return the key of a range replica's row."""
    return f"{REPLICA}{gid.range_id:012d}/{gid.generation:08d}"


def controller_key(generation: int) -> str:
    """Return the key of a controller replica's row."""
    return f"{CONTROLLER}{generation:08d}"


def row_key(gid: GroupId) -> str:
    """Return the key of a replica's row, of a range or of the controller."""
    controller = gid.range_id == CONTROLLER_RANGE
    return controller_key(gid.generation) if controller else replica_key(gid)


def controller_buckets(generation: int) -> str:
    """Return the prefix of the rows that hold a controller replica's metadata."""
    return f"{CONTROLLER_BUCKETS}{generation:08d}/"


def mark_key(range_id: int) -> str:
    """Return the key of the row with a range's highest generation here."""
    return f"{MARK}{range_id:012d}"


def sound_key(content_id: str) -> str:
    """Return the key of the row of a file that was read back."""
    return f"{SOUND}{content_id}"


def prepared_key(operation_id: int, range_id: int) -> str:
    """Return the key of the row with a range's prepared state for an operation."""
    return f"{PREPARED}{operation_id:012d}/{range_id:012d}"


def prepared_operation(key: str) -> int:
    """Return the operation for which the row of that key was prepared."""
    return int(key.removeprefix(PREPARED).partition("/")[0])


def begun(gid: GroupId, puts: dict[str, Any]) -> dict[str, Any]:
    """Return all that one transaction stores when a generation begins here: the rows of the replica
    and the mark, without which the generation could begin a second time (x3)."""
    return {**puts, mark_key(gid.range_id): gid.generation}


def replica_row(descriptor: Descriptor, base: Base, damaged: str | None = None) -> dict[str, Any]:
    """Return a replica's row."""
    return {"descriptor": descriptor.to_wire(), "base": base.to_wire(), "damaged": damaged}


def kept_key(gid: GroupId) -> str:
    """Return the key of the row with a replica's files that are in the tier only."""
    return f"{KEPT}{gid.range_id:012d}/{gid.generation:08d}"


def kept_gid(key: str) -> GroupId:
    """Undo `kept_key`. Raises ValueError."""
    range_id, generation = key.removeprefix(KEPT).split("/")
    return GroupId(int(range_id), int(generation))


def kept_row(places: Mapping[str, tuple[int, str]]) -> list[list[Any]]:
    """Return that row: where each file is in the tier, by content id."""
    return [[name, *place] for name, place in places.items()]
