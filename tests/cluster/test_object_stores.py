"""Stores of objects, each held against the one contract: a directory, and a real S3 server."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_servers import (
    KEYS,
    Fault,
    Faults,
    S3Server,
    made_user,
    s3_server,
    spoiling_proxy,
)

from lognode.client.objects import places
from lognode.client.objects.store import ObjectStore
from lognode.client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    NotFound,
    Unauthorized,
    Unavailable,
)

pytestmark = pytest.mark.cluster
PATIENCE_S = 1.5
buckets = (f"bucket-{at}" for at in itertools.count())


@pytest.fixture(
    scope="module", params=["moto", pytest.param("versitygw", marks=pytest.mark.by_hand)]
)
def server(request: pytest.FixtureRequest, module_path: Path) -> Iterator[S3Server]:
    with s3_server(module_path, request.param) as found:
        yield found


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.bucket(next(buckets))


@pytest.fixture
def faults(server: S3Server) -> Iterator[Faults]:
    with spoiling_proxy(server) as found:
        yield found


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, server: S3Server) -> ObjectStore:
    if request.param == "directory":
        if server.kind == "versitygw":
            pytest.skip("a directory needs no server")
        return places.opened(str(tmp_path / "not" / "there"))
    return s3(server.endpoint, server.bucket(next(buckets)))


def s3(
    endpoint: str, bucket: str, prefix: str = "a/prefix", *, patience_s: float = 20.0
) -> ObjectStore:
    return places.opened(
        f"s3://{bucket}/{prefix}", endpoint=endpoint, patience_s=patience_s, environment=KEYS
    )


def test_a_store_keeps_objects_and_replaces_them_only_on_request(store: ObjectStore) -> None:
    content = os.urandom(6 << 20)  # more than one part of an upload in parts
    assert store.get("folder/one", 100) is None
    assert store.get_range("folder/one", 0, 1) is None
    assert list(store.objects("folder")) == []
    assert store.put("folder/one", content)
    assert store.get("folder/one", len(content)) == content
    assert store.get_range("folder/one", 3, 2_000_000) == content[3:2_000_000]
    assert not store.put("folder/one", b"other")
    assert store.get("folder/one", len(content)) == content
    assert store.put("folder/one", b"newer", replace=True)
    assert store.get("folder/one", 5) == b"newer"
    assert store.put("empty", b"")
    assert store.get("empty", 0) == b""
    store.delete("folder/one")
    store.delete("folder/one")
    assert store.get("folder/one", 100) is None
    assert [listed.name for listed in store.objects()] == ["empty"]


def test_a_store_refuses_what_its_contract_forbids(store: ObjectStore) -> None:
    store.put("one", b"12345")
    with pytest.raises(CorruptData, match="one has more than 4 bytes"):
        store.get("one", 4)
    for begin, end in ((3, 6), (5, 6), (100, 200)):
        with pytest.raises(CorruptData, match=f"one ends before byte {end}"):
            store.get_range("one", begin, end)
    for begin, end in ((-1, 3), (2, 2), (3, 2)):
        with pytest.raises(InvalidArgument, match="must be 0 or more and below the end"):
            store.get_range("one", begin, end)
    calls: list[Callable[[str], object]] = [
        lambda name: store.get(name, 1), lambda name: store.put(name, b""), store.delete,
        lambda name: store.get_range(name, 0, 1), lambda name: list(store.objects(name or "/")),
    ]  # fmt: skip
    for name in ("", "/one", "one/", "../one", "a//b", "a/.hidden", "a b", "a\n", "ä", "x" * 513):
        for call in calls:
            with pytest.raises(InvalidArgument, match="is not the name of an object"):
                call(name)


def test_listings_are_in_the_order_of_names(store: ObjectStore) -> None:
    names = [f"list/{at % 13:02}-{at:02}" for at in range(40)]
    names += ["list/00/a", "list/00.b", "list-not/a", "other"]
    for name in names:
        store.put(name, b"x")
    wanted = sorted(name for name in names if name.startswith("list/"))
    assert [listed.name for listed in store.objects("list")] == wanted
    assert {listed.size for listed in store.objects("list")} == {1}
    assert [listed.name for listed in store.objects()] == sorted(names)


def test_a_listing_that_begins_anew_ends(server: S3Server, faults: Faults, bucket: str) -> None:
    if server.kind == "versitygw":
        pytest.skip("the server checks signatures, so that no proxy can change a request")
    store = s3(faults.endpoint, bucket)
    store.put("a", b"x")
    faults.same_pages = True
    with pytest.raises(InvalidArgument, match="repeats names in a listing"):
        list(store.objects())


def test_one_of_several_writers_of_a_name_wins(store: ObjectStore) -> None:
    won: list[bytes] = []
    start = threading.Barrier(6)

    def write(content: bytes) -> None:
        start.wait()
        if store.put("same", content):
            won.append(content)

    threads = [threading.Thread(target=write, args=(b"%d" % at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("same", 1) == won[0]


def test_a_directory_without_hard_links_serves_as_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = places.opened(str(tmp_path))
    assert store.put("a/b", b"one")
    assert not store.put("a/b", b"two")
    assert store.get("a/b", 3) == b"one"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = places.opened(str(tmp_path / "file"))
    for call in (lambda: store.put("a/b", b""), lambda: store.get("a/b", 1)):
        with pytest.raises(Unavailable, match=r"file: .*\. Check the disk and the rights") as error:
            call()
        assert error.value.store == store.place


@pytest.mark.parametrize("fault", ["500", "503", "lost", "cut", "silent"])
def test_requests_are_repeated_after_faults_that_pass(
    faults: Faults, bucket: str, fault: Fault
) -> None:
    """Every second request fails, each kind of request several times; every third is silent, since
    one call has no time for two silent requests."""
    store = s3(faults.endpoint, bucket, patience_s=PATIENCE_S)
    each = 3 if fault == "silent" else 2
    faults.choose = lambda asked: fault if asked.number % each == 1 else None
    rounds = 1 if fault == "silent" else 3
    for at in range(rounds):
        assert store.put(f"f/{at}", b"content %d" % at), "the object is of this call"
        assert not store.put(f"f/{at}", b"another")
        assert store.get(f"f/{at}", 100) == b"content %d" % at
        assert store.get_range(f"f/{at}", 2, 7) == b"ntent"
        assert [each.name for each in store.objects("f")] == [f"f/{up}" for up in range(at + 1)]
    store.delete("f/0")
    assert store.get("f/0", 100) is None
    assert len(faults.asked) >= 2 * 5 * rounds


@pytest.mark.parametrize("fault", ["500", "cut", "silent"])
def test_a_store_that_stays_away_is_given_up_in_time(
    faults: Faults, bucket: str, fault: Fault
) -> None:
    store = s3(faults.endpoint, bucket, patience_s=PATIENCE_S)
    faults.choose = lambda asked: fault
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"content"), lambda: store.get("a", 10),
        lambda: list(store.objects()),
    ]  # fmt: skip
    for call in calls[: 1 if fault == "silent" else 3]:
        begun, before = time.monotonic(), len(faults.asked)
        with pytest.raises(Unavailable, match="gave no useful answer in") as error:
            call()
        assert PATIENCE_S / 3 <= time.monotonic() - begun < PATIENCE_S + 1
        assert len(faults.asked) - before >= 2, "repeated"
        assert error.value.store == store.place
        assert error.value.outcome == "not_applied"


def test_a_put_and_its_read_back_have_one_time_limit(faults: Faults, bucket: str) -> None:
    """The answer to the first attempt is lost, so the third finds the object and reads it back."""
    store = s3(faults.endpoint, bucket, patience_s=2 * PATIENCE_S)
    puts = iter(("lost", "silent", None))
    faults.choose = lambda asked: next(puts, None) if asked.method == "PUT" else "silent"
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="gave no useful answer in"):
        store.put("a", b"content")
    assert time.monotonic() - begun < 2 * PATIENCE_S
    assert [asked.method for asked in faults.asked] == ["PUT", "PUT", "PUT", "GET"]


def test_an_upload_that_arrives_damaged_is_found(
    server: S3Server, faults: Faults, bucket: str
) -> None:
    """A server without a check of hashes takes other bytes; the ETag shows the difference. Another
    server refuses the bytes, and they are sent again."""
    store = s3(faults.endpoint, bucket)
    damage = iter((b"!",))
    faults.change = lambda body: body[:-1] + next(damage, body[-1:])
    if server.kind == "versitygw":
        assert store.put("a", b"content")
        assert store.get("a", 7) == b"content"
        assert [asked.method for asked in faults.asked] == ["PUT", "PUT", "GET"]
    else:
        with pytest.raises(CorruptData, match="the store has other bytes of object a"):
            store.put("a", b"content")
    faults.tag = '"0123"'  # an ETag that is not the MD5: the object is read back
    assert store.put("b", b"content")
    assert faults.asked[-1][:2] == ("GET", f"/{bucket}/a/prefix/b")


def test_a_store_without_conditional_puts_serves(faults: Faults, bucket: str) -> None:
    faults.choose = lambda asked: "501" if asked.conditional else None
    store = s3(faults.endpoint, bucket)
    assert store.put("a", b"one")
    assert not store.put("a", b"two")
    assert store.put("b", b"one")
    assert store.get("a", 3) == b"one"
    assert [asked.method for asked in faults.asked] == [
        "PUT", "HEAD", "PUT", "HEAD", "HEAD", "PUT", "GET",
    ]  # fmt: skip


def refused(call: Callable[[], object], kind: type[LognodeError], text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(kind, match=text):
        call()
    assert time.monotonic() - begun < 2, "nothing was repeated"


def test_a_missing_bucket_and_another_region_are_named(
    server: S3Server, faults: Faults, bucket: str
) -> None:
    store = s3(server.endpoint, "no-bucket")
    calls: list[Callable[[], object]] = [
        lambda: store.get("a", 1), lambda: store.put("a", b"x"), lambda: store.delete("a"),
        lambda: list(store.objects()), lambda: store.get_range("a", 0, 1),
    ]  # fmt: skip
    for call in calls:
        refused(call, NotFound, "no-bucket.* has no such bucket. Create the bucket")
    faults.choose = lambda asked: "redirect"
    elsewhere = s3(faults.endpoint, bucket)
    refused(lambda: elsewhere.get("a", 1), InvalidArgument, "not in the region us-east-1. Give the")


def test_refused_credentials_are_named(module_path: Path) -> None:
    with s3_server(module_path) as server:
        if os.environ.get("LOGNODE_S3"):
            pytest.skip("only moto's server makes users for this test")
        bucket = server.bucket("guarded")
        good, idle = made_user(server, allowed=True), made_user(server, allowed=False)
        server.refuse_strangers()

        def store(environment: dict[str, str]) -> ObjectStore:
            return places.opened(
                f"s3://{bucket}/x", endpoint=server.endpoint, environment=environment
            )

        assert store(good).put("a", b"x")
        refused(lambda: store(KEYS).get("a", 1), Unauthorized, "refused .*InvalidAccessKeyId")
        wrong = good | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        refused(
            lambda: store(wrong).put("b", b"x"), Unauthorized, r"SignatureDoesNotMatch.*Give cred"
        )
        refused(lambda: list(store(idle).objects()), Unauthorized, "AccessDenied")


def test_missing_credentials_are_named(bucket: str, server: S3Server, tmp_path: Path) -> None:
    """obstore asks the machine for credentials; here the machine is a port that nobody has."""
    program = (
        "from lognode.client.objects import places\n"
        f"store = places.opened('s3://{bucket}/x', endpoint='{server.endpoint}')\n"
        "try:\n    store.get('a', 1)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path),
        "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("Unauthorized"), done
    assert "there are no credentials. Set AWS_ACCESS_KEY_ID" in done.stdout
