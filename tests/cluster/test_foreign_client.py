"""A client that was written from docs/protocol.md alone, on three nodes with TLS and tokens.

Each message that it sends, and each answer, is held against the tables of the page, field by field.
"""

import hashlib
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreign_wire
import pytest
from foreign_appends import ABSENT, Producer, Record, pack_batch
from foreign_client import Client, Range
from foreign_follow import Follow
from foreign_reads import Entry, Reader, entries_of
from foreign_wire import OPERATIONS, Connection, Refused
from protocol_page import Page

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

RARE = {"status", "health", "usage"}
"""Operations of which this client asks only whether it may."""
Body = dict[str, Any]


@pytest.fixture(scope="module")
def page() -> Page:
    return Page.read()


@pytest.fixture(scope="module")
def shared(module_path: Path) -> Iterator[testing.LocalCluster]:
    root = module_path
    with testing.cluster(root, 3, tls=True, auth=True, flags=("--balance", "off")) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def three(shared: testing.LocalCluster) -> testing.LocalCluster:
    """Three nodes that all run."""
    for node in shared.nodes:
        node.start()
    for node in shared.nodes:
        node.wait_ready()
    testing.wait_healthy(shared)
    return shared


def tls_of(cluster: testing.LocalCluster) -> ssl.SSLContext:
    """TLS 1.3 that trusts the CA of the cluster, with no certificate of its own where it need not
    have one."""
    assert cluster.tls is not None
    files = cluster.tls.client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(str(files.ca))
    context.load_cert_chain(str(files.cert), str(files.key))
    return context


Make = Callable[..., Client]


@pytest.fixture
def make(three: testing.LocalCluster, page: Page) -> Iterator[Make]:
    """Makes clients, whose messages all have to be on the page."""
    made: list[Client] = []

    def one(**options: Any) -> Client:
        given = {"token": three.token, "tls": tls_of(three), "seen": page.see, "timeout": 40.0,
                 **options}  # fmt: skip
        made.append(Client([node.address for node in three.nodes], **given))
        return made[-1]

    page.complaints.clear()
    yield one
    for client in made:
        client.close()
    assert not page.complaints, "\n".join(page.complaints)


def create(client: Client, name: str, *split_at: bytes) -> Reader:
    """A new log with three replicas, ready for appends."""
    answer = client.ask_any("create_log", {"name": name, "split_at": list(split_at), "replicas": 3})
    assert answer["created"]
    return Reader(client, name)


def refusal(call: Callable[[], Any]) -> Refused:
    """What the call was refused with."""
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def by_sdk(cluster: testing.LocalCluster, log: str) -> list[tuple[Any, ...]]:
    """All entries of a log as the SDK shows them."""
    with lognode.Client(cluster.servers) as client:
        return told(client.log(log).snapshot().read())


def told(entries: Any) -> list[tuple[Any, ...]]:
    """Entries, of either client, in one form."""
    return sorted((e.key, e.seq, e.timestamp_ms, e.value, e.headers, e.snapshot) for e in entries)


def test_reads_show_what_was_appended(make: Make, three: testing.LocalCluster) -> None:
    client = make()
    reader = create(client, "reads", b"m")
    producer = Producer(client, "reads")
    rng = random.Random(1)
    records = [
        Record(rng.choice((b"a", b"b", b"x", b"y")), os.urandom(rng.randrange(2000)),
               {b"n": b"%d" % n} if n % 3 else None)
        for n in range(300)
    ]  # fmt: skip
    records += [Record(b"a", None), Record(b"x", b"state", snapshot=True)]
    for at in range(0, len(records), 50):
        producer.append(records[at : at + 50])
    of_a = [record for record in records if record.key == b"a"]
    seqs = [record.seq for record in of_a]
    assert seqs == sorted(seqs)
    pages = list(reader.scan(b"a", page_bytes=5000))
    assert [(e.seq, e.value, e.headers) for e in pages] == [
        (r.seq, r.value, r.headers) for r in of_a
    ]
    assert list(reader.scan(b"a", reverse=True, page_bytes=5000)) == pages[::-1]
    assert reader.latest(b"a") == pages[-1]
    assert reader.latest(b"a", prefix=True) == pages[-1]
    assert list(reader.scan(b"a", prefix=True)) == pages
    assert reader.latest(b"none") is None
    assert reader.count(b"a") == len(of_a)
    assert list(reader.keys(limit=1)) == [b"a", b"b", b"x", b"y"]
    assert list(reader.keys(b"x")) == [b"x"]
    everything = told(reader.span())
    assert len(everything) == len(records)
    assert everything == by_sdk(three, "reads")
    weights, _ = client.ask("reads", b"a", "layout", {})
    assert weights["weights"]
    for start, seq in (
        ("earliest", 1), ("latest", None), (["tail", 1], of_a[-1].seq), (["ts", 0], 1),
    ):  # fmt: skip
        answer, _ = client.ask("reads", b"a", "resolve", {"key": b"a", "start": start})
        assert seq is None or answer["seq"] == seq
    answer, _ = client.ask("reads", b"x", "resolve", {"key": b"x", "start": "snapshot"})
    assert answer["seq"] == records[-1].seq
    producer.close()


def test_S8_a_repetition_after_a_lost_answer_appends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    reader = create(client, "lost", b"m")
    producer = Producer(client, "lost")
    wait, lost = Connection._wait, []

    def losing(self: Connection, request_id: int, deadline: float) -> Any:
        found = wait(self, request_id, deadline)
        (result,) = found[1].get("results", [{}])
        if result.get("first_seq"):  # the first attempt that was applied
            lost.append(result)
            self.close()
            raise foreign_wire.lost("the answer is lost on its way")
        return found

    monkeypatch.setattr(Connection, "_wait", losing)
    records = [Record(b"%c" % (97 + n % 26), b"%d" % n) for n in range(52)]
    producer.append(records)
    assert len(lost) == 2, "one for each range"
    assert all(record.duplicate for record in records)
    entries = {(e.key, e.seq): e.value for e in reader.span()}
    assert entries == {(record.key, record.seq): record.value for record in records}
    # The range says it too.
    body = {"producer": producer.id, "number": records[0].number, "grant": producer.grant}
    answer, _ = client.ask("lost", records[0].key, "producer_number", body)
    assert answer["applied"]
    assert answer["seq"] == records[0].seq


def test_a_follow_pushes_no_more_than_its_credit(make: Make) -> None:
    client = make()
    reader = create(client, "credit")
    producer = Producer(client, "credit")
    for _ in range(8):
        producer.append([Record(b"k", os.urandom(100_000)) for _ in range(5)])
    _, known = client.locate("credit", b"k")
    connection = client.at(known.leader or known.members[0])
    body = {"range": known.id, "generation": known.generation, "credit": 1}
    deadline = time.monotonic() + 60
    request = connection.begin("follow", body)
    pushed: list[Entry] = []
    while len(pushed) < 40:
        while not (frames := connection.take(request)):
            connection.pump(1)
            assert time.monotonic() < deadline
        connection.ping(deadline)  # what had been sent before the answer has arrived
        assert len(frames) == 1, "one push overdraws the credit, and no other follows"
        assert connection.take(request) == []
        ((kind, push, size),) = frames
        assert kind == foreign_wire.PUSH
        assert size < 262_144 + 1_100_000
        pushed += entries_of(push["page"])
        connection.grant(request, size)
    assert pushed == list(reader.scan(b"k"))
    connection.cancel(request)
    connection.ping(deadline)


def test_follows_of_keys_and_of_a_prefix_go_on_by_themselves(make: Make) -> None:
    client = make()
    create(client, "follow", b"m")
    producer = Producer(client, "follow")
    first = [Record(b"%c%d" % (97 + n % 20, n % 3), b"%d" % n) for n in range(400)]
    producer.append(first)
    keyed = Follow(client, "follow", keys={b"a0": 1, b"t1": 1, b"none": 1})
    prefix = Follow(client, "follow", prefix=b"b", credit=500)
    whole = Follow(client, "follow", credit=2000)
    feeds: list[tuple[Follow, Callable[[bytes], bool], list[Entry]]] = [
        (keyed, lambda key: key in (b"a0", b"t1"), []),
        (prefix, lambda key: key.startswith(b"b"), []),
        (whole, lambda key: True, []),
    ]

    def drain(records: list[Record]) -> None:
        for feed, wanted, got in feeds:
            count = sum(wanted(record.key) for record in records)
            deadline = time.monotonic() + 30
            while len(got) < count or not feed.caught_up:
                assert time.monotonic() < deadline
                got += feed.next(0.2)
            for key in {record.key for record in records if wanted(record.key)}:
                assert [(e.seq, e.value) for e in got if e.key == key] == [
                    (r.seq, r.value) for r in records if r.key == key
                ]

    drain(first)
    second = [Record(record.key, b"again") for record in first]
    producer.append(second)
    drain(first + second)
    for feed, _, _ in feeds:
        feed.close()


def test_a_split_and_a_lost_leader_lose_and_repeat_nothing(
    make: Make, three: testing.LocalCluster
) -> None:
    client = make()
    reader = create(client, "moves")
    testing.wait_healthy(three)
    producer = Producer(client, "moves", "writer")
    feed = Follow(client, "moves")
    records: list[Record] = []
    got: list[Entry] = []

    def go_on(count: int) -> None:
        for _ in range(count):
            some = [Record(os.urandom(1), b"%d" % (len(records) + n)) for n in range(5)]
            producer.append(some)
            records.extend(some)
            got.extend(feed.next(0))

    go_on(10)
    for at in (b"\x80", b"\x40"):
        answer = client.ask_any("range_split", {"log": "moves", "at": at})
        assert answer["operation"] > 0
        go_on(20)
        testing.eventually(lambda a=at: begins(client, a), what="the split")
        go_on(10)
    answer = client.ask_any("range_merge", {"log": "moves", "at": b"\x40"})
    go_on(20)
    testing.eventually(lambda: not begins(client, b"\x40"), what="the merge")
    go_on(10)
    _, known = client.locate("moves", b"\x00")
    assert known.id == answer["range"]
    leader = next(
        n for n in three.nodes if n.address == client.nodes[known.leader or known.members[0]]
    )
    leader.kill()
    go_on(20)
    leader.start()
    leader.wait_ready()
    go_on(10)
    deadline = time.monotonic() + 40
    while len(got) < len(records):
        assert time.monotonic() < deadline
        got += feed.next(0.5)
    assert sorted(e.value or b"" for e in got) == sorted(r.value or b"" for r in records)
    assert told(got) == told(reader.span()) == by_sdk(three, "moves")
    for key in {record.key for record in records}:
        assert [e.value for e in got if e.key == key] == [r.value for r in records if r.key == key]


def begins(client: Client, at: bytes) -> bool:
    """Whether the metadata has a range that begins there."""
    return any(known.start == at for known in client.metadata("moves").ranges)


def test_entries_under_a_lease_stay_until_the_lease_ends(
    make: Make, three: testing.LocalCluster
) -> None:
    client = make()
    reader = create(client, "leased", b"m")
    producer = Producer(client, "leased")
    producer.append([Record(b"%c" % (97 + n % 26), os.urandom(300)) for n in range(500)])
    before = told(reader.span())
    snapshot = reader.snapshot(600_000)
    producer.append([Record(b"a", b"later"), Record(b"z", b"later")])
    seq, _ = client.ask("leased", b"a", "resolve", {"key": b"a", "start": "latest"})
    client.ask("leased", b"a", "delete_keys", {"keys": [[b"a", seq["seq"]]]})
    latest = reader.latest(b"b")
    assert latest is not None
    client.ask("leased", b"b", "trim", {"keys": [[b"b", latest.seq]]})
    assert reader.count(b"a") == 0
    assert list(reader.scan(b"b")) == [latest]
    assert told(snapshot.read(page_bytes=10_000)) == before
    assert told(reader.scan(b"a", as_of=snapshot.lease)) == [e for e in before if e[0] == b"a"]
    snapshot.hold(30_000, renew=True)
    snapshot.release()
    assert refusal(lambda: list(snapshot.read())).code == "NOT_FOUND"
    assert refusal(lambda: snapshot.hold(1000, renew=True)).code == "NOT_FOUND"
    assert told(reader.span()) == by_sdk(three, "leased")


def test_conditions_hold_or_say_what_is_there(make: Make) -> None:
    client = make()
    reader = create(client, "conditions")
    producer = Producer(client, "conditions")
    first = Record(b"k", b"1", expect=ABSENT)
    producer.append([first])
    assert first.seq is not None
    producer.append([Record(b"k", b"2", expect=first.seq)])
    failed = refusal(lambda: producer.append([Record(b"k", b"3", expect=ABSENT)]))
    actual = reader.latest(b"k")
    assert actual is not None
    assert (failed.code, failed.outcome) == ("SEQUENCE_MISMATCH", "not_applied")
    assert failed.fields == {"key": b"k", "expected": 0, "actual": actual.seq}
    mixed = [Record(b"n", b"1", expect=ABSENT), Record(b"k", b"4", expect=ABSENT),
             Record(b"n", b"2")]  # fmt: skip
    producer.append(mixed, each=True)
    assert [record.actual for record in mixed] == [None, actual.seq, None]
    assert [e.value for e in reader.scan(b"n")] == [b"1", b"2"]
    assert reader.count(b"k") == 2


def raw(client: Client, known: Range, at: int, operation: str, **body: Any) -> Body:
    """One attempt at one node, without retries."""
    full = {"range": known.id, "generation": known.generation, **body}
    connection = client.at(at)
    return connection.ask(operation, full, time.monotonic() + 10)


def append_error(client: Client, log: str, **body: Any) -> Body:
    """The error of the one batch of an append that the leader refuses."""
    while True:
        answer, _ = client.ask(log, b"k", "append", body)
        (result,) = answer["results"]
        error: Body = result["error"]
        if error["code"] != "NOT_LEADER":
            return error
        client.metadata(log)


def test_errors_have_the_codes_and_details_of_the_page(make: Make, page: Page) -> None:
    def see(what: str, operation: str, body: Body) -> None:
        if what != "request":  # some of them are wrong on purpose
            page.see(what, operation, body)

    client = make(seen=see)
    create(client, "errors")
    producer = Producer(client, "errors", "named")
    producer.append([Record(b"k", b"v")])
    _, known = client.locate("errors", b"k")
    leader = known.leader or known.members[0]
    other = next(node for node in known.members if node != leader)
    batch = pack_batch([Record(b"k", b"x", number=9)], producer.id, producer.epoch, 8, prevs=[8])
    send = {"batches": [batch], "grant": producer.grant}
    error = append_error(client, "errors", **send)
    assert (error["code"], error["fields"]) == ("OUT_OF_ORDER", {"number": 8})
    again = Producer(client, "errors", "named")
    assert again.epoch > producer.epoch
    fenced = refusal(lambda: producer.append([Record(b"k", b"late")]))
    assert (fenced.code, fenced.fields) == ("FENCED", {"epoch": again.epoch})
    # The numbers of the session before are known.
    repeated, new = Record(b"k", b"v"), Record(b"k", b"w")
    again.append([repeated, new])
    assert (repeated.duplicate, new.duplicate) == (True, False)
    assert Reader(client, "errors").count(b"k") == 2

    (result,) = raw(client, known, other, "append", **send)["results"]
    assert result["error"]["code"] == "NOT_LEADER"
    assert result["error"]["fields"]["hint"] != other
    junk = append_error(client, "errors", batches=[b"junk"], grant=producer.grant)
    assert (junk["code"], junk["outcome"]) == ("CORRUPT_DATA", "not_applied")
    assert append_error(client, "errors", batches=[batch])["code"] == "UNAUTHORIZED"

    cases: list[tuple[str, Callable[[], Any]]] = [
        ("LOG_NOT_FOUND", lambda: client.metadata("none")),
        ("LOG_EXISTS", lambda: client.ask_any("create_log", {"name": "errors"})),
        ("LIMIT_EXCEEDED", lambda: raw(client, known, leader, "count", key=b"")),
        ("INVALID_ARGUMENT", lambda: raw(client, known, leader, "count")),
        ("LIMIT_EXCEEDED", lambda: raw(client, known, leader, "count", key=bytes(481))),
        ("INVALID_ARGUMENT", lambda: raw(client, known, leader, "scan", key=b"k", limit=20_001)),
        ("NODE_NOT_FOUND", lambda: raw(client, known, leader, "count", key=b"k", node=99)),
        ("GENERATION_MISMATCH",
         lambda: raw(client, known, leader, "count", key=b"k", generation=known.generation + 9)),
        ("RANGE_NOT_FOUND", lambda: raw(client, known, leader, "count", key=b"k", range=99_999)),
        ("NOT_FOUND", lambda: raw(client, known, leader, "count", key=b"k", as_of="none")),
    ]  # fmt: skip
    for code, call in cases:
        error = refusal(call)
        assert (error.code, error.outcome) == (code, "not_applied"), error


def test_an_unknown_operation_is_unsupported_and_harms_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, three: testing.LocalCluster
) -> None:
    monkeypatch.setitem(OPERATIONS, "of_the_future", 60_000)
    client = make(seen=lambda what, operation, body: None)
    connection = client.connect(three.nodes[0].address)
    deadline = time.monotonic() + 10
    error = refusal(lambda: connection.ask("of_the_future", {}, deadline))
    assert (error.code, error.outcome) == ("UNSUPPORTED", "not_applied")
    assert connection.ask("metadata", {"of_the_future": 1}, deadline)["cluster"] == client.cluster


def test_bytes_that_are_not_the_protocol_end_the_connection(
    make: Make, three: testing.LocalCluster
) -> None:
    client = make()
    connection = client.connect(three.nodes[0].address)
    connection._socket.sendall(bytes.fromhex("000000040000000093010b80"))  # a wrong checksum
    error = refusal(lambda: connection.ping(time.monotonic() + 10))
    assert (error.code, error.outcome, error.lost) == ("REMOTE_PROTOCOL_ERROR", "unknown", True)


def test_a_token_of_one_s_own_allows_what_it_says(make: Make, three: testing.LocalCluster) -> None:
    admin = make()
    create(admin, "acme/own")
    create(admin, "other")
    token = f"{os.urandom(8).hex()}.{os.urandom(32).hex()}"
    made = admin.ask_any("token_create", {
        "id": token[:16], "digest": hashlib.sha256(token.encode()).digest(), "principal": "app",
        "scopes": [[["read", "append"], "acme/*", b"*"]],
    })  # fmt: skip
    assert made["id"] == token[:16]
    app = make(token=token)
    assert [log["name"] for log in app.logs()] == ["acme/own"]
    Producer(app, "acme/own").append([Record(b"k", b"v")])
    assert Reader(app, "acme/own").count(b"k") == 1
    for call in (
        lambda: app.metadata("other"),
        lambda: app.ask_any("create_log", {"name": "acme/new"}),
        lambda: app.ask("acme/own", b"k", "trim", {"keys": [[b"k", 1]]}),
    ):
        assert refusal(call).code == "UNAUTHORIZED"
    address = three.nodes[0].address
    for wrong in (f"{token[:-1]}_", None):
        error = refusal(lambda w=wrong: make(token=w).connect(address))
        assert (error.code, error.outcome) == ("UNAUTHORIZED", "not_applied")
    listed = admin.ask_any("token_list", {})["tokens"]
    assert [row["principal"] for row in listed].count("app") == 1
    admin.ask_any("token_revoke", {"id": token[:16]})
    ended = refusal(lambda: [time.sleep(0.1) or app.connect(address).ping(time.monotonic() + 5)
                             for _ in range(100)])  # fmt: skip
    assert ended.code == "UNAUTHORIZED"


def test_administration_by_the_page(make: Make) -> None:
    client = make()
    create(client, "rules")
    changes = {"retention_ms": 3_600_000, "split_rate": None}
    policy = client.ask_any("alter_log", {"name": "rules", "changes": changes})["policy"]
    assert (policy["retention_ms"], policy["split_rate"]) == (3_600_000, None)
    (row,) = [log for log in client.logs() if log["name"] == "rules"]
    assert row["policy"] == policy
    Producer(client, "rules", "operator").append([Record(b"k", b"v")])
    names = [row["name"] for row in client.ask_any("producers", {})["producers"]]
    assert "operator" in names
    client.ask_any("producer_delete", {"name": "operator"})
    client.ask_any("quota_set", {"name": "slow", "limits": {"requests": 1000}})
    (quota,) = client.ask_any("quota_list", {})["quotas"]
    assert quota == {"name": "slow", "limits": {"requests": 1000}}
    client.ask_any("quota_delete", {"name": "slow"})
    ranges = client.ask_any("ranges", {})["ranges"]
    _, known = client.locate("rules", b"k")
    assert known.id in [row["id"] for row in ranges]
    target = next(node for node in known.members if node != known.leader)
    moved = client.ask_any("range_transfer", {"range": known.id, "node": target})
    assert moved["leader"] == target
    assert Reader(client, "rules").count(b"k") == 1

    def answering() -> list[int]:
        members = client.ask_any("range_recovery", {"range": known.id})["members"]
        return [row["node"] for row in members if row["answers"]]

    testing.eventually(lambda: answering() == list(known.members), what="an answer of each member")
    assert refusal(lambda: client.ask_any("node_drain", {"node": 3})).code == "CONFLICT"
    assert client.ask_any("node_drain", {"node": 3, "undo": True})["state"] == "ACTIVE"
    digest = hashlib.sha256(b"an invitation").digest()
    invitation = {"id": os.urandom(8).hex(), "digest": digest}
    expires_ms = int(time.time() * 1000) + 60_000
    client.ask_any("node_invite", {**invitation, "expires_ms": expires_ms})
    invited = client.ask_any("node_invites", {})["invites"]
    assert invitation["id"] in [row["id"] for row in invited]
    client.ask_any("node_uninvite", {"id": invitation["id"]})
    for operation in RARE:
        assert client.ask_any(operation, {})
    client.ask_any("delete_log", {"name": "rules"})

    def is_unknown() -> bool:
        try:
            client.metadata("rules")
        except Refused as refused:
            return refused.code == "LOG_NOT_FOUND"
        return False

    testing.eventually(is_unknown, what="each node knows that the log is deleted")


def test_two_producers_at_once_keep_the_order_of_each_key(
    make: Make, three: testing.LocalCluster
) -> None:
    create(make(), "two", b"m")
    testing.wait_healthy(three)
    done: dict[int, list[Record]] = {}

    def write(number: int) -> None:
        producer = Producer(make(), "two")
        done[number] = []
        for n in range(30):
            some = [Record(b"%c" % (97 + at), b"%d-%d" % (number, n)) for at in range(26)]
            producer.append(some)
            done[number] += some

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = list(Reader(make(), "two").span())
    assert len(entries) == len({(e.key, e.seq) for e in entries}) == 2 * 30 * 26
    for number, records in done.items():
        for record in records:
            assert record.seq is not None
        mine = [e for e in entries if (e.value or b"").startswith(b"%d-" % number)]
        for key in {record.key for record in records}:
            assert [e.value for e in mine if e.key == key] == [
                r.value for r in records if r.key == key
            ]


def test_the_client_has_used_each_operation_that_it_knows(page: Page) -> None:
    """The last of this file: an operation that no test sends was never held against the page."""
    sent = {operation for operation, what in page.seen if what == "request"}
    assert set(OPERATIONS) == sent
    answered = {operation for operation, what in page.seen if what in ("answer", "push")}
    assert sent - answered <= {"producer_close"}
    assert {("ERROR", "frame"), ("HELLO", "frame"), ("WELCOME", "frame"), ("CREDIT", "frame")} <= (
        page.seen
    )
