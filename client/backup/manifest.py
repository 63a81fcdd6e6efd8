"""What a backup has: JSON, with keys in hexadecimal digits."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .sealing import damaged
from .store import json_of


class Object(NamedTuple):
    """Entries in the order of seq. `last_seq` is the seq of the last entry."""

    name: str
    entries: int
    last_seq: int


@dataclass(slots=True)
class Part:
    """The keys in [start, end) of a snapshot, with seqs up to `through_seq`.

    `bounds`: keys at which a restore cuts the part. Seqs rise only between two bounds: the parts of
    a range that was merged have unrelated seqs.
    """

    start: bytes
    end: bytes | None
    through_seq: int
    bounds: list[bytes] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)


@dataclass(slots=True)
class LogBackup:
    """One log: `policy` and `hierarchy` as `describe` tells them, and the parts of its snapshot.
    `sum`: see `pieces.sum_of`."""

    name: str
    policy: dict[str, Any]
    hierarchy: str | None
    parts: list[Part]
    entries: int = 0
    sum: int = 0


@dataclass(slots=True)
class Manifest:
    """A backup. `created_ms`: Unix time before the first snapshot was taken."""

    backup: str
    created_ms: int
    cluster: str
    logs: list[LogBackup]

    def objects(self) -> set[str]:
        """Return the names of all objects."""
        return {
            each.name for log in self.logs for part in log.parts for each in part.objects
        }  # fmt: skip

    def to_bytes(self) -> bytes:
        """Return the JSON."""
        logs = [
            {
                "name": log.name, "policy": log.policy, "hierarchy": log.hierarchy,
                "entries": log.entries, "sum": f"{log.sum:x}",
                "parts": [
                    {
                        "start": part.start.hex(),
                        "end": None if part.end is None else part.end.hex(),
                        "through_seq": part.through_seq,
                        "bounds": [bound.hex() for bound in part.bounds],
                        "objects": part.objects,
                    }
                    for part in log.parts
                ],
            }
            for log in self.logs
        ]  # fmt: skip
        return json.dumps(
            {"version": 1, "backup": self.backup, "created_ms": self.created_ms,
             "cluster": self.cluster, "logs": logs}
        ).encode()  # fmt: skip

    @classmethod
    def of(cls, backup: str, content: bytes) -> "Manifest":
        """Return the manifest of its JSON. Raises CorruptData."""
        name = f"manifest {backup}"
        body = json_of(content, name)
        try:
            if body["version"] != 1:
                raise damaged(name, f"the version is {body['version']!r}; this lognode knows 1")
            logs = [
                LogBackup(
                    str(log["name"]), dict(log["policy"]), log["hierarchy"],
                    list(map(_part, log["parts"])), int(log["entries"]), int(log["sum"], 16),
                )
                for log in body["logs"]
            ]  # fmt: skip
            return cls(backup, int(body["created_ms"]), str(body["cluster"]), logs)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(name, f"a field is not valid ({error})") from None


def _part(row: Any) -> Part:
    end = row["end"]
    return Part(
        bytes.fromhex(row["start"]),
        None if end is None else bytes.fromhex(end),
        int(row["through_seq"]),
        list(map(bytes.fromhex, row["bounds"])),
        [Object(str(name), int(entries), int(last)) for name, entries, last in row["objects"]],
    )
