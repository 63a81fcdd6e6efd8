"""Targets of the fuzzers: each decoder of bytes from the network, with valid inputs.

A fuzzer calls a target with bytes. The target returns a text that is the same for all inputs that
went the same way. It raises AssertionError where it took an input and the result is wrong. An
exception that the decoder does not document passes through, so the fuzzer finds it.
"""

import asyncio
import contextlib
import random
import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import kafka_wire
import msgpack
from metadata_log import Controller

from lognode.client import invitation, tokens
from lognode.client.cluster import Cluster
from lognode.client.pages import read_page
from lognode.client.protocol import (
    cluster,
    errors,
    frame,
    frames,
    limits,
    raft_messages,
    reads,
    wire,
)
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.chunks import Chunk, Chunks, of_page, unpacked
from lognode.client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
)
from lognode.client.protocol.frame import Broken, Decoder, Frame
from lognode.client.protocol.kinds import Array, Kind
from lognode.client.protocol.peers import RAFT
from lognode.client.protocol.records import check_limits, decode_batch, encode_batch
from lognode.node.kafka import admin_requests, group_requests
from lognode.node.kafka import api as kafka_api
from lognode.node.kafka import batches as kafka_batches
from lognode.node.kafka import requests as kafka_requests
from lognode.node.kafka import sasl as kafka_sasl
from lognode.node.kafka.compression import unpacked as unpacked_records
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.wire import Malformed, Reader
from lognode.partitions import buckets, grants
from lognode.partitions import commands as metadata_commands
from lognode.partitions.metadata import Metadata
from lognode.partitions.metadata_state import MetadataState
from lognode.raft import messages
from lognode.raft.liveness import Ping
from lognode.raft.messages import Ack, Append, PreVoteRequest, Vote
from lognode.raft.read_rounds import ReadRounds
from lognode.statemachine import commands
from lognode.statemachine.admission import admit
from lognode.statemachine.groups import forms as group_forms
from lognode.statemachine.range_state import Ahead

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"


class Target(NamedTuple):
    """A decoder and its valid inputs."""

    run: Callable[[bytes], str]
    seeds: Callable[[], list[bytes]]


def _told(error: Exception) -> str:
    """The error without what differs from input to input."""
    return re.sub(r"[0-9]+|'.*'|b\".*\"", "_", f"{type(error).__name__}: {error}")[:80]


# Frames.


def _events(pieces: list[bytes]) -> list[Any]:
    decoder = Decoder()
    return [
        event if isinstance(event, Frame) else str(event.error)
        for piece in pieces
        for event in decoder.feed(piece)
    ]


def run_payload(data: bytes) -> str:
    """The payload of a frame whose checksum is right."""
    stream = struct.pack(">II", len(data), google_crc32c.value(data)) + data
    (event,) = Decoder().feed(stream) or [None]
    assert event is not None
    if isinstance(event, Broken):
        assert type(event.error) is RemoteProtocolError
        return re.sub(r"[0-9]+", "_", str(event.error))[:80]
    assert len(data) < event.weight <= len(data) + frame.HEADER.size + limits.frame_memory_max
    assert type(event.body) is dict
    assert event.request_id >= 0
    return "taken"


def run_stream(data: bytes) -> str:
    """A stream of frames: in one piece as in many."""
    step = 1 + len(data) // (2 + len(data) % 40)
    whole = _events([data])
    parts = _events([data[at : at + step] for at in range(0, len(data), step)])
    assert repr(whole) == repr(parts)
    assert all(isinstance(event, Frame) for event in whole[:-1])
    return "broken" if whole and not isinstance(whole[-1], Frame) else "taken"


def _messages() -> list[tuple[int, int, Any]]:
    hello = wire.Hello(role="node", nonce=bytes(32), cluster="c", node=1, incarnation=5)
    append = messages.encode(Append(1, 2, 3, 1, 3, [[1, b"\x00abc"], [1, b"\x01"]]))
    raft = {
        "messages": [[1, 1, b"fingerprint", append]], "reads": [[1, 2, [[1, 1, b"f", 5], None]]],
        "answers": [[1, 2, [5, None]]], "boot": 1, "process": 2, "clock": 1 << 40,
        "ping": [1, 2, [[1, 1]]],
    }  # fmt: skip
    group = {"range": 1, "generation": 1}
    return [
        (0, frames.HELLO, hello.to_body()),
        (0, frames.WELCOME, wire.Welcome(nonce=bytes(32), cluster="c", node=1).to_body()),
        (1, frames.PING, {}),
        (2, APPEND.number, {**group, "batches": batches()[:2], "timeout_ms": 1}),
        (3, reads.FOLLOW.number, {**group, "keys": {b"k": 1}, "credit": 1 << 20}),
        (4, frames.OK, pages()[0]),
        (5, frames.ERROR, errors.to_wire(errors.Overloaded("full", retry_after=0.5))),
        (0, RAFT.number, raft),
        (6, frames.OK, {"seqs": list(range(300)), "more": [[[[]]], {1: {2: {}}}, [None] * 40]}),
    ]


# Batches.


def batches() -> list[bytes]:
    """Valid ones, of all forms."""
    keys, values = [b"a", b"b", b"c"], [b"1", None, b"3" * 40]
    columns: dict[str, Any] = {"producer": 7, "epoch": 1, "low": 1}
    many = [b"key-%d" % n for n in range(60)]
    return [
        encode_batch(keys, values, numbers=1, **columns),
        encode_batch(keys, values, numbers=[1, 5, 9], prevs=[0, 1, 0], atomic=True, **columns),
        encode_batch(keys, values, numbers=1, expects=[-1, 0, 5], each=True, **columns),
        encode_batch(keys, values, numbers=1, snapshots=[0, 2], **columns),
        encode_batch(keys, values, numbers=1, headers=[None, {}, {b"a": b"b"}], **columns),
        encode_batch(many, [b"value " * 20] * 60, numbers=1, **columns),
        encode_batch(many, [b"v" * 60] * 60, numbers=list(range(1, 61)), compress=False, **columns),
    ]


def run_batch(data: bytes) -> str:
    """A batch, as a member that applies it, a leader and a reader see it."""
    try:
        batch = decode_batch(data)
    except CorruptData as error:
        return _told(error)
    assert batch.count == len(batch.keys) == len(batch.numbers)
    assert set(map(type, batch.keys)) <= {bytes}
    assert batch.values_size <= limits.values_bytes_max
    told = []
    for column in (batch.values, batch.headers):
        try:
            found = column()
            assert found is None or len(found) == batch.count
        except CorruptData as error:
            told.append(_told(error))
    try:
        check_limits(batch)
    except LognodeError as error:
        told.append(_told(error))
    else:
        assert not told, "a leader takes what cannot be read"
    refusal: LognodeError | None = None
    try:
        admit(data, b"", None)
    except LognodeError as error:
        refusal = error
    assert refusal is None or refusal.outcome == "not_applied"
    told.append("taken" if refusal is None else _told(refusal))
    return "; ".join(told)


# What a client reads.


def pages() -> list[dict[str, Any]]:
    """Pages of entries, of one key and of several."""
    page = {
        "keys": [b"a", b"b"], "seqs": [1, 2], "timestamps": [5, 6], "values": [b"v", None],
        "headers": {1: {b"n": b"h"}}, "snapshots": [0], "next": 3, "more": True, "applied": 9,
    }  # fmt: skip
    return [page, {**page, "keys": b"a", "headers": None, "snapshots": None}]


def chunks() -> list[list[Any]]:
    """Entries as they travel in an export."""
    chunk = Chunk.of(
        [b"a", b"bb", b"bb"], [1, 2, 3], [5, 5, 6], [None, b"", b"x"], {1: {b"n": b"h"}}, [1]
    )
    packed = chunk._replace(
        key_lengths=struct.pack("<HH", 1, 2), repeats=struct.pack("<II", 1, 2), keys=b"abb"
    )
    return [list(chunk), list(packed)]


def _object(data: bytes) -> Any:
    """What a frame has in it; ValueError where it would not be taken."""
    stream = struct.pack(">II", len(data), google_crc32c.value(data)) + data
    (event,) = Decoder().feed(stream)
    if isinstance(event, Broken):
        raise ValueError("no frame")
    return event.body.get("x")


def _reader(read: Callable[[Any], str]) -> Callable[[bytes], str]:
    """A target that is given what `x` is in the body of a frame."""

    def run(data: bytes) -> str:
        try:
            value = _object(data)
        except ValueError as error:
            return str(error)
        try:
            return read(value)
        except RemoteProtocolError as error:
            return _told(error)

    return run


def framed(*values: Any) -> list[bytes]:
    """Payloads whose body has each of the values as `x`."""
    return [msgpack.packb((1, frames.OK, {"x": value})) for value in values]


def _read_chunks(value: Any) -> str:
    answer = reads.EXPORT.check_answer({"chunks": value})
    page, found = unpacked(answer), of_page(answer)
    assert sum(each.rows for each in found) == len(page["keys"]) == len(page["values"])
    joined = msgpack.unpackb(b"".join(Chunks(found).pieces()), strict_map_key=False)
    assert sum(rows for rows, *_ in joined) == len(page["seqs"])
    return "taken"


def _read_page(value: Any) -> str:
    found = read_page(reads.SCAN.check_answer(value))
    assert all(type(each.key) is bytes and type(each.seq) is int for each in found.entries)
    return "taken"


def _read_hello(value: Any) -> str:
    body = value if isinstance(value, dict) else {}
    told = []
    for parse in (wire.Hello.from_body, wire.Welcome.from_body):
        try:
            found = parse(body)
            if isinstance(found, wire.Hello):
                found.agreed_version()
                wire.prove(b"secret", "dialler", found, wire.Welcome(nonce=bytes(32)))
            told.append("taken")
        except LognodeError as error:
            told.append(_told(error))
    return "; ".join(told)


def _read_error(value: Any) -> str:
    error = errors.from_wire(value)
    assert len(str(error)) <= errors.message_chars_max
    again = errors.from_wire(errors.to_wire(error))
    assert (type(again), again.outcome) == (type(error), error.outcome)
    return f"{type(error).__name__} {error.outcome}"


def _read_metadata(value: Any) -> str:
    client = Cluster([])
    client.log("orders")

    async def learn() -> None:
        client._learn(None, cluster.METADATA.check_answer(value))

    _loop().run_until_complete(learn())
    return f"{len(client.nodes)} nodes, {len(client.log('orders').table)} ranges"


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


METADATA = {
    "cluster": "c", "version": 5,
    "nodes": [{"id": 1, "address": "h:1", "state": "ACTIVE"},
              {"id": 2, "address": "h:2", "state": "REMOVED"}],
    "logs": [{"id": 1, "name": "orders", "policy": {}}],
    "ranges": [
        {"id": 1, "generation": 1, "log": 1, "start": b"", "end": b"m", "members": [1, 2]},
        {"id": 2, "generation": 1, "log": 1, "start": b"m", "end": None, "members": [1],
         "leader": 1},
    ],
}  # fmt: skip


def _read_image(value: Any) -> str:
    """The image of the metadata, which nodes give each other."""
    try:
        Metadata.from_image(value if isinstance(value, dict) else {})
    except CorruptData as error:
        return _told(error)
    return "taken"


def _images() -> list[bytes]:
    controller = Controller().nodes(3)
    early = controller.metadata.image()
    controller.do("create_log", name="orders", split_at=[b"m"])
    controller.do("open_producer", name="ours")
    controller.do("split_range", log="orders", at=b"f")
    return framed(early, controller.metadata.image())


_TABLES = MetadataState()


def _read_bucket(value: Any) -> str:
    """A bucket of the metadata, which nodes give each other in pages."""
    name, number, data = value if isinstance(value, list) and len(value) == 3 else ("", 0, b"")
    try:
        buckets.read(_TABLES, name, number, data)
    except CorruptData as error:
        return _told(error)
    return "taken"


def _buckets() -> list[bytes]:
    controller = Controller().nodes(3)
    controller.do("create_log", name="orders", split_at=[b"m"])
    controller.do("split_range", log="orders", at=b"f")
    state = controller.metadata
    changed = [bucket for _, bucket in state.changes.after(0)]
    return framed(*([*bucket, buckets.pack(state, bucket)] for bucket in changed))


# What shows who somebody is.

_GRANT_KEY = b"k" * grants.KEY_BYTES


def run_credential(data: bytes) -> str:
    """A token, an invitation, and a grant of producer ids, of which each is a text or bytes."""
    text, told = data.decode("utf-8", "replace"), []
    for decode in (_read_token, _read_invitation, lambda _: _read_grant(data)):
        try:
            told.append(decode(text))
        except LognodeError as error:
            told.append(_refused(text, error))
    return "; ".join(told)


def _refused(text: str, error: LognodeError) -> str:
    assert len(str(error)) <= errors.message_chars_max
    assert len(text) < 40 or text not in str(error), "the error repeats a secret"
    return _told(error)


def _read_token(text: str) -> str:
    assert tokens.is_id(tokens.id_of(text))
    return "token taken"


def _read_invitation(text: str) -> str:
    found = invitation.parse(text)
    assert found.text() == text.strip()
    return "invitation taken"


def _read_grant(data: bytes) -> str:
    granted = grants.granted(_GRANT_KEY, data, "token:a")
    assert data == grants.grant(_GRANT_KEY, granted.start, len(granted), "token:a")
    return "grant taken"


def _credentials() -> list[bytes]:
    token = f"{'0a' * 8}.{'b' * 64}"
    invited = [invitation.Invitation(token, "c" * 32, ca) for ca in ("d" * 64, invitation.NO_CA)]
    return [token.encode(), *(each.text().encode() for each in invited),
            grants.grant(_GRANT_KEY, 5, 7, "token:a")]  # fmt: skip


# What members say to each other.


def run_command(data: bytes) -> str:
    """A Raft entry of a range."""
    ahead = Ahead.of(data)
    try:
        command = commands.decode(data)
    except CorruptData as error:
        assert isinstance(ahead.command, CorruptData)
        return _told(error)
    return "no-op" if command is None else f"kind {command.kind}"[:8]


def run_metadata_command(data: bytes) -> str:
    """A Raft entry of the controller."""
    try:
        command = metadata_commands.decode(data)
    except CorruptData as error:
        return _told(error)
    return "no-op" if command is None else "taken"


def _read_raft(value: Any) -> str:
    told = []
    rounds = ReadRounds(clock=lambda: 0.0, retry_s=1.0, answerer=lambda *_: 5)
    readers: list[tuple[Kind, Callable[[Any], Any]]] = [
        (Array(raft_messages.MESSAGE, 1), lambda found: messages.decode(found[0])),
        (raft_messages.PING, Ping.from_wire),
        (raft_messages.READ_ROUNDS.kind, lambda found: rounds.answer(1, found)),
        (raft_messages.READ_ANSWERS.kind, lambda found: rounds.answered(1, found)),
    ]
    with contextlib.suppress(RemoteProtocolError):
        messages.decode(value)  # of a frame, whose inside nobody has checked
    for kind, read in readers:
        try:
            read(kind.check([value] if isinstance(kind, Array) else value, "message"))
            told.append("taken")
        except (InvalidArgument, RemoteProtocolError) as error:
            told.append(_told(error))
    return "; ".join(told)


def range_commands() -> list[tuple[int, Any]]:
    """A kind and a payload for each command of a range; `test_command_tables` has them all."""
    own = encode_batch([b"k"], [b"v"], producer=0, epoch=0, low=1, numbers=1)
    return [
        (commands.RESTORE, [3, [[5, (2).to_bytes(8, "little"), own]]]),
        (commands.APPEND, batches()[:3]), (commands.SEAL, 5), (commands.RETIRE_PRODUCERS, [1, 2]),
        (commands.FENCE, [1, 2, 3]), (commands.FREEZE, None),
        (commands.TRIM_SPANS, [[b"", None, 5]]), (commands.TRIM_KEYS, [[b"k", 5]]),
        (commands.DELETE_KEYS, [[b"k", 5]]),
        (commands.COMPACT_TO, [b"", b"z", 5, commands.COMPACT, 9]),
        (commands.TAKE_LEASE, ["lease", b"", None, 5, 9]), (commands.RELEASE_LEASE, ["lease"]),
        (commands.RENEW_LEASE, ["lease", b"", None, 5, 9]), (commands.LEVEL, 2),
        (commands.OPEN_CURSOR, ["cursor", 5, [[b"", None, 1]]]),
        (commands.COMMIT_CURSOR, ["cursor", 5, [[b"", b"z", 5]], [[b"k", 6]]]),
        (commands.SET_CURSOR, ["cursor", 6, [[b"a", None, 5]]]),
        (commands.DELETE_CURSOR, ["cursor", b"", None]),
        (commands.GROUP_OPEN, [7, 1, False]), (commands.GROUP_OPEN, [8, 1, False, True]),
        (commands.GROUP_ACK, [7, 1, [b"k"], [1], [2]]),
        (commands.GROUP_NOTE, [7, 1, [[b"k", 1, 3, group_forms.PARK, "broken"]], "billing"]),
        (commands.GROUP_FLOOR, [7, 1, b"", None, 1, 5, [b"k"], [b"a"]]),
        (commands.GROUP_RETRY, [7, [b"k"], "ann"]),
        (commands.GROUP_SKIP, [7, [[b"k", 1, 2]], group_forms.SKIP, "ann", "broken"]),
        (commands.GROUP_RESET, [7, [[b"", None, 1]], [[b"k", 2]], "ann"]),
        (commands.GROUP_FORGET, [7]), (commands.GROUP_LETTER, [7, 1, 9, [[b"k", 1, 2, 1]]]),
        (commands.GROUP_COPIED, [7, 1, [[b"k", 2]], group_forms.DEAD_LETTER]),
        (commands.GROUP_FORGET, [7]), (commands.GROUP_APPEND, [7, 1, [[b"k", 1, 2]], batches()[0]]),
    ]  # fmt: skip


def _commands() -> list[bytes]:
    rows = [*range_commands(), (99, {"later": [1]})]
    return [*(commands.encode(kind, 1 << 40, payload) for kind, payload in rows), b"\x01", b"\x02"]


def _raft() -> list[bytes]:
    said = [Append(1, 2, 3, 1, 3, [[1, b"\x00abc"], [1, b"\x01"]]), Ack(1, 2, 3), Vote(1, 2),
            PreVoteRequest(1, 2, 3, 4, 5)]  # fmt: skip
    rounds = [[1, 2, [[1, 1, b"f", 5], None]], [1, 2, [5, None]], [1, 2, [[1, 1]]]]
    return framed(*map(messages.encode, said), *rounds)


def _hellos() -> list[bytes]:
    hello = wire.Hello(role="node", nonce=bytes(32), cluster="c", node=1, incarnation=5)
    welcome = wire.Welcome(nonce=bytes(32), cluster="c", node=1, wants_proof=True)
    return framed(hello.to_body(), wire.Hello(role="client", nonce=bytes(32)).to_body(),
                  welcome.to_body())  # fmt: skip


def _errors() -> list[bytes]:
    said = (
        errors.Overloaded("full", retry_after=0.5), errors.NotLeader("no", hint=2),
        errors.GenerationMismatch("no", ranges=METADATA["ranges"]), errors.Timeout("late"),
    )  # fmt: skip
    return framed(*map(errors.to_wire, said))


# Kafka's protocol.


def run_kafka_request(data: bytes) -> str:
    """A request of a Kafka client, without its length."""
    reader = Reader(data)
    try:
        head = kafka_api.head_of(reader)
        decode = KAFKA_REQUESTS.get(head.api)
        if decode is None:
            return "versions"
        decode(reader, head.version)
    except Malformed as error:
        return _told(error)
    return f"taken {head.api}"


def run_kafka_batch(data: bytes) -> str:
    """A batch of a Kafka producer whose checksum is right."""
    whole = data[:17] + struct.pack(">I", google_crc32c.value(data[21:])) + data[21:]
    try:
        batch = kafka_batches.opened(whole)
        packed = unpacked_records(batch.compression, batch.packed, limits.MIB)
        steps = kafka_batches.records(packed, min(batch.count, limits.batch_records_max))
        with contextlib.suppress(StopIteration):
            while True:
                next(steps)
    except Refused as refusal:
        return f"{refusal.code} {_told(refusal)}"
    return "taken"


KAFKA_REQUESTS: dict[int, Callable[[Reader, int], Any]] = {
    kafka_api.PRODUCE: kafka_requests.produce,
    kafka_api.FETCH: kafka_requests.fetch,
    kafka_api.LIST_OFFSETS: kafka_requests.list_offsets,
    kafka_api.METADATA: kafka_requests.metadata,
    kafka_api.CREATE_TOPICS: kafka_requests.create_topics,
    kafka_api.DELETE_TOPICS: kafka_requests.delete_topics,
    kafka_api.INIT_PRODUCER_ID: kafka_requests.init_producer_id,
    kafka_api.DESCRIBE_CONFIGS: kafka_requests.describe_configs,
    kafka_api.OFFSET_COMMIT: group_requests.offset_commit,
    kafka_api.OFFSET_FETCH: group_requests.offset_fetch,
    kafka_api.FIND_COORDINATOR: group_requests.find_coordinator,
    kafka_api.JOIN_GROUP: group_requests.join_group,
    kafka_api.HEARTBEAT: group_requests.heartbeat,
    kafka_api.LEAVE_GROUP: group_requests.leave_group,
    kafka_api.SYNC_GROUP: group_requests.sync_group,
    kafka_api.DESCRIBE_GROUPS: group_requests.describe_groups,
    kafka_api.LIST_GROUPS: group_requests.list_groups,
    kafka_api.ALTER_CONFIGS: admin_requests.alter_configs,
    kafka_api.INCREMENTAL_ALTER_CONFIGS: admin_requests.incremental_alter_configs,
    kafka_api.CREATE_PARTITIONS: admin_requests.create_partitions,
    kafka_api.DELETE_RECORDS: admin_requests.delete_records,
    kafka_api.DELETE_GROUPS: admin_requests.delete_groups,
    kafka_api.OFFSET_DELETE: admin_requests.offset_delete,
    kafka_api.SASL_HANDSHAKE: kafka_sasl.handshake,
    kafka_api.SASL_AUTHENTICATE: kafka_sasl.authenticate,
}
_KAFKA_ROWS: list[Any] = [
    (b"k", b"v"), (None, None), (b"", b"x" * 200, [(b"a", b"1"), (b"a", None)]),
]  # fmt: skip


def _kafka_requests() -> list[bytes]:
    made = [
        kafka_wire.produce("orders", 3, b"records"),
        kafka_wire.fetch("orders", 3, 99),
        kafka_wire.request(kafka_api.METADATA, 5, kafka_wire.array([kafka_wire.text("a")]) + b"\1"),
        kafka_wire.request(kafka_api.API_VERSIONS, 3, b"\1"),
        kafka_wire.join("group", protocols=[("range", b"metadata")]),
        kafka_wire.sync("group", "member", 1, {"member": b"assignment"}),
        kafka_wire.commit("group", [("orders", 3, 99, "metadata")]),
        kafka_wire.positions("group", [("orders", 3)]),
        kafka_wire.handshake("PLAIN"),
        kafka_wire.authenticate(b"\0user\0token"),
    ]
    return [each[4:] for each in made]


TARGETS: dict[str, Target] = {
    "payload": Target(run_payload, lambda: [msgpack.packb(each) for each in _messages()]),
    "stream": Target(
        run_stream,
        lambda: [
            b"".join(frame.encode(*each) for each in _messages()[begin:])[: 1 << 12]
            for begin in range(4)
        ],
    ),
    "batch": Target(run_batch, batches),
    "chunk": Target(_reader(_read_chunks), lambda: framed(chunks(), chunks()[1:])),
    "page": Target(_reader(_read_page), lambda: framed(*pages())),
    "hello": Target(_reader(_read_hello), _hellos),
    "error": Target(_reader(_read_error), _errors),
    "credential": Target(run_credential, _credentials),
    "metadata": Target(_reader(_read_metadata), lambda: framed(METADATA)),
    "image": Target(_reader(_read_image), _images),
    "bucket": Target(_reader(_read_bucket), _buckets),
    "raft": Target(_reader(_read_raft), _raft),
    "command": Target(run_command, _commands),
    "kafka_request": Target(run_kafka_request, _kafka_requests),
    "kafka_batch": Target(
        run_kafka_batch,
        lambda: [kafka_wire.batch(_KAFKA_ROWS), kafka_wire.gzipped(_KAFKA_ROWS)],
    ),
    "metadata_command": Target(
        run_metadata_command,
        lambda: [
            metadata_commands.encode({"op": "create_log", "name": "orders", "split_at": [b"m"]})
        ],
    ),
}

WRONG: tuple[Any, ...] = (
    None, -1, 0, 1 << 63, (1 << 64) - 1, 1.5, float("nan"), True, "text", b"bytes", "", b"", [],
    [[]], {}, {"a": 1}, {1: {2: 3}}, [None], [1], ["x"], [b"k"], [{}], "x" * 300, b"\xc1" * 300,
)  # fmt: skip
_BYTES = bytes((0x00, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x91, 0x9F, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xC7,
                0xCF, 0xD4, 0xD6, 0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0xE0, 0xFF))  # fmt: skip


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The input with a few changes: of bytes, or of what they are as msgpack."""
    if rng.random() < 0.4:
        try:
            prefix = data[:1] if data[:1] == b"\x00" else b""
            value = msgpack.unpackb(data[len(prefix) :], strict_map_key=False)
            for _ in range(rng.choice((1, 1, 2, 4))):
                value = _changed(value, rng)
            return prefix + bytes(msgpack.packb(value))
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
            pass
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(7):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1 if found:
                found[at % len(found)] = rng.choice(_BYTES)
            case 2:
                del found[at : at + rng.choice((1, 2, 4, 9, 50))]
            case 3:
                found[at:at] = bytes(rng.choices(_BYTES, k=rng.choice((1, 2, 5, 9))))
            case 4:
                begin = rng.randrange(len(found) + 1)
                found[at:at] = found[begin : begin + rng.choice((1, 5, 30, 200))]
            case 5:
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                found[at:] = other[begin:]
            case _:
                width = rng.choice((1, 2, 4, 8))
                number = rng.choice((0, 1, 255, 10_000, 131_072, 1 << 31, (1 << 64) - 1))
                found[at : at + width] = (number % (1 << (8 * width))).to_bytes(width, "big")
    return bytes(found[: 1 << 16])


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bytes) and len(value) > 1 and rng.random() < 0.5:
        return mutated(value, [value], rng)  # a column of a batch, or a batch
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {each: value[each] for each in value if each != name}
        return {**value, name: _changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        if rng.random() < 0.15:
            return value[:at] + value[at : at + 1] * rng.choice((0, 2, 40)) + value[at + 1 :]
        return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    return rng.choice(WRONG)


def kept(name: str) -> list[bytes]:
    """The inputs that were found before, from the corpus."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
