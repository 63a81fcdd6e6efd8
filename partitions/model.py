"""The records of the metadata, as immutable values. Their wire form is `to_wire`/`from_wire`.

Keys are ordered as bytes. A span is half-open; with `end` None it has no end.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, NamedTuple, Self

import msgpack

from .policy import Policy

CONTROLLER_RANGE = 0


class Span(NamedTuple):
    """A half-open span of keys."""

    start: bytes
    end: bytes | None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.start <= key and (self.end is None or key < self.end)

    def covers(self, other: "Span") -> bool:
        """Whether this span contains all keys of the other span."""
        return self.start <= other.start and (
            self.end is None or (other.end is not None and other.end <= self.end)
        )

    def overlaps(self, other: "Span") -> bool:
        """Whether any key is in both spans."""
        return (other.end is None or self.start < other.end) and (
            self.end is None or other.start < self.end
        )


class Lineage(NamedTuple):
    """The sealed parent that a generation's state comes from, identified exactly (x6)."""

    range_id: int
    generation: int
    final_index: int
    final_term: int
    next_seq: int
    last_timestamp_ms: int
    state_hash: bytes


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One range at one generation."""

    range_id: int
    generation: int
    log_id: int
    span: Span
    members: tuple[int, ...]
    lineage: tuple[Lineage, ...] = ()
    state: str = "ACTIVE"
    operation: int = 0
    """The operation that holds the range, or 0."""
    met_at: tuple[bytes, ...] = ()
    """For a generation with several parents, which were neighbours: the first key of each parent
    except the first, in the order of the lineage."""
    effects: tuple[bytes, ...] = ()
    """For each parent, in the order of the lineage, the hash of what its entries did, as most of
    its members report it; b"" when unknown. A controller of an older version keeps no hashes."""

    def fingerprint(self) -> bytes:
        """Return what both sides of a group's message must agree on: above all members and lineage.

        The state, the operation and the effects are left out (x2.24). Where the parents met follows
        from the lineage.
        """
        told = (self.range_id, self.generation, self.log_id, self.span, self.members, self.lineage)
        packed: bytes = msgpack.packb(told)
        return hashlib.blake2b(packed, digest_size=8).digest()

    def to_wire(self) -> dict[str, Any]:
        effects = {"effects": list(self.effects)} if any(self.effects) else {}
        return {
            "id": self.range_id,
            "generation": self.generation,
            "log": self.log_id,
            "start": self.span.start,
            "end": self.span.end,
            "members": list(self.members),
            "lineage": [list(parent) for parent in self.lineage],
            "state": self.state,
            "operation": self.operation,
            "met_at": list(self.met_at),
            **effects,
        }

    @classmethod
    def from_wire(cls, body: dict[str, Any]) -> "Descriptor":
        return cls(
            range_id=body["id"],
            generation=body["generation"],
            log_id=body["log"],
            span=Span(body["start"], body["end"]),
            members=tuple(body["members"]),
            lineage=tuple(Lineage(*parent) for parent in body.get("lineage", ())),
            state=body.get("state", "ACTIVE"),
            operation=body.get("operation", 0),
            met_at=tuple(body.get("met_at", ())),
            effects=tuple(body.get("effects", ())),
        )

    def ends(self) -> list[tuple[Lineage, bytes]]:
        """Return the parents, each with the hash of what its entries did."""
        unknown = [b""] * len(self.lineage)
        return list(zip(self.lineage, [*self.effects, *unknown], strict=False))

    def spans_of_parents(self) -> list[Span]:
        """Return each parent's part of these keys, in the order of the lineage."""
        starts = (self.span.start, *self.met_at)
        return list(map(Span, starts, (*self.met_at, self.span.end)))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as registered. `state`: JOINING, ACTIVE, DRAINING, DEAD, REMOVED."""

    node_id: int
    address: str
    http: str
    zone: str
    incarnation: int
    boot: int
    state: str
    process: int = 0
    """Random for each start: distinguishes two processes of the same boot, such as those of copied
    directories."""
    key: str = ""
    """SHA-256 of the public key of the node's TLS certificate, in hexadecimal. Only the holder of
    that key is accepted as this node. Empty: the node has never registered over TLS."""
    peer: str = ""
    """The address that other nodes dial; empty in records written before nodes had a port for
    peers."""
    invite: str = ""
    """The id of the invitation that the node joined with; empty without an invitation."""

    @property
    def peer_address(self) -> str:
        """The address that other nodes dial.

        Without a known port for peers, they dial the port for clients, which names the other.
        """
        return self.peer or self.address

    def to_image(self) -> dict[str, Any]:
        """Return the record for an image.

        Empty values are left out, as older versions wrote them.
        """
        body = {name: getattr(self, name) for name in _NODE_FIELDS}
        for name in ("key", "peer", "invite"):
            if not body[name]:
                del body[name]
        return body


_NODE_FIELDS: Final = tuple(each.name for each in fields(NodeRecord))
"""The fields that an image has of each record: `asdict` takes ten times as long, and copies values
that an image may share."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log: its name and its policy."""

    log_id: int
    name: str
    policy: Policy = field(default_factory=Policy)
    creation: bytes = b""
    """The identity of the log's creation, see `creations`; empty where the client gave none."""
    hierarchy: bytes = b""
    """The separator of the levels of keys (`client.protocol.patterns`); empty: no hierarchy."""

    def to_image(self) -> dict[str, Any]:
        """Return the record as msgpack values.

        Without a creation and a hierarchy, the format is that of older versions.
        """
        body: dict[str, Any] = {
            "log_id": self.log_id, "name": self.name, "policy": self.policy.to_image(),
        }  # fmt: skip
        if self.creation:
            body["creation"] = self.creation
        if self.hierarchy:
            body["hierarchy"] = self.hierarchy
        return body

    @classmethod
    def from_image(cls, body: Mapping[str, Any]) -> Self:
        """Undo `to_image`. Raises KeyError, TypeError, ValueError."""
        return cls(
            int(body["log_id"]), body["name"], Policy(**body["policy"]),
            body.get("creation", b""), body.get("hierarchy", b""),
        )  # fmt: skip


class Cause(NamedTuple):
    """What apply adds to the reason of an operation; `reasons` has the codes and their values."""

    code: int
    values: tuple[int | bytes, ...] = ()


def causes_of(told: Iterable[Any]) -> tuple[Cause, ...]:
    """Undo the packing of causes. Raises TypeError or ValueError."""
    return tuple(Cause(code, tuple(values)) for code, values in told)


class LastOperation(NamedTuple):
    """The last operation that ended on a range, kept after the operation is gone."""

    operation_id: int
    """0 for a change of the controller's members, which has no operation."""
    kind: str
    reason: str
    """Why the operation was planned."""
    outcome: str
    """DONE, or ABORTED: the range is unchanged."""
    ended_at_ms: int
    """The wall clock of the controller's leader at the end; 0 when not recorded."""
    causes: tuple[Cause, ...] = ()
    """What apply added to the reason."""

    def to_image(self) -> list[Any]:
        """Return the record as msgpack values. Without causes, as older versions wrote it."""
        return list(self if self.causes else self[:-1])

    @classmethod
    def from_image(cls, told: Sequence[Any]) -> Self:
        """Undo `to_image`. Raises TypeError or ValueError."""
        operation_id, kind, reason, outcome, ended_at_ms, *more = told
        return cls(operation_id, kind, reason, outcome, ended_at_ms, *map(causes_of, more))


@dataclass(frozen=True, slots=True)
class Output:
    """A range that an operation is to create."""

    range_id: int
    generation: int
    span: Span
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of generations under way (docs/design/ranges.md#seal-decide-install)."""

    operation_id: int
    kind: str
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[Output, ...]
    phase: str
    reason: str = ""
    installed: tuple[int, ...] = ()
    """Nodes that have made their outputs durable."""
    causes: tuple[Cause, ...] = ()
    """What apply added to the reason."""

    def to_image(self) -> dict[str, Any]:
        """Return the record as msgpack values. Without causes, as older versions wrote it."""
        body = asdict(self)
        if not self.causes:
            del body["causes"]
        return body

    @classmethod
    def from_image(cls, body: dict[str, Any]) -> "Operation":
        """Undo `to_image`. Raises KeyError, TypeError, ValueError."""
        outputs = tuple(
            Output(o["range_id"], o["generation"], Span(*o["span"]), tuple(o["members"]))
            for o in body["outputs"]
        )
        return cls(
            body["operation_id"], body["kind"], tuple((r, g) for r, g in body["inputs"]), outputs,
            body["phase"], body["reason"], tuple(body["installed"]),
            causes_of(body.get("causes", ())),
        )  # fmt: skip

    @property
    def range_ids(self) -> set[int]:
        """Return the ranges that the operation takes, and the ranges that it is to create."""
        inputs = {range_id for range_id, _ in self.inputs}
        return inputs | {output.range_id for output in self.outputs}

    @property
    def is_held_by_majorities(self) -> bool:
        """Whether a majority of the members of every output has installed it."""
        return all(
            2 * len(set(output.members) & set(self.installed)) > len(output.members)
            for output in self.outputs
        )
