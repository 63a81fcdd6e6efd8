"""`lognode range transfer`: the lead of a range handed to a member that is named."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.errors import Conflict, NodeNotFound, NotFound

pytestmark = pytest.mark.cluster


def cli(cluster: testing.LocalCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", *words, "--server", cluster.servers],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip


def range_of(client: lognode.Client, log: str) -> dict[str, Any]:
    return next(range_ for range_ in client.status()["ranges"] if range_["log"] == log)


def test_the_named_member_leads_and_mistakes_are_named(three: testing.LocalCluster) -> None:
    with lognode.Client(three.servers) as client:
        client.create_log("named", replicas=1)
        client.create_log("spread")
        testing.wait_healthy(three)
        number = range_of(client, "spread")["id"]
        for target in (1, 2, 3, 2):
            answer = cli(three, "range", "transfer", str(number), str(target), "--format", "json")
            assert answer.returncode == 0, answer.stderr
            assert json.loads(answer.stdout) == {"range": number, "leader": target}
            assert testing.leader_of(client, "spread") == target
        again = cli(three, "range", "transfer", str(number), "2")
        assert again.returncode == 0
        assert f"node 2 leads range {number} already" in again.stderr
        (alone,) = (set(range_of(client, "named")["members"]),)
        other = str(min({1, 2, 3} - alone))
        for words, code, said in (
            (("999", "1"), 4, "range 999 does not exist"),
            ((str(number), "9"), 4, "node 9 does not exist"),
            ((str(range_of(client, "named")["id"]), other), 4, f"node {other} has no replica"),
            (("one", "1"), 2, "one"),
            ((str(number),), 2, "NODE"),
        ):
            wrong = cli(three, "range", "transfer", *words)
            assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
            assert len(wrong.stderr.splitlines()) == 1
        with pytest.raises(NotFound):
            client.admin.transfer(999, to_node=1)
        with pytest.raises(NodeNotFound):
            client.admin.transfer(number, to_node=9)
        client.admin.transfer(0, to_node=3)  # the controller
        assert client.admin.transfer(0, to_node=3) == {"leader": 3, "changed": False}


def test_a_member_that_is_down_is_refused_and_the_leader_goes_on(
    three: testing.LocalCluster,
) -> None:
    with lognode.Client(three.servers) as client:
        log = client.create_log("down")
        testing.wait_healthy(three)
        range_ = range_of(client, "down")
        client.admin.transfer(range_["id"], to_node=1)
        log.append(b"k", b"before")
        three.nodes[2].kill()
        with pytest.raises(Conflict, match=r"cannot reach|is down"):
            client.admin.transfer(range_["id"], to_node=3)
        log.append(b"k", b"after")
        assert testing.leader_of(client, "down") == 1
        three.nodes[2].start()
        three.nodes[2].wait_ready()
        # One that stands still does not take over either, and appends go on meanwhile.
        three.nodes[2].signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(lognode.LognodeError):
                client.admin.transfer(range_["id"], to_node=3, timeout=3)
            log.append(b"k", b"meanwhile", timeout=2)
            assert time.monotonic() - begun < 10
        finally:
            three.nodes[2].signal(signal.SIGCONT)
        testing.wait_healthy(three)


class Load:
    """Clients that append one record after the other, each to its own key, from threads."""

    def __init__(self, servers: str, log: str, clients: int) -> None:
        self.acknowledged: list[bytes] = []
        self.longest_s = 0.0
        self._errors: list[BaseException] = []
        self._servers = servers
        self._log = log
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self, number: int) -> None:
        try:
            with lognode.Client(self._servers) as client:
                log = client.log(self._log)
                at = 0
                while not self._stop.is_set():
                    value = b"%d-%d" % (number, at)
                    begun = time.monotonic()
                    log.append(b"k%d" % number, value)
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self.acknowledged.append(value)
                    at += 1
        except BaseException as error:
            self._errors.append(error)


@pytest.mark.parametrize("how", ["transfer", pytest.param("SIGTERM", marks=pytest.mark.by_hand)])
def test_S2_S8_no_append_is_lost_or_doubled_when_the_lead_moves_under_load(
    three: testing.LocalCluster, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"load-{how}"
    with lognode.Client(three.servers) as client:
        log = client.create_log(name)
        testing.wait_healthy(three)
        number = range_of(client, name)["id"]
        load = Load(three.servers, name, clients=6)
        try:
            for turn in range(6 if how == "transfer" else 2):
                seen = len(load.acknowledged)
                testing.eventually(lambda: len(load.acknowledged) > seen + 50, what="load")  # noqa: B023
                leader = testing.leader_of(client, name)
                if how == "transfer":
                    client.admin.transfer(number, to_node=leader % 3 + 1)
                else:
                    node = three.nodes[leader - 1]
                    assert node.stop() == 0, f"turn {turn}"
                    node.start()
                    node.wait_ready()
                    testing.wait_healthy(three)
        finally:
            load.stop()
        held = [entry.value for n in range(6) for entry in log.scan(b"k%d" % n)]
        assert len(held) == len(set(held))
        assert set(load.acknowledged) <= set(held)
        with capsys.disabled():
            print(f"\n{how}: {len(held)} appends, longest stall {load.longest_s * 1000:.0f} ms")
