"""Tokens on three real nodes: who gets in, what each may do, and what ends with a token."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.protocol import limits
from lognode.client.protocol.private_files import write_private
from lognode.client.tokens import id_of
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster

HEARTBEAT_S = 0.5


@pytest.fixture(scope="module")
def shared(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3, auth=True) as cluster:
        testing.wait_healthy(cluster)
        with admin(cluster) as client:
            for name in ("acme/a", "acme/b", "other"):
                client.create_log(name, ranges=2)
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def three(shared: testing.LocalCluster) -> testing.LocalCluster:
    """The same three nodes for all tests, healthy, with the logs acme/a, acme/b and other."""
    testing.wait_healthy(shared)
    return shared


def admin(cluster: testing.LocalCluster) -> lognode.Client:
    return lognode.Client(cluster.servers, timeout=20)


def nodes(cluster: testing.LocalCluster) -> str:
    """The address without the token that it names."""
    return cluster.servers.partition("?")[0]


def create(cluster: testing.LocalCluster, name: str, *scopes: str, **options: Any) -> str:
    with admin(cluster) as client:
        made: str = client.admin.create_token(name, scopes, **options)["token"]
        return made


def refused(call: Callable[[], Any], match: str = "token") -> None:
    with pytest.raises(lognode.Unauthorized, match=match):
        call()


def address(node: LocalNode) -> str:
    return f"lognode://{node.address}"


def test_the_founder_wrote_the_first_token_to_a_private_file(three: testing.LocalCluster) -> None:
    path = three.nodes[0].data / "admin.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert three.token is not None
    others = [node.data / "admin.token" for node in three.nodes[1:]]
    assert not any(other.exists() for other in others)
    for node in three.nodes:
        text = node.log_path.read_text()
        assert three.token.partition(".")[2] not in text
    assert id_of(three.token) in three.nodes[0].log_path.read_text()


def test_nobody_gets_in_without_a_token(three: testing.LocalCluster) -> None:
    for node in three.nodes:
        with lognode.Client(address(node), timeout=5) as client:
            refused(client.logs, "give a token")
            refused(lambda client=client: client.log("other").append("k", b"v"), "give a token")
        with lognode.Client(address(node), token="0" * 16 + "." + "a" * 43, timeout=5) as client:
            refused(client.status, "unknown or revoked")


def test_a_new_token_is_good_at_every_node_at_once(three: testing.LocalCluster) -> None:
    for turn in range(12):
        token = create(three, f"app{turn}", "read acme/a")
        for node in three.nodes:
            with lognode.Client(address(node), token=token, timeout=5) as client:
                assert [log["name"] for log in client.logs()] == ["acme/a"]


def test_tokens_that_no_single_answer_holds_are_all_listed(three: testing.LocalCluster) -> None:
    scopes = [f"read,append {at:0120}* {at:0470}*" for at in range(16)]
    with admin(three) as client:
        before = {row["id"] for row in client.admin.tokens()}
        made = [
            client.admin.create_token(f"paged{at % 7}", scopes, quota_class=str(at))["id"]
            for at in range(60)
        ]
        try:
            sizes = 60 * sum(map(len, scopes))
            assert sizes > 2 * limits.tokens_page_bytes  # three answers at least
            for node in three.nodes:
                with lognode.Client(address(node), token=three.token, timeout=20) as other:
                    rows = other.admin.tokens()
                assert {row["id"] for row in rows} - before == set(made)
                assert len(rows) == len({row["id"] for row in rows})
                order = [(row["principal"], row["created_ms"]) for row in rows]
                assert order == sorted(order)
                classes = {row["id"]: row["quota_class"] for row in rows}
                assert [classes[each] for each in made] == [str(at) for at in range(60)]
        finally:
            for each in made:
                client.admin.revoke_token(each)
        assert {row["id"] for row in client.admin.tokens()} == before


def test_a_tenant_sees_and_uses_its_own_logs_alone(three: testing.LocalCluster) -> None:
    token = create(three, "acme", "read,append,trim,admin,describe acme/*")
    with admin(three) as other:
        other.log("other").append("k", b"theirs")
    with lognode.Client(nodes(three), token=token, timeout=10) as client:
        assert {log["name"] for log in client.logs()} == {"acme/a", "acme/b"}
        assert {row["name"] for row in client.status()["logs"]} == {"acme/a", "acme/b"}
        assert {row["log"] for row in client.admin.ranges()} == {"acme/a", "acme/b"}
        log = client.log("acme/a")
        ack = log.append("mine", b"v")
        assert [entry.value for entry in log.scan("mine")][-1:] == [b"v"]
        log.trim("mine", before=ack.seq + 1)
        client.create_log("acme/new").append("k", b"v")
        client.delete_log("acme/new")
        for call in (
            lambda: client.log("other").append("k", b"v"),
            lambda: list(client.log("other").scan("k")),
            lambda: client.metadata("other"),
            lambda: client.metadata("there is none"),
            lambda: client.create_log("other2"),
            lambda: client.delete_log("other"),
            lambda: client.health(),
            lambda: client.admin.tokens(),
            lambda: client.admin.create_token("eve", ["all"]),
            lambda: client.admin.drain(2, wait=False),
        ):
            refused(call)
    with admin(three) as other:
        assert [entry.value for entry in other.log("other").scan("k")] == [b"theirs"]


def test_a_scope_of_keys_holds_for_batches_of_many_ranges(three: testing.LocalCluster) -> None:
    token = create(three, "keys", "read,append acme/b user-*", "append acme/b audit")
    with lognode.Client(nodes(three), token=token, timeout=10) as client:
        log = client.log("acme/b")
        log.append_many([(f"user-{n}", b"v") for n in range(500)])
        log.append("audit", b"v")
        refused(lambda: log.append("user", b"v"), "outside of the keys")
        refused(lambda: list(log.scan("audit")))
        with pytest.raises(lognode.LognodeError) as caught:
            log.append_many([("user-1", b"w"), ("zebra", b"w")])
        assert "outside of the keys" in str(caught.value)
        assert len(list(log.keys(prefix="user-"))) == 500
        refused(lambda: list(log.keys()))
    with admin(three) as other:
        assert set(other.log("acme/b").keys()) == {
            *(b"user-%d" % n for n in range(500)), b"audit"
        }  # fmt: skip


def test_a_scope_of_a_pattern_holds_in_a_log_with_a_hierarchy(three: testing.LocalCluster) -> None:
    keys = [f"{area}/{n}/{kind}" for area in ("eu", "us") for n in range(40)
            for kind in ("orders", "seen")]  # fmt: skip
    with admin(three) as other:
        shop = other.create_log("acme/shop", hierarchy="/", split_at=["eu/3", "m"])
        shop.append_many([(key, b"v") for key in keys])
    scopes = ("read acme/shop pattern:eu/*/orders", "append acme/shop pattern:eu/1*/>")
    token = create(three, "shopper", *scopes)
    with admin(three) as other:
        (row,) = (row for row in other.admin.tokens() if row["id"] == id_of(token))
        assert row["scopes"] == list(scopes)
    due = sorted(key.encode() for key in keys if key[:3] == "eu/" and key.endswith("orders"))
    with lognode.Client(nodes(three), token=token, timeout=10) as client:
        log = client.log("acme/shop")
        assert [entry.value for entry in log.scan("eu/7/orders")] == [b"v"]
        assert list(log.keys(pattern="eu/*/orders")) == due
        assert list(log.keys(pattern="eu/3*/orders")) == [k for k in due if k[:4] == b"eu/3"]
        columns = log.scan_columns(pattern=["eu/*/orders", "!eu/7/>"])
        found = sorted(entry.key for batch in columns for entry in batch.entries())
        assert found == [key for key in due if key != b"eu/7/orders"]
        with log.follow(pattern="eu/*/orders", start="latest") as feed:
            log.append_many([("eu/11/orders", b"w"), ("eu/12/new", b"w")])
            batch = next(feed)
            while not batch.entries:
                batch = next(feed)
            assert [(entry.key, entry.value) for entry in batch] == [(b"eu/11/orders", b"w")]
        for call in (
            lambda: list(log.scan("eu/7/seen")), lambda: list(log.keys()),
            lambda: list(log.keys(prefix="eu/")), lambda: list(log.keys(pattern="eu/>")),
            lambda: list(log.keys(pattern="us/*/orders")), lambda: list(log.scan_columns()),
            lambda: list(log.scan_columns(prefix="eu/7/orders")), log.snapshot,
            lambda: log.follow(pattern="*/7/orders", start="earliest").open(),
            lambda: log.cursor("c", pattern="eu/*/orders").open(),
            lambda: log.append("eu/2/orders", b"w"), lambda: log.trim("eu/1/orders", before=9),
            lambda: log.append_many([("eu/11/orders", b"x"), ("eu/2/orders", b"x")]),
        ):  # fmt: skip
            refused(call)
        refused(lambda: list(log.keys(pattern="eu/*")), "allows single keys that match, and reads")
    with admin(three) as other:
        other.delete_log("acme/shop")


def _follow_until_it_ends(feed: Any, into: list[Any], began: threading.Event) -> None:
    try:
        with feed:
            for batch in feed:
                into.append(batch)
                began.set()
    except lognode.LognodeError as error:
        into.append((error, time.monotonic()))


@pytest.mark.parametrize("end", ["revoke", "expire"])
def test_follows_at_every_node_end_with_their_token(three: testing.LocalCluster, end: str) -> None:
    """Within a heartbeat, and with the reason."""
    expires_s = 4.0 if end == "expire" else None
    with admin(three) as other:
        other.log("acme/a").append("followed", b"v")
    began_s = time.monotonic()
    token = create(three, "follower", "read acme/a", expires_s=expires_s)
    seen: list[list[Any]] = [[] for _ in three.nodes]
    clients, threads = [], []
    for node, into in zip(three.nodes, seen, strict=True):
        client = lognode.Client(address(node), token=token, timeout=5)
        clients.append(client)
        began = threading.Event()
        feed = client.log("acme/a").follow(keys=["followed"], start="earliest")
        thread = threading.Thread(target=_follow_until_it_ends, args=(feed, into, began))
        thread.start()
        threads.append(thread)
        assert began.wait(10)
    if end == "revoke":
        with admin(three) as other:
            other.log("acme/a").append("followed", b"w")  # the client is connected
            began_s = time.monotonic()
            other.admin.revoke_token(id_of(token))
    for thread in threads:
        thread.join(10)
    for client in clients:
        client.close()
    for into in seen:
        error, ended_s = into[-1]
        assert isinstance(error, lognode.Unauthorized), error
        assert ("unknown or revoked" if end == "revoke" else "expired") in error.message
        assert ended_s - began_s < (expires_s or 0) + 2 * HEARTBEAT_S + 1.0


def test_a_revoked_token_appends_nothing_more(three: testing.LocalCluster) -> None:
    """Every append that was acknowledged is there, and none comes after the refusal."""
    token = create(three, "writer", "append acme/a")
    acked: list[int] = []
    ended: list[lognode.LognodeError] = []

    def write() -> None:
        with lognode.Client(nodes(three), token=token, timeout=10) as client:
            try:
                while True:
                    acked.append(client.log("acme/a").append("written", b"v").seq)
            except lognode.LognodeError as error:
                ended.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    testing.eventually(lambda: len(acked) > 20)
    with admin(three) as other:
        other.admin.revoke_token(id_of(token))
        thread.join(15)
        assert [type(error) for error in ended] == [lognode.Unauthorized]
        assert set(acked) <= {entry.seq for entry in other.log("acme/a").scan("written")}


def test_a_restarted_node_knows_the_tokens(three: testing.LocalCluster) -> None:
    token = create(three, "restarted", "read acme/a")
    node = three.nodes[1]
    node.kill()
    node.start()
    node.wait_ready()
    with lognode.Client(address(node), token=token, timeout=10) as client:
        assert [log["name"] for log in client.logs()] == ["acme/a"]
    with lognode.Client(address(node), timeout=5) as client:
        refused(client.logs)


def _http(node: LocalNode, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(node.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_http_shows_metrics_and_status_to_clients_with_the_right(
    three: testing.LocalCluster,
) -> None:
    node = three.nodes[2]
    scraper = {"Authorization": f"Bearer {create(three, 'prometheus', 'describe')}"}
    tenant = {"Authorization": f"Bearer {create(three, 'acme', 'describe acme/*')}"}
    reader = {"Authorization": f"Bearer {create(three, 'reader', 'read')}"}
    assert _http(node, "/healthz")[0] == _http(node, "/readyz")[0] == 200
    for path in ("/metrics", "/status.json"):
        assert _http(node, path)[0] == 401
        assert _http(node, path, Authorization="Basic eDp5")[0] == 401
        assert _http(node, path, Authorization="Bearer x")[0] == 401
        assert _http(node, path, **reader)[0] == 403
        assert _http(node, path, **scraper)[0] == 200
    assert _http(node, "/metrics", **tenant)[0] == 403
    status = json.loads(_http(node, "/status.json", **tenant)[1])
    assert {row["name"] for row in status["logs"]} == {"acme/a", "acme/b"}
    assert all("start" not in row for row in status["ranges"])
    everything = json.loads(_http(node, "/status.json", **scraper)[1])
    assert {row["name"] for row in everything["logs"]} >= {"_audit", "acme/a", "acme/b"}
    assert "start" not in json.dumps(everything["ranges"])


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:4680", 421), ("localhost.evil.example", 421),
     ("localhost:1", 200), ("LOCALHOST", 200), ("127.0.0.1", 200), ("[::1]:80", 200),
     ("10.1.2.3", 200), ("", 421)],
)  # fmt: skip
def test_http_answers_to_its_own_names_alone(
    three: testing.LocalCluster, host: str, status: int
) -> None:
    assert _http(three.nodes[0], "/healthz", Host=host)[0] == status


def test_no_secret_is_to_be_seen(three: testing.LocalCluster, tmp_path: Path) -> None:
    """Neither in logs, status, metrics, nor in the arguments of any process; nor in open files."""
    token = create(three, "secret", "all")
    path = tmp_path / "token"
    write_private(path, token.encode())
    command = [sys.executable, "-m", "lognode.node.main", "log", "list", "--server",
               three.nodes[0].address, "--token-file", str(path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "acme/a" in done.stdout) == (0, True), done.stderr
    with lognode.Client(nodes(three), token=token, timeout=10) as client:
        shown = [repr(client), json.dumps(client.status(), default=repr)]
        shown += [repr(client.admin.tokens()), done.stdout, done.stderr]
    refused_by = lognode.Client(nodes(three), token=token[:-1], timeout=5)
    with refused_by as client, pytest.raises(lognode.Unauthorized) as caught:
        client.logs()
    shown.append(str(caught.value))
    bearer = {"Authorization": f"Bearer {token}"}
    for node in three.nodes:
        shown += [_http(node, "/metrics", **bearer)[1], _http(node, "/status.json", **bearer)[1]]
        shown += [node.log_path.read_text(), Path(f"/proc/{node.pid}/cmdline").read_text()]
        for path in (node.data, *node.data.rglob("*")):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert three.token is not None
    of_nodes = (three.root / "secret").read_text().strip()
    for secret in (token.partition(".")[2][:-1], three.token.partition(".")[2], of_nodes):
        assert len(secret) > 30
        assert not any(secret in text for text in shown)


def test_the_command_line_creates_lists_and_revokes(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    ours, out = tmp_path / "admin", tmp_path / "app"
    assert three.token is not None
    write_private(ours, three.token.encode())

    def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "lognode.node.main", *arguments, "--server",
                   three.nodes[0].address]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, **environment},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    by_file = ("--token-file", str(ours))
    code, made, told = run("token", "create", "cli", "--scope", "read acme/a", *by_file)
    assert (code, made.strip()[:16]) == (0, id_of(made.strip()))
    assert "shown only now" in told
    code, listed, _ = run("log", "list", LOGNODE_TOKEN=made.strip())
    assert (code, "acme/a" in listed, "other" in listed) == (0, True, False)
    code, shown, _ = run("token", "create", "file", "--scope", "read", "--expires", "1h",
                         "--quota-class", "gold", "--out", str(out), *by_file)  # fmt: skip
    assert (code, shown.strip()) == (0, id_of(out.read_text().strip()))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    code, listed, _ = run("token", "list", "--format", "json", *by_file)
    rows = {row["id"]: row for row in json.loads(listed)}
    assert rows[shown.strip()]["quota_class"] == "gold"
    assert rows[shown.strip()]["scopes"] == ["read"]
    assert rows[id_of(made.strip())]["expires_ms"] is None
    code, _, _ = run("token", "revoke", id_of(made.strip()), "--yes", *by_file)
    assert code == 0
    assert run("token", "revoke", id_of(made.strip()), "--yes", *by_file)[0] == 4
    code, _, told = run("log", "list", LOGNODE_TOKEN=made.strip())
    assert (code, "unknown or revoked" in told) == (1, True)
    assert run("token", "create", "bad", "--scope", "fly", *by_file)[0] == 1
    os.chmod(ours, 0o644)
    code, _, told = run("log", "list", *by_file)
    assert (code, "chmod 600" in told) == (1, True)


def test_a_token_may_revoke_itself_but_for_the_last(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, auth=True) as cluster:
        with admin(cluster) as client:
            assert cluster.token is not None
            with pytest.raises(lognode.Conflict, match="the last token"):
                client.admin.revoke_token(id_of(cluster.token))
        other = create(cluster, "other", "all")
        with lognode.Client(nodes(cluster), token=other, timeout=10) as client:
            client.admin.revoke_token(id_of(other))
            refused(client.logs)


def test_nodes_without_a_secret_have_no_tokens(tmp_path: Path) -> None:
    """Any client that claims to be a node would be believed."""
    with testing.cluster(tmp_path, 1) as cluster, lognode.Client(cluster.servers) as client:
        with pytest.raises(lognode.Conflict, match="--secret-file"):
            client.admin.create_token("admin", ["all"])
        assert client.admin.tokens() == []


def test_the_first_token_turns_strangers_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write_private(secret, b"0123456789abcdef0123456789abcdef")
    flags = ("--secret-file", str(secret))
    with testing.cluster(tmp_path / "c", 1, flags=flags) as cluster:
        with lognode.Client(cluster.servers, timeout=5) as client:
            client.create_log("log").append("k", b"v")
            with pytest.raises(lognode.Conflict, match="scope `all` and without expiry"):
                client.admin.create_token("app", ["read"])
            made = client.admin.create_token("admin", ["all"])
            testing.eventually(lambda: _is_out(client))
        with lognode.Client(nodes(cluster), token=made["token"], timeout=5) as client:
            assert [entry.value for entry in client.log("log").scan("k")] == [b"v"]
        node = cluster.nodes[0]
        node.stop()
        node._flags = ()
        node.start()
        assert node.wait_end(20) == 1
        assert "do not prove their identity" in node.log_tail()


def _is_out(client: lognode.Client) -> bool:
    try:
        client.logs()
    except lognode.Unauthorized:
        return True
    return False


def test_a_founder_that_ends_early_goes_on_with_the_token_of_its_file(tmp_path: Path) -> None:
    """It is killed over and over around the moment at which the cluster is founded."""
    local = testing.LocalCluster(tmp_path, 1, auth=True)
    node = local.nodes[0]
    path = node.data / "admin.token"
    seen: set[str] = set()
    try:
        for turn in range(6):
            node.start()
            testing.eventually(path.exists)
            time.sleep(0.02 * turn)
            node.kill()
            seen.add(path.read_text().strip())
        local.start()
        assert len(seen) == 1
        (token,) = seen
        with lognode.Client(nodes(local), token=token, timeout=10) as client:
            assert [row["id"] for row in client.admin.tokens()] == [id_of(token)]
    finally:
        local.stop()
