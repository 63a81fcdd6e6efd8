"""What only the blocking client has: its thread, Ctrl-C, close from anywhere; and its generator."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster, FakeNode
from sdk_runs import run_sync

import lognode
from lognode import Client, Log
from lognode.client import loop_thread
from lognode.client.accepting.request import Request
from lognode.client.loop_thread import LoopThread
from lognode.client.protocol.errors import LocalProtocolError, Sealed
from lognode.client.protocol.reads import EXPORT

ROOT = Path(__file__).parents[2]


def stuck(node: FakeNode, request: Request, when: str) -> None:
    if when == "before":
        raise Sealed("for ever")


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_the_generated_code_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "unasync"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_columns_are_pulled_page_by_page_whatever_their_number() -> None:
    """A page may have megabytes: portions that grow would fill the memory."""

    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append_many([(b"k", b"%d" % n) for n in range(60)])
        columns = log.snapshot().read_columns()
        for _ in range(4):
            assert len(next(columns)) == 3
        assert cluster.count(EXPORT) <= 4 + 1, "more than the next page was fetched"
        assert sum(map(len, columns)) == 60 - 4 * 3

    run_sync(test)


def test_ctrl_c_ends_the_call_and_leaves_the_client_usable() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append("k", b"1")
        cluster.faults.append(stuck)
        timer = threading.Timer(0.2, press_ctrl_c)
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            log.append("k", b"2", timeout=10)
        assert time.monotonic() - started < 3
        timer.join()
        cluster.faults.clear()
        log.append("k", b"3")
        assert cluster.values(b"k")[-1] == b"3"

    run_sync(test)


def test_ctrl_c_ends_a_follow() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append("k", b"1")
        with log.follow(start="earliest") as feed:
            assert next(feed).entries[0].value == b"1"
            timer = threading.Timer(0.2, press_ctrl_c)
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                list(feed)
            timer.join()
            log.append("k", b"2")
            assert next(feed).entries[0].value == b"2"

    run_sync(test)


def test_L4_close_returns_with_calls_under_way() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append("k", b"1")
        cluster.faults.append(stuck)
        errors: list[BaseException] = []

        def append() -> None:
            try:
                log.append("k", b"2", timeout=30)
            except lognode.LognodeError as error:
                errors.append(error)

        thread = threading.Thread(target=append)
        thread.start()
        time.sleep(0.1)
        started = time.monotonic()
        client.close(timeout=0.2)
        assert time.monotonic() - started < 5
        thread.join(5)
        assert not thread.is_alive()
        assert len(errors) == 1
        with pytest.raises(lognode.Unavailable):
            log.append("k", b"3")
        client.close()

    run_sync(test)


def test_L4_closing_a_feed_ends_the_iteration_in_another_thread() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        with log.follow(start="earliest") as feed:
            batches: list[lognode.FollowBatch] = []
            thread = threading.Thread(target=lambda: batches.extend(feed))
            thread.start()
            time.sleep(0.1)
            feed.close()
            thread.join(5)
            assert not thread.is_alive()

    run_sync(test)


async def _deaf() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@pytest.mark.parametrize("call", [lambda: asyncio.sleep(60), _deaf])
def test_L4_S11_a_call_that_the_end_of_the_loop_cuts_off_has_an_outcome(
    call: Callable[[], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller got a bare CancelledError; or, of a call that does not end, nothing for ever."""
    monkeypatch.setattr(loop_thread, "stop_timeout_s", 0.5)
    thread, errors = LoopThread(), list[BaseException]()

    def caller() -> None:
        try:
            thread.call(call())
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=caller, daemon=True)
    waiting.start()
    time.sleep(0.1)
    thread.close(asyncio.sleep(0), 1.0)
    waiting.join(5)
    assert not waiting.is_alive()
    (error,) = errors
    assert isinstance(error, lognode.Unavailable)
    assert (error.outcome, error.fields) == ("unknown", {"reason": "closed"})


def test_a_forked_child_gets_an_error_at_once_and_may_make_a_client_of_its_own() -> None:
    """The child has the loop's memory without its thread: each call waited for ever."""

    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append("k", b"1")
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent's handler fails the test
            signal.alarm(120)  # ends a child that waits, and leaves a slow machine its time
            found = 1
            try:
                with pytest.raises(LocalProtocolError, match="forked child"):
                    log.append("k", b"2")
                client.close()
                with Client(cluster.address, timeout=60.0) as own:
                    own.log("log").append("k", b"3")
                found = 0
            finally:
                os._exit(found)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        log.append("k", b"4")
        assert cluster.values(b"k") == [b"1", b"3", b"4"]

    run_sync(test)


def test_many_threads_share_a_client() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        def work(who: int) -> None:
            for n in range(20):
                log.append(b"k%d" % who, b"%d" % n)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        for who in range(8):
            assert cluster.values(b"k%d" % who) == [b"%d" % n for n in range(20)]

    run_sync(test)


def test_the_thread_begins_with_the_first_call_and_ends_with_close() -> None:
    before = set(threading.enumerate())  # some may end meanwhile: other tests began them
    client = Client("127.0.0.1:1", timeout=0.2)
    assert set(threading.enumerate()) <= before
    with pytest.raises((lognode.Unavailable, lognode.Timeout)):
        client.status()
    assert len(set(threading.enumerate()) - before) == 1
    client.close()
    assert set(threading.enumerate()) <= before
    Client("127.0.0.1:1").close()


def test_importing_lognode_is_quick_and_brings_no_server_libraries() -> None:
    """Within twice what asyncio takes by itself: under 100 ms wherever that takes 50."""
    code = (
        "import sys, time; begun = time.process_time(); import {}; "
        "bad = {{'aiohttp', 'lmdb', 'pysyncobj', 'prometheus_client', 'pyspark'}} "
        "& set(sys.modules); print(sorted(bad), time.process_time() - begun)"
    )
    # The folder that holds the package goes first on the path, as for this process.
    where = str(Path(lognode.__file__).parents[1])
    fastest = {"asyncio": 9.0, "lognode": 9.0}
    for _ in range(50):
        for name in fastest:
            done = subprocess.run(
                [sys.executable, "-c", code.format(name)], check=True, capture_output=True,
                text=True, env={"PYTHONPATH": where, "PATH": ""},
            )  # fmt: skip
            loaded, seconds = done.stdout.rsplit(maxsplit=1)
            assert loaded == "[]"
            # Of the CPU, which is slower while others are at work on its other threads: one quiet
            # moment of each is enough.
            fastest[name] = min(fastest[name], float(seconds))
        if fastest["lognode"] < 2 * fastest["asyncio"]:
            break
    assert fastest["lognode"] < 2 * fastest["asyncio"], fastest
