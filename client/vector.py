"""The value that describes a snapshot of a log: a committed prefix of every part of its keys.

A vector holds the last seq of the snapshot for each span of keys. It names no range and no
generation, so later splits, merges and moves do not affect it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from .json_text import bytes_of, printable
from .protocol.errors import InvalidArgument

_VERSION: Final = 1


class Part(NamedTuple):
    """The entries with keys in [start, end), up to `through_seq`; an `end` of None: all keys
    from `start` on."""

    start: bytes
    end: bytes | None
    through_seq: int


class Vector(NamedTuple):
    """The parts and the lease of a snapshot. `parts` cover all keys once, in order.
    `expires_ms`, Unix time in milliseconds, is the earliest expiry of the lease when the
    snapshot was taken."""

    cluster: str
    log: str
    log_id: int
    lease: str
    expires_ms: int
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        """Return one line of JSON, for `from_json`. Keys are text, or base64 when they are not
        UTF-8."""
        import json  # imported here because it takes long to load

        return json.dumps(self.to_document(), ensure_ascii=False)

    def to_document(self) -> dict[str, Any]:
        """Return the document that `to_json` writes."""
        parts = [
            {
                "start": printable(part.start),
                "end": None if part.end is None else printable(part.end),
                "through_seq": part.through_seq,
            }
            for part in self.parts
        ]
        return {
            "v": _VERSION, "cluster": self.cluster, "log": self.log, "log_id": self.log_id,
            "lease": self.lease, "expires_ms": self.expires_ms, "parts": parts,
        }  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`. Raises InvalidArgument with the reason when the text is not a
        snapshot."""
        try:
            import json

            body = json.loads(text)
        except ValueError as error:
            raise _none(f"the text is not JSON: {error}") from None
        if type(body) is not dict:
            raise _none(f"the text is {text.strip()[:60]!r}, not an object")
        if body.get("v") != _VERSION:
            raise _none(f"the version is {body.get('v')!r}; this lognode knows {_VERSION}")
        rows = _field(body, "parts", list)
        return cls(
            cluster=_field(body, "cluster", str), log=_field(body, "log", str),
            log_id=_field(body, "log_id", int), lease=_field(body, "lease", str),
            expires_ms=_field(body, "expires_ms", int), parts=_contiguous(map(_part, rows)),
        )  # fmt: skip


def _part(row: Any) -> Part:
    if type(row) is not dict:
        raise _none(f"a part is {row!r}")
    through = _field(row, "through_seq", int)
    if through < 0:
        raise _none(f"a part has the through seq {through}")
    end = row.get("end")
    return Part(_key(row.get("start")), None if end is None else _key(end), through)


def _contiguous(parts: Any) -> tuple[Part, ...]:
    found: list[Part] = []
    at: bytes | None = b""
    for part in parts:
        if part.start != at or (part.end is not None and part.end <= part.start):
            raise _none(f"the parts do not follow each other at key {part.start!r}")
        found.append(part)
        at = part.end
    if at is not None:
        raise _none(f"the parts end at key {at!r}, and not at the end of all keys")
    return tuple(found)


def _key(value: Any) -> bytes:
    try:
        return bytes_of(value)
    except ValueError:
        raise _none(f"a key is {value!r}") from None


def _field(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if type(value) is not kind:
        raise _none(f"{name} is {value!r}")
    return value


def _none(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the text is not a snapshot in the form of to_json(): {why}", what="snapshot"
    )
