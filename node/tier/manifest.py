"""A manifest of a range in a tier: bytes with a hash, checked before anything is believed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgpack
import zstandard

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData
from ...statemachine.spans import EVERYTHING, Span, common
from .names import Chain, file_of, manifest_name

BYTES_MAX: Final = 128 * limits.MIB
"""The most bytes of a manifest, packed or not. The largest base has 50 MB of floors."""
_MAGIC: Final = b"LNTIER1\n"
_HASH_BYTES: Final = 32
_VERSION: Final = 1


class Held(NamedTuple):
    """Where a file is in the tier. `size`: bytes."""

    size: int
    path: str


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a restore needs of a log. `policy` as clients see it; `hierarchy` in hexadecimal."""

    log_id: int
    name: str
    policy: Mapping[str, Any]
    hierarchy: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest. `held`: files by their content ids. `files`: those of the base, in its order.

    `base`: the packed durable base of the replica, at the entry `applied`, without producers,
    cursors, groups and leases; None: the upload of the first base is under way. `closed`: the
    chain has no later manifest. `members`: the nodes of the generation; empty in
    manifests of earlier versions. `claims`: for each node, files that it has in the tier only.
    """

    chain: Chain
    number: int
    log: LogFacts
    span: Span
    held: Mapping[str, Held]
    files: tuple[str, ...] = ()
    applied: tuple[int, int] = (0, 0)
    base: bytes | None = None
    closed: bool = False
    node: int = 0
    written_ms: int = 0
    members: tuple[int, ...] = ()
    claims: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the object."""
        return manifest_name(self.chain, self.number)

    @property
    def is_whole(self) -> bool:
        """Whether the range can be restored from this manifest."""
        return self.base is not None

    @property
    def claimed(self) -> list[str]:
        """The files that nodes claim, each once."""
        return list(dict.fromkeys(name for each in self.claims.values() for name in each))

    def to_bytes(self) -> bytes:
        """Return the content of the object."""
        log = self.log
        packed = msgpack.packb(
            {
                "version": _VERSION, "chain": list(self.chain), "number": self.number,
                "log": [log.log_id, log.name, dict(log.policy), log.hierarchy],
                "span": list(self.span), "files": list(self.files),
                "held": [[name, *held] for name, held in self.held.items()],
                "applied": list(self.applied), "base": self.base, "closed": self.closed,
                "node": self.node, "written_ms": self.written_ms, "members": list(self.members),
                "claims": {node: list(names) for node, names in self.claims.items()},
            }
        )  # fmt: skip
        digest = hashlib.sha256(packed).digest()
        return _MAGIC + digest + zstandard.ZstdCompressor(level=3).compress(packed)

    @classmethod
    def of(cls, chain: Chain, number: int, content: bytes) -> "Manifest":
        """Return the manifest of an object. Raises CorruptData, which names the object."""
        name = manifest_name(chain, number)
        try:
            found = _parsed(_unpacked(content))
        except (KeyError, TypeError, ValueError, zstandard.ZstdError) as error:
            raise CorruptData(
                f"{name} in the tier is damaged: {error}. The leader of the range publishes a new "
                "manifest; repeat the command later",
                outcome="not_applied",
            ) from None
        if (found.chain, found.number) != (chain, number):
            raise CorruptData(
                f"{name} in the tier has the content of {found.name}. The leader of the range "
                "publishes a new manifest; repeat the command later",
                outcome="not_applied",
            )
        return found


def _unpacked(content: bytes) -> Any:
    head = len(_MAGIC) + _HASH_BYTES
    if not content.startswith(_MAGIC):
        raise ValueError("the object is not a manifest of this version")
    claimed = zstandard.frame_content_size(content[head:])
    if not 0 <= claimed <= BYTES_MAX:
        raise ValueError(f"the frame claims {claimed} bytes")
    packed = zstandard.ZstdDecompressor().decompress(content[head:])
    if hashlib.sha256(packed).digest() != content[len(_MAGIC) : head]:
        raise ValueError("the content has another hash")
    try:
        return msgpack.unpackb(packed, strict_map_key=False)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise ValueError(str(error)) from None


def _parsed(body: Any) -> Manifest:
    if body["version"] != _VERSION:
        raise ValueError(f"the version is {body['version']!r}; this lognode knows {_VERSION}")
    log_id, log_name, policy, hierarchy = body["log"]
    start, end = body["span"]
    base = body["base"]
    found = Manifest(
        Chain(*map(_number, body["chain"])), _number(body["number"]),
        LogFacts(_number(log_id), _text(log_name), dict(policy), hierarchy),
        (start, end), {_text(name): _held(name, *rest) for name, *rest in body["held"]},
        tuple(map(_text, body["files"])), _pair(*body["applied"]), base, bool(body["closed"]),
        _number(body["node"]), _number(body["written_ms"]),
        tuple(map(_number, body.get("members", ()))), _claims(body.get("claims", {})),
    )  # fmt: skip
    if hierarchy is not None:
        bytes.fromhex(hierarchy)
    if type(start) is not bytes or (end is not None and type(end) is not bytes):
        raise ValueError("the span is not of keys")
    if common((start, end), EVERYTHING) is None:
        raise ValueError("the span has no keys")
    if base is not None and type(base) is not bytes:
        raise ValueError("the base is not of bytes")
    if not found.held.keys() >= set(found.files):
        raise ValueError("a file of the base is not held")
    if not found.held.keys() >= set(found.claimed):
        raise ValueError("a claimed file is not held")
    return found


def _held(content_id: str, size: Any, path: Any) -> Held:
    file = file_of(_text(path))
    if file is None or file.content_id != content_id:
        raise ValueError(f"{path!r} is not a place of file {content_id!r}")
    return Held(_number(size), path)


def _claims(body: Any) -> dict[int, tuple[str, ...]]:
    return {_number(node): tuple(map(_text, names)) for node, names in dict(body).items()}


def _pair(index: Any, term: Any) -> tuple[int, int]:
    return _number(index), _number(term)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= limits.number_max:
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not a text")
    return value
