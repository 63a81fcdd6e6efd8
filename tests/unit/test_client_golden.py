"""The bytes of every message, fixed: what changes here changes the protocol.

`tests/golden/wire.txt` holds a line a message: its name, its frame in hexadecimal, what it says.
Rewrite it with `pytest tests/unit/test_client_golden.py --rewrite`, and review the diff.
"""

import random
from pathlib import Path
from typing import Any

from lognode.client.protocol import OPERATIONS, Operation, errors, frame, frames, records, wire
from lognode.client.protocol.appends import (
    APPEND,
    DELETE_KEYS,
    FENCE,
    LEASE_RELEASE,
    LEASE_TAKE,
    PRODUCER_CLOSE,
    PRODUCER_NUMBER,
    TRIM,
)
from lognode.client.protocol.chunks import Chunk
from lognode.client.protocol.cluster import (
    ALTER_LOG,
    CREATE_LOG,
    DELETE_LOG,
    HEALTH,
    METADATA,
    NODE_DRAIN,
    NODE_REKEY,
    NODE_REMOVE,
    PRODUCER_DELETE,
    PRODUCER_OPEN,
    PRODUCERS,
    RANGE_MERGE,
    RANGE_MOVE,
    RANGE_RECOVER,
    RANGE_RECOVERY,
    RANGE_SPLIT,
    RANGE_TRANSFER,
    RANGES,
    STATUS,
)
from lognode.client.protocol.cursors import (
    CURSOR_COMMIT,
    CURSOR_DELETE,
    CURSOR_LIST,
    CURSOR_OPEN,
    CURSOR_READ,
    CURSOR_SET,
)
from lognode.client.protocol.frame import Decoder, Frame
from lognode.client.protocol.groups import (
    GROUP_APPEND,
    GROUP_CREATE,
    GROUP_DECIDE,
    GROUP_DELETE,
    GROUP_HISTORY,
    GROUP_KEYS,
    GROUP_LAG,
    GROUP_LIST,
    GROUP_SETTLE,
    GROUP_TAKE,
)
from lognode.client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    FOLLOW,
    KEYS,
    LATEST,
    LAYOUT,
    READ_SPAN,
    RESOLVE,
    SCAN,
)
from lognode.client.protocol.types import Entry
from lognode.client.protocol.views import VIEW_DELETE, VIEW_LIST, VIEW_REGISTER, VIEWS_WAIT
from lognode.client.protocol.wire import Hello, Welcome
from lognode.statemachine.page import Page

GOLDEN = Path(__file__).parents[1] / "golden" / "wire.txt"
WHERE = {"range": 3, "generation": 2}
HELLO = Hello(role="node", nonce=bytes(range(32)), cluster="c1", node=2, incarnation=77)
WELCOME = Welcome(nonce=bytes(range(32, 64)), cluster="c1", node=1)


def page() -> dict[str, Any]:
    built = Page(next=12)
    built.add(Entry(b"k", 10, 1000, {b"h": b"v"}, b"value"))
    built.add(Entry(b"k", 11, 1001, None, None, snapshot=True))
    return built.to_wire()


def batch(**options: Any) -> bytes:
    return records.encode_batch(
        [b"k1", b"k2"], [b"v", None], producer=5, epoch=1, low=7, numbers=7, **options
    )


def read(**body: Any) -> dict[str, Any]:
    return {**WHERE, **body, "consistency": "linearizable", "node": None, "through": None,
            "timeout_ms": 10_000}  # fmt: skip


GROUP_ROW = {
    "id": 4, "name": "billing", "prefix": b"", "patterns": [b"/", [b"eu/>"]], "max_deliveries": 5,
    "on_dead": "park", "lease_ms": 30_000, "begin": "time", "begin_ms": 7, "waits": False,
    "created_ms": 9,
}  # fmt: skip

VIEW_ROW = {
    "id": 4, "name": "search", "group": "billing", "cursor": None, "prefix": b"",
    "patterns": [b"/", [b"eu/>"]], "policy": "live", "created_ms": 9,
}  # fmt: skip


def messages() -> dict[str, tuple[int, int | Operation, dict[Any, Any]]]:
    descriptor = {"id": 3, "generation": 2, "log": 1, "start": b"", "end": b"m",
                  "members": [1, 2, 3], "leader": 1}  # fmt: skip
    proof = wire.prove(b"secret", "acceptor", HELLO, WELCOME)
    mismatch = errors.SequenceMismatch("no", key=b"k", expected=1, actual=2)
    return {
        "hello": (0, frames.HELLO, HELLO.to_body()),
        "hello of a client": (0, frames.HELLO, Hello(role="client", nonce=bytes(32)).to_body()),
        "welcome": (0, frames.WELCOME, {**WELCOME.to_body(), "proof": proof}),
        "proof": (0, frames.PROOF, {"proof": wire.prove(b"secret", "dialler", HELLO, WELCOME)}),
        "ping": (1, frames.PING, {}),
        "pong": (1, frames.OK, {}),
        "alive": (0, frames.ALIVE, {}),
        "metadata": (2, METADATA, {"log": "flights", "start_key": b"k", "at_least": 4}),
        "metadata of all logs": (2, METADATA, {"after": 500, "nodes": False, "at_least": 4}),
        "metadata answer": (2, frames.OK, {
            "cluster": "c1", "version": 5,
            "nodes": [{"id": 1, "address": "h:4600", "http": "h:4680", "zone": "",
                       "state": "ACTIVE"}],
            "logs": [{"id": 1, "name": "flights", "policy": {"replicas": 3}}],
            "ranges": [descriptor], "next_key": b"m",
        }),
        "ranges": (2, RANGES, {"after": 0, "at_least": 4}),
        "ranges answer": (2, frames.OK, {"version": 5, "ranges": [descriptor], "next": 3}),
        "create_log": (3, CREATE_LOG, {
            "name": "flights", "ranges": 4, "split_at": None, "replicas": 3,
            "retention_ms": None, "retention_bytes": None, "cleanup": "delete",
            "delete_retention_ms": None, "snapshot_delay_ms": None, "split_bytes": 536_870_912,
            "split_rate": 20_000, "exist_ok": True, "creation": bytes(range(16)),
        }),
        "alter_log": (3, ALTER_LOG, {
            "name": "flights", "changes": {"retention_ms": 5, "retention_bytes": None}}),
        "alter_log answer": (3, frames.OK, {"log": 1, "policy": {"retention_ms": 5}}),
        "trim": (3, TRIM, {**WHERE, "keys": [[b"k", 10]]}),
        "delete_keys": (3, DELETE_KEYS, {**WHERE, "keys": [[b"k", 12]]}),
        "lease": (3, LEASE_TAKE, {
            **WHERE, "lease": "job", "start_key": b"", "end_key": b"m", "through": 9,
            "lease_ms": 3_600_000, "renew": False}),
        "lease answer": (3, frames.OK, {"end_key": b"m", "expires_ms": 3_601_000}),
        "release": (3, LEASE_RELEASE, {**WHERE, "lease": "job"}),
        "cursor_open": (3, CURSOR_OPEN, {
            **WHERE, "cursor": "billing", "holder": 5, "spans": [[b"", b"m", 1]]}),
        "cursor_open answer": (3, frames.OK, {"end_key": b"m"}),
        "cursor_commit": (3, CURSOR_COMMIT, {
            **WHERE, "cursor": "billing", "holder": 5, "spans": [[b"", b"m", 9]],
            "keys": [[b"k", 12]]}),
        "cursor_set": (3, CURSOR_SET, {
            **WHERE, "cursor": "billing", "holder": 6, "spans": [[b"", b"m", 1]]}),
        "cursor_delete": (3, CURSOR_DELETE, {
            **WHERE, "cursor": "billing", "start_key": b"", "end_key": None}),
        "cursor_read": (3, CURSOR_READ, {**WHERE, "cursor": "billing", "start_key": b""}),
        "cursor_read answer": (3, frames.OK, {
            "spans": [[b"", b"m", 5, 9]], "keys": [[b"k", 12]], "end_key": None, "applied": 4}),
        "cursor_list": (3, CURSOR_LIST, {**WHERE, "after": None, "start_key": b""}),
        "cursor_list answer": (3, frames.OK, {
            "cursors": [["billing", 5, 9, 1]], "after": None, "end_key": None, "applied": 4}),
        "group_settle": (3, GROUP_SETTLE, {
            **WHERE, "group": 4, "consumer": 77, "acks": [[b"a", 1, 9]],
            "releases": [[b"b", 2, 500, "busy"]], "rejects": [[b"c", 3, "bad"]],
            "extends": [[b"d", 4]], "leave": False, "patient": False}),
        "group_settle answer": (3, frames.OK, {"refused": [[b"a", "lease", 7]]}),
        "group_append": (3, GROUP_APPEND, {
            **WHERE, "group": 4, "consumer": 77, "acks": [[b"a", 1, 7, 9]], "batch": b"batch",
            "grant": None}),
        "group_append answer": (3, frames.OK, {
            "result": {"status": "ok", "first_seq": 12, "timestamp_ms": 5}, "refused": []}),
        "group_decide": (3, GROUP_DECIDE, {
            **WHERE, "group": 4, "retry": [b"a"], "skip": [[b"b", 5, 6]],
            "spans": [[b"", None, 1]], "keys": [[b"c", 2]], "why": "known bad"}),
        "group_decide answer": (3, frames.OK, {"refused": [[b"a", 7]]}),
        "group_take": (3, GROUP_TAKE, {
            **WHERE, "group": 4, "consumer": 77, "prefix": b"cust/", "count": 64, "bytes": 65_536,
            "wait_ms": 10_000, "fence": 3, "holds": [[b"d", 4]]}),
        "group_take answer": (3, frames.OK, {
            "fence": 3, "lease_ms": 30_000, "refused": [b"d"], "keys": [b"a", b"b"],
            "tokens": [8, 9], "deliveries": [0, 1], "counts": [2, 1], "seqs": [5, 7, 6],
            "timestamps": [1, 2, 1], "values": [b"x", None, b"y"],
            "headers": {0: {b"h": b"v"}}}),
        "group_lag": (3, GROUP_LAG, {**WHERE, "group": 4, "prefix": b"cust/"}),
        "group_lag answer": (3, frames.OK, {
            "at_index": 4, "entries": 3, "bytes": 30, "oldest_ms": 1_000, "waiting": 1,
            "in_flight": 1, "parked": 1, "begun": True, "consumers": 2, "applied": 4}),
        "group_keys": (3, GROUP_KEYS, {**WHERE, "group": 4, "what": "parked", "after": b"a"}),
        "group_keys answer": (3, frames.OK, {
            "rows": [[b"b", 5, 5, 0, True, "bad"]], "after": None, "applied": 4}),
        "group_history": (3, GROUP_HISTORY, {**WHERE, "group": 4, "after": 0}),
        "group_history answer": (3, frames.OK, {
            "decisions": [[1_000, 1, "", b"b", b"b\0", 5, 6, "bad"]], "after": None,
            "applied": 4}),
        "group_create": (4, GROUP_CREATE, {
            "log": "flights", "name": "billing", "patterns": [b"/", [b"eu/>"]],
            "max_deliveries": 5, "on_dead": "park", "lease_ms": 30_000, "begin": "time",
            "begin_ms": 7, "waits": False, "since": 4}),
        "group_create answer": (4, frames.OK, {**GROUP_ROW, "created": True}),
        "group_delete": (4, GROUP_DELETE, {"log": "flights", "name": "billing", "id": 4}),
        "group_delete answer": (4, frames.OK, {"id": 4}),
        "group_list": (4, GROUP_LIST, {"log": "flights", "name": None}),
        "group_list answer": (4, frames.OK, {"groups": [GROUP_ROW]}),
        "views_wait": (3, VIEWS_WAIT, {
            **WHERE, "keys": [[b"a", 5], [b"b", 6]], "views": [1, 2], "wait_ms": 500,
            "enough": 1, "together": True, "live": False}),
        "views_wait answer": (3, frames.OK, {"seen": [3, 1]}),
        "view_register": (4, VIEW_REGISTER, {
            "log": "flights", "name": "search", "group": "billing", "policy": "live",
            "since": 4}),
        "view_register answer": (4, frames.OK, VIEW_ROW),
        "view_delete": (4, VIEW_DELETE, {"log": "flights", "name": "search"}),
        "view_delete answer": (4, frames.OK, {"id": 4}),
        "view_list": (4, VIEW_LIST, {"log": "flights"}),
        "view_list answer": (4, frames.OK, {"views": [VIEW_ROW]}),
        "delete_log": (4, DELETE_LOG, {"name": "flights", "id": 7}),
        "producer_open": (5, PRODUCER_OPEN, {"name": "import"}),
        "producer_open answer": (5, frames.OK, {"id": 5, "epoch": 1}),
        "producers": (5, PRODUCERS, {"after": 0}),
        "producers answer": (5, frames.OK, {"producers": [
            {"name": "import", "id": 1 << 62, "epoch": 7, "opened_ms": 1000, "owner": ""}],
            "next": None}),
        "producer_delete": (5, PRODUCER_DELETE, {"name": "import"}),
        "fence": (6, FENCE, {**WHERE, "id": 5, "epoch": 1}),
        "producer_number": (7, PRODUCER_NUMBER, {**WHERE, "producer": 5, "number": 7}),
        "producer_number answer": (7, frames.OK, {"applied": True, "seq": 10}),
        "producer_close": (0, PRODUCER_CLOSE, {**WHERE, "id": 5}),
        "append": (8, APPEND, {**WHERE, "batches": [batch()], "timeout_ms": 2000}),
        "append with everything": (8, APPEND, {**WHERE, "timeout_ms": 2000, "batches": [
            batch(prevs=[0, 7], headers=[None, {b"h": b"v"}], expects=[-1, 0], snapshots=[1],
                  atomic=True)]}),
        "append answer": (8, frames.OK, {"results": [
            {"status": "ok", "first_seq": 10, "timestamp_ms": 1000}]}),
        "append answer with duplicates": (8, frames.OK, {"results": [
            {"status": "ok", "seqs": [None, 11], "duplicates": [0], "timestamp_ms": 1000}]}),
        "append with conditions": (8, APPEND, {
            **WHERE, "timeout_ms": 2000, "batches": [batch(expects=[0, 9], each=True)]}),
        "append answer with refusals": (8, frames.OK, {"results": [
            {"status": "ok", "seqs": [11, None], "duplicates": [], "timestamp_ms": 1000,
             "refused": [1], "actual": [10]}]}),
        "append refused": (8, frames.OK, {"results": [
            {"status": "error", "error": errors.to_wire(mismatch)}]}),
        "latest": (9, LATEST, read(key=b"k")),
        "count": (10, COUNT_ENTRIES, read(key=b"k", start=1, end=None)),
        "count answer": (10, frames.OK, {"count": 2}),
        "scan": (11, SCAN, read(key=b"k", start=1, end=None, limit=10, bytes=262_144,
                                     reverse=False)),
        "scan answer": (11, frames.OK, page()),
        "keys": (12, KEYS, {**WHERE, "prefix": b"k", "start_after": None, "limit": 10}),
        "keys answer": (12, frames.OK, {"keys": [b"k1", b"k2"], "more": True,
                                        "after": b"k3"}),
        "export": (13, EXPORT, {
            **WHERE, "start_key": b"", "end_key": None, "limit": 10, "bytes": 4_194_304,
            "position": [[[1, 9, b"k", 7]], 20], "as_of": "job"}),
        "export answer": (13, frames.OK, {
            "chunks": [[*Chunk(2, 7, 1_000, b"\1\0", b"\2\0\0\0", b"k", b"\0\0\0\0\3\0\0\0",
                             b"\0\0\0\0\1\0\0\0", b"\1\0\0\0\xff\xff\xff\xff", b"v",
                             {0: {b"h": b"1"}}, [1])]],
            "end_key": b"m", "position": None, "applied": 9}),
        "read_span": (13, READ_SPAN, read(start_key=b"", end_key=None, start=1, limit=10,
                                               bytes=262_144)),
        "resolve a snapshot": (14, RESOLVE, {
            **WHERE, "key": b"k", "start": "snapshot", "end": 9}),
        "resolve a snapshot answer": (14, frames.OK, {"seq": 5, "more": True}),
        "resolve": (14, RESOLVE, {**WHERE, "key": b"k", "start": ["tail", 3]}),
        "resolve answer": (14, frames.OK, {"seq": 9}),
        "resolve the earliest": (14, RESOLVE, {
            **WHERE, "key": None, "start": "earliest", "start_key": b"", "end_key": b"m"}),
        "resolve the earliest answer": (14, frames.OK, {"seq": 70, "end_key": b"f"}),
        "layout": (14, LAYOUT, {
            **WHERE, "start_key": b"", "end_key": b"m", "consistency": "prefix"}),
        "layout answer": (14, frames.OK, {"weights": [[b"a", 90_000], [b"f", 120_000]]}),
        "follow keys": (15, FOLLOW, {**WHERE, "keys": {b"k": 10}, "prefix": b"",
                                          "start_key": b"k", "end_key": None, "from_seq": 1,
                                          "credit": 65_536}),
        "follow a span": (16, FOLLOW, {**WHERE, "keys": None, "prefix": b"k",
                                            "start_key": b"k", "end_key": b"l", "from_seq": 10,
                                            "credit": 65_536}),
        "push": (16, frames.PUSH, {"page": page(), "caught_up": True, "next": 12}),
        "credit": (16, frames.CREDIT, {"bytes": 16_384}),
        "cancel": (16, frames.CANCEL, {}),
        "end": (16, frames.END, {}),
        "status": (17, STATUS, {"after": None}),
        "health": (18, HEALTH, {"nodes": 3}),
        "range transfer": (20, RANGE_TRANSFER, {"range": 7, "node": 3}),
        "range move": (21, RANGE_MOVE, {"range": 7, "from": 3, "to": 4}),
        "range move answer": (21, frames.OK, {
            "operation": 5, "generation": 2, "members": [1, 2, 4], "version": 90}),
        "range split": (22, RANGE_SPLIT, {"log": "flights", "at": b"k"}),
        "range split answer": (22, frames.OK, {
            "operation": 5, "range": 7, "generation": 2, "new_range": 9, "version": 90}),
        "range recovery": (26, RANGE_RECOVERY, {"range": 7}),
        "range recovery answer": (26, frames.OK, {
            "range": 7, "log": "flights", "start": b"", "end": None, "generation": 2,
            "operation": 0, "proposed": 3, "refused": None, "members": [
                {"node": 3, "state": "ACTIVE", "answers": True, "damaged": None, "last_term": 4,
                 "last_index": 90, "applied": 88, "last_seq": 70, "last_timestamp_ms": 1000}]}),
        "range recover": (27, RANGE_RECOVER, {"range": 7, "from": 3, "accept_loss": True}),
        "range recover answer": (27, frames.OK, {"operation": 5, "generation": 3, "version": 90}),
        "range merge": (23, RANGE_MERGE, {"log": "flights", "at": b"k"}),
        "range merge answer": (23, frames.OK, {
            "operation": 5, "range": 7, "generation": 3, "gone_range": 9, "version": 90}),
        "node drain": (24, NODE_DRAIN, {"node": 3, "undo": False}),
        "node drain answer": (24, frames.OK, {
            "node": 3, "state": "DRAINING", "replicas": 5, "version": 90}),
        "node remove": (25, NODE_REMOVE, {"node": 3, "dead": True}),
        "node rekey": (28, NODE_REKEY, {"node": 3, "key": "ab" * 32}),
        "node rekey answer": (28, frames.OK, {
            "node": 3, "state": "ACTIVE", "replicas": 5, "version": 90}),
        "error": (19, frames.ERROR, errors.to_wire(errors.NotLeader("not here", hint=2))),
        "error with descriptors": (19, frames.ERROR, errors.to_wire(
            errors.GenerationMismatch("older", ranges=[descriptor]))),
        "error of the connection": (0, frames.ERROR, errors.to_wire(
            errors.RemoteProtocolError("frame with a wrong checksum"))),
    }  # fmt: skip


def every_message() -> dict[str, tuple[int, int, dict[Any, Any]]]:
    """The messages above, and a valid request of each operation that is not among them."""
    found = {
        name: (number, kind.number if isinstance(kind, Operation) else kind, body)
        for name, (number, kind, body) in messages().items()
    }
    for operation in OPERATIONS.values():
        body = operation.request.sample(random.Random(operation.number))
        found.setdefault(operation.name, (9, operation.number, body))
    return found


def test_every_message_has_its_bytes(rewrite: bool) -> None:
    lines = [
        f"{name}: {frame.encode(*message).hex()} {message!r}"
        for name, message in every_message().items()
    ]
    if rewrite:
        GOLDEN.write_text("\n".join(lines) + "\n", "utf-8")
    assert GOLDEN.read_text("utf-8").splitlines() == lines


def test_the_golden_bytes_decode_to_their_messages() -> None:
    for line in GOLDEN.read_text("utf-8").splitlines():
        name, _, rest = line.partition(": ")
        event = Decoder().feed(bytes.fromhex(rest.split(" ", 1)[0]))[0]
        assert isinstance(event, Frame)
        assert event[:3] == every_message()[name]


def test_every_golden_request_is_what_the_table_allows() -> None:
    for name, (_, kind, body) in messages().items():
        if isinstance(kind, Operation):
            assert kind.request.check(body) is not None, name


def test_every_operation_and_frame_has_a_golden_message() -> None:
    kinds = {kind for _, kind, _ in every_message().values()}
    assert kinds == {*frames.NAMES, *(operation.number for operation in OPERATIONS.values())}


def test_every_error_travels_and_returns() -> None:
    for code, cls in errors.BY_CODE.items():
        sent = cls("what happened", outcome="unknown", key=b"k", n=1)
        event = Decoder().feed(frame.encode(1, frames.ERROR, errors.to_wire(sent)))[0]
        assert isinstance(event, Frame)
        got = errors.from_wire(event.body)
        assert type(got) is cls
        assert (got.code, got.message, got.outcome) == (code, "what happened", "unknown")
        assert got.fields == {"key": b"k", "n": 1}
    assert errors.from_wire({"code": "OF_THE_FUTURE"}).outcome == "unknown"
