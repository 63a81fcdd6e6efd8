"""Names and handshake of the protocol: what the maps inside the frames say.

Dialler and acceptor open with

    dialler                     acceptor
    [0, hello, {...}]  ->
                       <-       [0, welcome, {...}]      or [0, error, {...}] and the end
    [0, proof, {...}]  ->                                only between nodes with a secret

then the dialler asks `[id, op, body]`, id > 0, as many at once as it likes, and the acceptor
answers each with `[id, ok, body]` or `[id, error, body]`, in any order. An op that streams is
answered with `[id, push, body]` until `[id, end, body]`, an error, or the dialler's
`[id, cancel, {}]`; `[id, credit, {bytes}]` allows that many more bytes of pushes. `[0, op, body]`
is answered by nobody. Unknown fields are ignored, unknown ops answered with UNSUPPORTED.

Both sides of a node link prove that they hold the cluster's secret: HMAC-SHA-256 over both nonces,
both identities and a label of the side, so that no proof can be reflected or replayed. The secret
authenticates links; it encrypts nothing.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgpack

from .errors import InvalidArgument, RemoteProtocolError, Unauthorized, Unsupported

MAGIC: Final = "lognode"
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
COMPRESSIONS: Final = ("zstd",)
nonce_bytes: Final = 32

# Kinds of frames that are no operation.
HELLO: Final = "hello"
WELCOME: Final = "welcome"
PROOF: Final = "proof"
OK: Final = "ok"
ERROR: Final = "error"
PUSH: Final = "push"
END: Final = "end"
CREDIT: Final = "credit"
CANCEL: Final = "cancel"
ALIVE: Final = "alive"
"""One-way, {}: the acceptor has stopped reading for a while, and has not died."""

# Operations. Bodies are maps; `range` and `generation` name the generation that is asked.
PING: Final = "ping"
"""{} -> {}. Answered by the connection itself."""
METADATA: Final = "metadata"
"""{log: name, start_key?: key, limit?, at_least, nodes?: false} -> {cluster, version, nodes: [{id,
address, http, zone, state}], logs: [{id, name, policy}], ranges: [descriptor + leader: id | nil],
next_key: key | nil}: the ranges of the log from the one on that has `start_key`, or all where they
fit an answer; with `next_key` there are more from that key on. Without `log`, {after?: log id,
limit?, at_least, nodes?: false} -> the same without ranges, the logs with ids above `after`; with
`next: id` there are more above that; of each node also how many `replicas` it has. With `nodes:
false` the nodes are left out."""
RANGES: Final = "ranges"
"""{after?: range id, limit?, at_least} -> {version, ranges: [descriptor + leader], next: id | nil}:
the ranges of all logs with ids above `after`; with `next` there are more above that. {range: id,
at_least} -> the same for that range alone, none when it is gone."""
CREATE_LOG: Final = "create_log"
"""{name, ranges | split_at: [key], replicas, policy..., exist_ok} -> {log}."""
ALTER_LOG: Final = "alter_log"
"""{name, changes: {policy: value | nil}} -> {log, policy}. Doing it twice is doing it once."""
DELETE_LOG: Final = "delete_log"
"""{name} -> {}."""
PRODUCER_OPEN: Final = "producer_open"
"""{name: str | nil} -> {id, epoch}. The same name gives the same id, with a higher epoch."""
PRODUCERS: Final = "producers"
"""{after?: number, limit?} -> {producers: [{name, id, epoch, opened_ms: ms | nil, owner}], next:
number | nil}: the named producers, in the order of their first opening; with `next` there are more
after that. A page may be empty and have a `next`."""
PRODUCER_DELETE: Final = "producer_delete"
"""{name} -> {id, epoch}: the name is forgotten. Its next opening gives the same id and a higher
epoch."""
FENCE: Final = "fence"
"""{range, generation, id, epoch} -> {}: the range refuses lower epochs of the producer from now on.
Sent to every range of the log when a named producer is opened (executions 1.27)."""
PRODUCER_CLOSE: Final = "producer_close"
"""One-way, {range, generation, id}: all its numbers are settled, the row may go."""
PRODUCER_NUMBER: Final = "producer_number"
"""{range, generation, producer, number} -> {applied: bool, seq: int | nil}, linearizable."""
APPEND: Final = "append"
"""{range, generation, batches: [bin], timeout_ms} -> {results: [reply]}, a reply per batch:
{status: ok, first_seq | seqs + duplicates: [position], timestamp_ms, refused?: [position],
actual?: [last seq]} or {status: error, error}. `refused`: records each by itself whose conditions
did not hold."""
TRIM: Final = "trim"
"""{range, generation, keys: [[key, before]]} -> {}: of each key goes what is below the seq
`before`, for at most `removal_keys_max` keys. Doing it twice is doing it once."""
DELETE_KEYS: Final = "delete_keys"
"""As `trim`; a key that has nothing left is deleted until it is appended to again. With the end
of the range as `before`, from `resolve`, a retry takes nothing that was appended meanwhile."""
LEASE: Final = "lease"
"""{range, generation, lease: id, start_key, end_key: key | nil, through, lease_ms, renew?} ->
{end_key, expires_ms}: what is visible up to the seq `through` stays readable for so long, of those
keys that are the range's, from `start_key` to the `end_key` in the answer. The same again renews
it; with `renew` it is not taken anew where it has ended."""
RELEASE: Final = "release"
"""{range, generation, lease} -> {}: on all keys of the range. Doing it twice is doing it once."""

# Reads: {range, generation, ..., consistency, node: id | nil, through: seq | nil, timeout_ms,
# applied?: index} -> {..., applied?: index}. `applied` in a request is the session of prefix reads:
# the replica answers once it has applied that much of this generation (executions 2.19). With
# `as_of?: lease` in a read of entries it is one of what that lease holds. A page is
# {keys: [key] | key, seqs, timestamps, values, headers: {position: map} | nil,
# snapshots: [position] | nil, next, more}.
# `end_key` in an answer about a span: it is one about the keys below that alone. The seqs of ranges
# that were merged have nothing to do with each other, so that the others are asked for by
# themselves, as these were; from the merged range's first seq on there are no others.
LATEST: Final = "latest"
"""{key} -> page of at most one entry."""
COUNT: Final = "count"
"""{key, start, end} -> {count}."""
SCAN: Final = "scan"
"""{key, start, end, limit, bytes, reverse} -> page."""
KEYS: Final = "keys"
"""{prefix, start_after: key | nil, limit} -> {keys}; fewer than `limit`: it has no more."""
READ_SPAN: Final = "read_span"
"""{start_key, end_key | nil, start, limit, bytes} -> page, in the order of seq, with `end_key?`:
the next page of these keys is asked for with that end, the first of the others with this
`start`."""
EXPORT: Final = "export"
"""{start_key, end_key | nil, position: nil | [[[first, end, key, seq]], next], limit, bytes} ->
page, with `position`: where to go on, nil for the end. All entries of the span, of each key in the
order of seq, and otherwise as they lie in files. A position is good at every member, and in the
ranges that follow: bands of seqs from `first` and below `end`, in the order of (key, seq) from
there on, then all seqs from `next` on. `end_key` as in `read_span`; the others are asked for with
the `position` that was asked with."""
RESOLVE: Final = "resolve"
"""{key: key | nil, start: ["ts", ms] | ["tail", n] | "earliest" | "latest" | "snapshot",
end?: seq | nil, start_key?: key, end_key?: key | nil} -> {seq, more?: bool, end_key?: key}. Without
a key `ts` and `earliest` are of the span; with an `end_key` in the answer the seq is not that of
the others. `earliest`: what retention has left of the span begins there or later. `snapshot`: of
the key's newest logical snapshot below `end`; with `more` there is none from `seq` on, and the
search goes on with that as `end`. 1 where there is none at all."""
LAYOUT: Final = "layout"
"""{start_key, end_key | nil} -> {weights: [[key, bytes]]}: about how many bytes, of files and of
what memtables would make, lie from each key on, below the next one. A few hundred rows at most."""
FOLLOW: Final = "follow"
"""{range, generation, keys: {key: seq} | nil, prefix, start_key, end_key, from_seq, credit} ->
pushes {page, caught_up, next, applied, end_key?}: entries of the keys from their seqs, or of the
prefix and span from `from_seq`; with an `end_key`, which only the first push has, of the span up to
there: the others are followed by themselves from that `from_seq`. `next` is the seq after all that
the push covers, or a map of it per key."""
STATUS: Final = "status"
"""{after?: position, limit?} -> the dict of /status.json, or a part of it, and `next`: position |
nil. The first answer has all names; rows of the next ones go behind those that came before."""
RANGE_TRANSFER: Final = "range_transfer"
"""{range, node} -> {leader, changed}."""
RANGE_MOVE: Final = "range_move"
"""{range, from, to} -> {operation, generation, members, version}: begun, shown by metadata of that
version and later."""
RANGE_SPLIT: Final = "range_split"
RANGE_MERGE: Final = "range_merge"
"""{log, at: key} -> {operation, range, generation, new_range, version}: as `range_move`."""
RANGE_RECOVERY: Final = "range_recovery"
"""{range} -> {range, log, start, end, generation, operation, members: [{node, state, answers,
damaged, last_term, last_index, applied, last_seq, last_timestamp_ms}], proposed, refused}: what
there is to recover from, nil where nobody says. Nothing is changed."""
RANGE_RECOVER: Final = "range_recover"
"""{range, from, accept_loss: true} -> {operation, generation, version}: as `range_move`."""
NODE_DRAIN: Final = "node_drain"
"""{node, undo} -> {node, state, replicas, version}: begun, or given up. Doing it twice is doing it
once; `replicas` is what is left there, shown by metadata of that version and later."""
NODE_REMOVE: Final = "node_remove"
"""{node, dead} -> {node, state, replicas, version}. Doing it twice is doing it once."""
HEALTH: Final = "health"
"""{nodes} -> {ok: bool, reasons: [str]}."""

Role = Literal["client", "node"]


@dataclass(frozen=True, slots=True)
class Hello:
    """Who dials. `cluster` and `node` are None while not known."""

    role: Role
    nonce: bytes
    cluster: str | None = None
    node: int | None = None
    incarnation: int = 0
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    compressions: tuple[str, ...] = COMPRESSIONS

    def to_body(self) -> dict[str, Any]:
        """The body of the hello frame."""
        return {
            "magic": MAGIC,
            "versions": [self.version_min, self.version_max],
            "role": self.role,
            "cluster": self.cluster,
            "node": self.node,
            "incarnation": self.incarnation,
            "nonce": self.nonce,
            "compressions": list(self.compressions),
        }

    @classmethod
    def from_body(cls, body: Mapping[Any, Any]) -> "Hello":
        """Raises RemoteProtocolError for a hello that is none."""
        if body.get("magic") != MAGIC:
            raise RemoteProtocolError("this is a lognode listener; the other side speaks otherwise")
        versions, role = body.get("versions"), body.get("role")
        if (
            type(versions) is not list
            or len(versions) != 2
            or set(map(type, versions)) != {int}
            or role not in ("client", "node")
        ):
            raise RemoteProtocolError("hello without versions or role")
        compressions = body.get("compressions") or ()
        return cls(
            role=role,
            nonce=_nonce(body),
            cluster=_field(body, "cluster", str),
            node=_field(body, "node", int),
            incarnation=_field(body, "incarnation", int) or 0,
            version_min=versions[0],
            version_max=versions[1],
            compressions=tuple(name for name in compressions if type(name) is str),
        )

    def agreed_version(self) -> int:
        """The highest version that both sides speak. Raises Unsupported."""
        version = min(self.version_max, VERSION_MAX)
        if version < max(self.version_min, VERSION_MIN):
            raise Unsupported(
                f"the other side speaks protocol versions {self.version_min} to "
                f"{self.version_max}, this one {VERSION_MIN} to {VERSION_MAX}: upgrade the older"
            )
        return version


@dataclass(frozen=True, slots=True)
class Welcome:
    """Who was dialled. `node` is None on a node that has not joined a cluster yet."""

    nonce: bytes
    version: int = VERSION_MAX
    cluster: str | None = None
    node: int | None = None
    proof: bytes | None = None

    def to_body(self) -> dict[str, Any]:
        """The body of the welcome frame."""
        return {
            "version": self.version,
            "cluster": self.cluster,
            "node": self.node,
            "nonce": self.nonce,
            "proof": self.proof,
        }

    @classmethod
    def from_body(cls, body: Mapping[Any, Any]) -> "Welcome":
        """Raises RemoteProtocolError for a welcome that is none."""
        version = body.get("version")
        if type(version) is not int or not VERSION_MIN <= version <= VERSION_MAX:
            raise RemoteProtocolError("welcome of a protocol version that was not offered")
        return cls(
            nonce=_nonce(body),
            version=version,
            cluster=_field(body, "cluster", str),
            node=_field(body, "node", int),
            proof=_field(body, "proof", bytes),
        )


def prove(
    secret: bytes, side: Literal["dialler", "acceptor"], hello: Hello, ours: Welcome
) -> bytes:
    """The proof that `side` holds the secret; of `ours` everything but its proof counts."""
    claims = [
        "lognode/1", side, hello.nonce, ours.nonce, hello.role, hello.cluster, hello.node,
        hello.incarnation, ours.version, ours.cluster, ours.node,
    ]  # fmt: skip
    return hmac.new(secret, msgpack.packb(claims), hashlib.sha256).digest()


def check_proof(
    secret: bytes,
    side: Literal["dialler", "acceptor"],
    hello: Hello,
    welcome: Welcome,
    proof: bytes | None,
) -> None:
    """Raises Unauthorized unless `proof` is that side's."""
    if proof is None:
        raise Unauthorized(
            f"this cluster has a secret and the {side} sent no proof of it: "
            "start every node with the same --secret-file"
        )
    if not hmac.compare_digest(prove(secret, side, hello, welcome), proof):
        raise Unauthorized(f"the {side} holds another secret: compare the --secret-file of both")


def _nonce(body: Mapping[Any, Any]) -> bytes:
    nonce = body.get("nonce")
    if type(nonce) is not bytes or len(nonce) != nonce_bytes:
        raise RemoteProtocolError(f"handshake without a nonce of {nonce_bytes} bytes")
    return nonce


def _field(body: Mapping[Any, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if value is not None and type(value) is not kind:
        raise RemoteProtocolError(f"handshake whose {name} is not of type {kind.__name__}")
    return value


def field(body: Mapping[Any, Any], name: str, *kinds: type) -> Any:
    """A field of a request that must be there and of one of `kinds`. Raises InvalidArgument."""
    value = body.get(name)
    if type(value) not in kinds:
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidArgument(
            f"request whose {name} is {type(value).__name__}, not {expected}", what=name
        )
    return value
