"""Operations between nodes. `raft_messages` describes what the message `raft` carries."""

import random
from collections.abc import Iterator
from typing import Any, Final

from . import limits
from .address import split_address
from .cluster import PRODUCERS_ASKED, PRODUCERS_BYTES, PRODUCERS_TOLD
from .common import EMPTY, GROUP, KEY, LOG_NAME, REASON, SMALL_BYTES, TOLD_REASON, WHOLE_BYTES
from .kinds import (
    Array,
    Binary,
    Fault,
    Flag,
    Integer,
    Later,
    Number,
    Opaque,
    Row,
    SecretText,
    Table,
    Text,
)
from .levels import LEVEL_MIN, LEVELS_END
from .operation import Body, Operation, Permission, Retry, Sender, Weight
from .raft_messages import FINGERPRINT, MESSAGE, PING, READ_ANSWERS, READ_ROUNDS
from .record import Optional, Record, Shape


class _AddressText(Text):
    """`host:port` that a node can dial; see `client.protocol.address`."""

    def check(self, value: Any, name: str) -> str:
        checked = super().check(value, name)
        split_address(checked, name)
        return checked

    def text(self) -> str:
        return (
            "`host:port`: a DNS name, an IPv4 address or an IPv6 address in brackets, and a port "
            "of 1 to 65,535"
        )

    def sample(self, rng: random.Random) -> str:
        return f"node{rng.randrange(100)}.example:{rng.randint(1, 65_535)}"

    def beyond(self) -> Iterator[Fault]:
        yield from super().beyond()
        for text in ("a..b:4600", "x" * 64 + ":1", "h:0", "h:65536", "h"):
            yield "no address", text


ADDRESS: Final = _AddressText(limits.address_bytes_max, 3)
ZONE: Final = Text(limits.zone_bytes_max)
_LEVEL: Final = Integer(LEVEL_MIN, LEVELS_END - 1)
_CONTENT_ID: Final = Text(64, 1)
_GROUP_ROW: Final = Row(range=Integer(), generation=Integer())
LEADER: Final = Row(range=Integer(), generation=Integer(), term=Integer(), node=Integer())
_LEADERS: Final = Later(Array(LEADER, limits.rows_max), "node.metadata.view")
"""Rows instead of a map, because a decoder refuses large maps with number keys (see `packed`). To
check 65,536 rows takes 25 to 60 ms of processor time, so that the view does so in steps."""
_DAMAGE: Final = Array(
    Row(range=Integer(), generation=Integer(), reason=TOLD_REASON), limits.told_rows_max
)
_DAMAGE_BY_NODE: Final = Array(Row(node=Integer(), replicas=_DAMAGE), limits.nodes_max)
_LARGE: Final = Array(
    Row(range=Integer(), generation=Integer(), size=Integer(), at=KEY), limits.told_rows_max
)
_SMALL: Final = Array(
    Row(range=Integer(), generation=Integer(), size=Integer(), rate=Integer()),
    limits.told_rows_max,
)
_WISHES: Final = Array(
    Row(range=Integer(), node=Integer(), seconds_ago=Number(0, limits.lead_rests_s)),
    limits.told_rows_max,
)
LINEAGE: Final = Row(
    range=Integer(), generation=Integer(), final_index=Integer(), final_term=Integer(),
    next_seq=Integer(), last_timestamp_ms=Integer(), state_hash=Binary(64),
)  # fmt: skip
EFFECTS: Final = Binary(64)
_IMAGE_PAGE: Final = Record({
    "begins": Flag(),
    "full": Flag(),
    "generation": Integer(),
    "version": Integer(),
    "buckets": Array(
        Row(table=Text(32, 1), number=Integer(), data=Binary(limits.bucket_bytes_max)),
        limits.image_page_buckets_max,
    ),
    "next": Optional(Row(token=Integer(), tick=Integer())),
})  # fmt: skip
"""A page of the metadata between nodes. `begins`: this is the first page, so earlier pages are
obsolete. `full`: the pages have everything, not only the changes. A bucket is packed, as
`partitions.buckets` reads it."""
_IMAGE_PAGE_BYTES: Final = limits.image_page_bytes + limits.bucket_bytes_max + 64 * limits.KIB


def _between_nodes(
    name: str,
    number: int,
    about: str,
    request: Shape,
    answer: Shape | None,
    weight: int | Weight = SMALL_BYTES,
    retry: Retry = Retry.SAFE,
) -> Operation:
    return Operation(
        name, number, about, Sender.PEER, Permission.PEER, retry, Record(request),
        None if answer is None else Record(answer, loose=True), weight,
    )  # fmt: skip


def _piece_bytes(body: Body) -> int:
    return int(body["bytes"]) + limits.KIB


BOOTSTRAP: Final = Operation(
    "bootstrap", 96, "Name the nodes with which this node wants to found a cluster.",
    Sender.STRANGER, Permission.PEER, Retry.SAFE, EMPTY,
    Record({
        "members": Array(ADDRESS, limits.nodes_max),
        "joins": Optional(Text(256)),
    }, loose=True),
    limits.nodes_max * 512,
)  # fmt: skip
REGISTRATION: Final[Shape] = {
    "node": Optional(Integer()),
    "incarnation": Integer(),
    "boot": Integer(),
    "process": Integer(),
    "address": ADDRESS,
    "peer": Optional(ADDRESS, ""),
    "http": Optional(ADDRESS, ""),
    "zone": Optional(ZONE, ""),
    "levels": Optional(Row(low=_LEVEL, high=_LEVEL)),
}
"""A node's description of itself."""
JOIN: Final = Operation(
    "join", 97,
    "Register a node and return its id. The node then asks for the metadata at `peer`, "
    "where the node that answers listens for other nodes.",
    Sender.STRANGER, Permission.PEER, Retry.IDEMPOTENT,
    Record({**REGISTRATION, "invitation": Optional(SecretText(256, 1))}),
    Record({"cluster": Text(256), "node": Integer(), "peer": ADDRESS}, loose=True), SMALL_BYTES,
)  # fmt: skip
RAFT: Final = _between_nodes(
    "raft", 98,
    "Carry messages of all groups, rounds of read confirmations and answers to rounds, the boot "
    "and clock of the sender, and its ping. All entries of a frame, the groups that its rounds ask "
    f"about and the numbers of its answers are at most {limits.raft_parts_max:,} together.",
    {
        "messages": Optional(Array(
            Row(range=Integer(), generation=Integer(), fingerprint=FINGERPRINT,
                message=Later(MESSAGE, "raft.messages")),
            limits.raft_items_max,
        )),
        "reads": Optional(READ_ROUNDS),
        "answers": Optional(READ_ANSWERS),
        "boot": Integer(),
        "process": Integer(),
        "clock": Integer(),
        "ping": PING,
    },
    None, 0,
)  # fmt: skip
_PROGRAM: Final = {
    "boot": Integer(), "process": Integer(), "low": _LEVEL, "high": _LEVEL, "version": Text(64),
    "noted": _LEVEL,
}  # fmt: skip
_STORED: Final = Table(LOG_NAME, Integer(), limits.quotas_max)
"""The number of tenants with a quota of stored bytes."""
HEARTBEAT: Final = _between_nodes(
    "heartbeat", 99,
    "Tell the controller's leader what this node has and leads, and wait for newer metadata.",
    {
        "generation": Integer(),
        "version": Integer(),
        "leaders": _LEADERS,
        "seen": Row(generation=Integer(), term=Integer(), number=Integer()),
        "damaged": Optional(_DAMAGE, ()),
        "halted": Optional(_DAMAGE, ()),
        "disk_free": Optional(Integer()),
        "leads_left": Optional(Integer()),
        "wishes": Optional(_WISHES, ()),
        "large": Optional(_LARGE, ()),
        "busy": Optional(_LARGE, ()),
        "small": Optional(_SMALL, ()),
        "insecure": Optional(Flag()),
        "stored": Optional(_STORED),
        "program": Optional(Row(**_PROGRAM)),
        "kafka": Optional(ADDRESS),
    },
    {
        "page": Optional(_IMAGE_PAGE),
        "leaders": _LEADERS,
        "seen": Row(generation=Integer(), term=Integer(), number=Integer()),
        "damaged": Optional(_DAMAGE_BY_NODE, ()),
        "halted": Optional(_DAMAGE_BY_NODE, ()),
        "short": Optional(Array(Row(node=Integer(), bytes_free=Integer()), limits.nodes_max), ()),
        "insecure": Optional(Array(Row(node=Integer(), insecure=Flag()), limits.nodes_max), ()),
        "stored": Optional(_STORED),
        "programs": Optional(Array(Row(node=Integer(), **_PROGRAM), limits.nodes_max), ()),
        "kafka": Optional(Array(Row(node=Integer(), address=ADDRESS), limits.nodes_max), ()),
        "alive": Optional(Array(Integer(), limits.nodes_max)),
    },
    WHOLE_BYTES,
)  # fmt: skip
IMAGE_PAGE: Final = _between_nodes(
    "image_page", 114,
    "Return a page of the changes of the metadata since a version. `newest`: the metadata "
    "of the controller's leader, confirmed by a quorum. `known`: the metadata that this "
    "node knows; nil if it is not newer.",
    {
        "source": Text(0, among=("newest", "known")),
        "since": Row(generation=Integer(), version=Integer()),
        "after": Optional(Row(token=Integer(), tick=Integer())),
    },
    {"page": Optional(_IMAGE_PAGE)},
    _IMAGE_PAGE_BYTES,
)  # fmt: skip
PRODUCERS_PAGE: Final = _between_nodes(
    "producers_page", 115, "Return a page of the named producers, as the controller's leader.",
    PRODUCERS_ASKED, PRODUCERS_TOLD, PRODUCERS_BYTES,
)  # fmt: skip
COMMAND: Final = _between_nodes(
    "command", 102, "Have the controller's leader commit a metadata command.",
    {"command": Opaque("partitions.commands")}, {}, retry=Retry.ONCE,
)  # fmt: skip
REPORT: Final = _between_nodes(
    "report", 103, "Tell the controller's leader the progress of an operation on a range.",
    {
        "operation": Integer(),
        "kind": Text(0, among=("copied", "sealed", "prepared", "installed")),
        "lineage": Optional(LINEAGE),
        "effects": Optional(EFFECTS, b""),
    },
    {}, retry=Retry.IDEMPOTENT,
)  # fmt: skip
LOADS: Final = _between_nodes(
    "loads", 104, "Return the size and the rates of the replicas on this node.",
    {}, {"loads": Opaque("node.loads", list)}, WHOLE_BYTES,
)  # fmt: skip
REPLICA_END: Final = _between_nodes(
    "replica_end", 105, "Return the last positions of a replica's log and state.",
    GROUP, {"held": Optional(Opaque("node.recoveries"))},
)  # fmt: skip
CONTROLLER_INSTALL: Final = _between_nodes(
    "controller_install", 106,
    "Send a page of the metadata. With the last page, the receiver begins a generation of "
    "the controller, or takes its base if entries are missing. `done`: the receiver wants "
    "no further page.",
    {
        "descriptor": Opaque("partitions.model"),
        "page": _IMAGE_PAGE,
        "applied": Row(index=Integer(), term=Integer()),
    },
    {"done": Flag()}, retry=Retry.IDEMPOTENT,
)  # fmt: skip
TAKE_OVER: Final = _between_nodes(
    "take_over", 107, "Stand for election in groups whose leader asks for it.",
    {"groups": Array(_GROUP_ROW, limits.taken_over_max)}, {}, retry=Retry.IDEMPOTENT,
)  # fmt: skip
HAND_OVER: Final = _between_nodes(
    "hand_over", 108, "Have another member lead a group that this node leads.",
    {**GROUP, "node": Integer()}, {"leader": Integer(), "changed": Flag()},
)  # fmt: skip
GIVE_LEAD: Final = _between_nodes(
    "give_lead", 109, "Try once to have another member lead a group that this node leads.",
    {**GROUP, "node": Integer(), "why": REASON}, {"given": Flag()},
)  # fmt: skip
BASE: Final = _between_nodes(
    "base", 110,
    "Return the first piece of the durable base of a replica, the base's number and size, and how "
    "many bytes are in memory behind it.",
    GROUP,
    {
        "base": Integer(),
        "bytes": Integer(0, limits.base_bytes_max),
        "data": Binary(limits.base_chunk_bytes),
        "tail_bytes": Optional(Integer(), 0),
    },
    limits.base_chunk_bytes + limits.KIB,
)  # fmt: skip
BASE_PIECE: Final = _between_nodes(
    "base_piece", 113, "Return a later piece of the base; the piece is empty at the end.",
    {**GROUP, "base": Integer(), "offset": Integer(0, limits.base_bytes_max)},
    {"data": Binary(limits.base_chunk_bytes)},
    limits.base_chunk_bytes + limits.KIB,
)  # fmt: skip
FILE: Final = _between_nodes(
    "file", 111, "Return bytes of a segment file from `offset` on; no bytes at the end.",
    {
        **GROUP,
        "id": _CONTENT_ID,
        "offset": Integer(0, 1 << 62),
        "bytes": Integer(1, limits.base_chunk_bytes),
    },
    {"data": Binary(limits.base_chunk_bytes)}, _piece_bytes,
)  # fmt: skip
FILE_CHECK: Final = _between_nodes(
    "file_check", 112, "Say whether the content of the segment file on this node matches its name.",
    {**GROUP, "id": _CONTENT_ID}, {"sound": Flag()},
)  # fmt: skip

PEERS: Final = (
    BOOTSTRAP, JOIN, RAFT, HEARTBEAT, IMAGE_PAGE, COMMAND, PRODUCERS_PAGE, REPORT, LOADS,
    REPLICA_END, CONTROLLER_INSTALL, TAKE_OVER, HAND_OVER, GIVE_LEAD, BASE, BASE_PIECE, FILE,
    FILE_CHECK,
)  # fmt: skip
