"""The programs for lognode in the how-to pages run as printed. Those for NATS and Redis run as
well, where a server is installed; the programs for Kafka, KurrentDB and SQS are only compiled."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import lognode
from lognode import testing
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
SERVER: Final = "127.0.0.1:4600"
NATS: Final = shutil.which("nats-server") or "/usr/sbin/nats-server"
REDIS: Final = shutil.which("redis-server") or "/usr/bin/redis-server"
ORDERS: Final = {f"order {n}" for n in range(10)}


def programs(page: str, *, of_lognode: bool = True) -> list[str]:
    """Return the Python programs of a page, in order."""
    text = (DOCS / page).read_text("utf-8")
    found: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [each for each in found if ("import lognode\n" in each) == of_lognode]


@contextmanager
def running(text: str, folder: Path) -> Iterator[Path]:
    """Run a program until the block ends; yield the file with its output."""
    out = folder / f"{len(list(folder.iterdir()))}.txt"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            yield out
        finally:
            process.kill()
            process.wait()


@contextmanager
def answering(arguments: list[str]) -> Iterator[int]:
    """Run a server of another project, whose last argument is a free port; that port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    server = subprocess.Popen(
        [*arguments, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        with socket.socket() as found:
            return found.connect_ex(("127.0.0.1", port)) == 0

    try:
        testing.eventually(answers, timeout_s=60, what="the server answers")
        yield port
    finally:
        server.kill()
        server.wait()


def printed(text: str, tmp_path: Path, count: int) -> list[str]:
    """Run a program that does not end by itself until it has printed so many lines; return
    these."""
    with running(text, tmp_path) as out:

        def lines() -> list[str]:
            found = out.read_text("utf-8").splitlines()
            assert "Traceback (most recent call last):" not in found, "\n".join(found)
            return found

        testing.eventually(
            lambda: len(lines()) >= count, timeout_s=120, what=f"{count} lines are printed"
        )
        time.sleep(0.3)  # a line too many would come now
        return lines()


def at(servers: str, text: str) -> str:
    assert SERVER in text
    return text.replace(f"lognode://{SERVER}", servers)


def in_order(lines: list[str]) -> bool:
    """Whether the orders of each customer stand in order."""
    numbers = [int(found[1]) for line in lines if (found := re.search(r"order (\d+)", line))]
    return all(
        mine == sorted(mine)
        for mine in ([n for n in numbers if n % 3 == each] for each in range(3))
    )


def test_the_programs_for_people_from_kafka_run(three: LocalCluster, tmp_path: Path) -> None:
    same, poison = (at(three.servers, text) for text in programs("howto-kafka.md"))
    with lognode.Client(three.servers, timeout=60) as client:
        if any(log["name"] == "orders" for log in client.logs()):
            client.delete_log("orders")
        lines = printed(same, tmp_path, 10)
        assert sorted(lines) == sorted(f"b'customer-{n % 3}' b'order {n}'" for n in range(10))
        assert in_order(lines)
        lines = printed(poison, tmp_path, 8)
        done = [f"order {n}" for n in range(10) if n not in (4, 7)]
        assert sorted(lines) == sorted(f"checked b'{each}'" for each in done)
        group = client.log("orders").group("checks")
        testing.eventually(
            lambda: len(list(group.parked())) == 1, timeout_s=60, what="the key is parked"
        )
        (parked,) = group.parked()
        assert (parked.key, parked.error) == (b"customer-1", "order 4 has no price")


def test_the_programs_for_people_from_sqs_run(three: LocalCluster, tmp_path: Path) -> None:
    same, again = (at(three.servers, text) for text in programs("howto-sqs.md"))
    with lognode.Client(three.servers, timeout=60) as client:
        if any(log["name"] == "orders" for log in client.logs()):
            client.delete_log("orders")
        lines = printed(same, tmp_path, 10)
        assert {line.partition(" ")[2] for line in lines} == ORDERS
        assert len(lines) == 10
        assert in_order(lines)
        group = client.log("orders").group("shipping")
        testing.eventually(
            lambda: group.lag().entries == 0, timeout_s=60, what="all entries are done"
        )
        with running(same, tmp_path) as out:
            testing.eventually(
                lambda: group.lag().consumers > 0, timeout_s=60, what="the second run consumes"
            )
            time.sleep(0.5)
            assert out.read_text("utf-8") == "", "nothing is appended or consumed again"
        assert sum(client.log("orders").count(f"customer-{n}") for n in range(3)) == 10
        lines = printed(again, tmp_path, 11)
        sent = [line for line in lines if line.startswith("sent")]
        assert len(lines) == len(sent) + 1
        assert "sent at delivery 2 b'order 2'" in sent
        assert {line.split("'")[1] for line in sent} == ORDERS
        assert in_order(sent)


def test_the_programs_for_people_from_nats_run(three: LocalCluster, tmp_path: Path) -> None:
    same, wait = (at(three.servers, text) for text in programs("howto-nats.md"))
    lines = printed(same, tmp_path, 10)
    assert sorted(lines) == sorted(f"b'eu.customer-{n % 3}.orders' b'order {n}'" for n in range(10))
    assert in_order(lines)
    assert printed(wait, tmp_path, 1) == ["appended, and not billed yet"]
    consume = same.replace("range(10)", "range(0)")
    with running(consume, tmp_path) as out:
        testing.eventually(
            lambda: "order 10" in out.read_text("utf-8"), timeout_s=60, what="the group consumes"
        )
        assert printed(wait, tmp_path, 1) == ["billed"]


def test_the_program_for_nats_does_what_the_page_says(tmp_path: Path) -> None:
    if not Path(NATS).exists():
        pytest.skip("nats-server is not installed")
    pytest.importorskip("nats")
    (text,) = programs("howto-nats.md", of_lognode=False)
    arguments = [NATS, "-js", "-a", "127.0.0.1", "-sd", str(tmp_path / "store"), "-p"]
    with answering(arguments) as port:
        lines = printed(text.replace("127.0.0.1:4222", f"127.0.0.1:{port}"), tmp_path, 10)
    assert lines == [f"eu.customer-{n % 3}.orders b'order {n}'" for n in range(10)]


@pytest.mark.parametrize(
    "page",
    [
        "howto-kafka.md", "howto-sqs.md", "howto-nats.md", "howto-redis.md", "howto-kurrentdb.md",
    ],
)  # fmt: skip
def test_each_page_has_the_program_of_the_other_system(page: str) -> None:
    (text,) = programs(page, of_lognode=False)
    compile(text, page, "exec")


def test_the_programs_for_people_from_redis_run(three: LocalCluster, tmp_path: Path) -> None:
    same, stream = (at(three.servers, text) for text in programs("howto-redis.md"))
    with lognode.Client(three.servers, timeout=60) as client:
        if any(log["name"] == "orders" for log in client.logs()):
            client.delete_log("orders")
    lines = printed(same, tmp_path, 10)
    assert sorted(lines) == sorted(f"customer-{n % 3} order {n}" for n in range(10))
    assert in_order(lines)
    assert finished(stream) == [
        "last: order 7",
        *(f"from the first: order {n}" for n in (1, 4, 7)),
        *(f"from the last: order {n}" for n in (7, 4)),
        "left: 1",
    ]


def test_the_programs_for_people_from_kurrentdb_run(three: LocalCluster, tmp_path: Path) -> None:
    same, decide, subscribe = (at(three.servers, text) for text in programs("howto-kurrentdb.md"))
    events = ["b'created' b'{\"customer\": \"anna\"}'", "b'paid' b'{\"amount\": 12}'"]
    assert [line.partition(" ")[2] for line in finished(same)] == events
    again = finished(same)
    assert again[0].startswith("somebody was faster; the last seq is ")
    assert [line.partition(" ")[2] for line in again[1:]] == events
    assert finished(decide) == ["paid 20"]
    assert finished(decide) == ["paid 20"]
    lines = printed(subscribe, tmp_path, 3)
    assert lines[-1] == 'order-17 {"amount": 8}'
    with lognode.Client(three.servers, timeout=60) as client:
        client.log("events").append("order-18", b"{}")
    assert printed(subscribe, tmp_path, 1) == ["order-18 {}"]


def test_the_program_of_follow_counts_each_entry_once_though_it_crashes(
    three: LocalCluster, tmp_path: Path
) -> None:
    (text,) = re.findall(
        r"^```python file=totals.py\n(.*?)^```$",
        (DOCS / "follow.md").read_text("utf-8"),
        re.M | re.S,
    )
    program = at(three.servers, text).replace('client.log("orders")', 'client.log("counted")')
    kept = '                database.execute(\n                    "INSERT OR REPLACE'
    assert kept in program
    crashing = program.replace(kept, f"                __import__('os')._exit(9)\n{kept}")
    with lognode.Client(three.servers, timeout=60) as client:
        log = client.create_log("counted", split_at=["m"])
        log.append_many([(key, b"") for key in ("a", "b", "x", "y", "a")])
        assert finished(crashing, tmp_path, code=9) == []
        assert finished(program, tmp_path) == ["5"]
        assert finished(program, tmp_path) == ["5"]
        log.append_many([("a", b""), ("z", b"")])
        assert finished(crashing, tmp_path, code=9) == []
        assert finished(program, tmp_path) == ["7"]


def finished(text: str, folder: Path | None = None, *, code: int = 0) -> list[str]:
    """Run a program to its end; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=90, check=False,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


def test_the_program_for_redis_does_what_the_page_says(tmp_path: Path) -> None:
    if not Path(REDIS).exists():
        assert os.environ.get("CI") != "true", "redis-server is missing"
        pytest.skip("redis-server is not installed")
    (text,) = programs("howto-redis.md", of_lognode=False)
    arguments = [REDIS, "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path), "--port"]
    with answering(arguments) as port:
        lines = printed(text.replace(", 6379,", f", {port},"), tmp_path, 10)
    assert lines == [f"customer-{n % 3} order {n}" for n in range(10)]
