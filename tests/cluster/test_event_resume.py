"""A reader of events on three nodes loses no entry and gets none twice: through a split, a merge
and a killed leader, with its stream cut all the time and resumed on another node."""

import http.client
import itertools
import random
import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from http_asking import Answer, Events, asked

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster
KEYS = 8


class Reader(threading.Thread):
    """Reads events, cuts its stream after a few events, and goes on at another node."""

    def __init__(self, addresses: list[str], path: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, list[int]] = defaultdict(list)
        self.cuts = 0
        self.wrong: list[Any] = []
        self.done = threading.Event()
        self._addresses = itertools.cycle(addresses)
        self._path = path
        self._draw = random.Random(seed)

    def run(self) -> None:
        last, query = "", "&from=earliest"
        while not self.done.is_set():
            stream = None
            try:
                stream = Events(next(self._addresses), self._path + query, last, timeout_s=3.0)
                if stream.status != 200:
                    told = stream.problem
                    if not told["retryable"]:
                        self.wrong.append(told)
                        return
                    time.sleep(0.1)
                    continue
                left = self._draw.randrange(1, 30)
                for event in stream:
                    for entry in event.data if event.name == "entries" else ():
                        self.found[entry["key"]].append(int(entry["value"]))
                    last = stream.last
                    left -= 1
                    if not left or self.done.is_set():
                        break
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            finally:
                if stream is not None:
                    last = stream.last
                    stream.close()
                self.cuts += 1


def test_l1_s4_events_go_on_exactly_through_a_split_a_merge_and_a_killed_leader(
    three: testing.LocalCluster,
) -> None:
    with lognode.Client(three.servers, timeout=30.0) as client:
        log = client.create_log("resumed", ranges=1)
        testing.wait_healthy(three)
        addresses = [node.http for node in three.nodes]
        names = [f"key-{n}" for n in range(KEYS)]
        paths = ("?prefix=key-", "?" + "&".join(f"key={name}" for name in names), "?pattern=*")
        readers = [
            Reader(addresses, "/v1/logs/resumed/events" + path, seed)
            for seed, path in enumerate(paths)
        ]
        for reader in readers:
            reader.start()
        number = 0

        def append(seconds: float) -> None:
            nonlocal number
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                log.append_many(
                    [(name, b"%d" % (number + at)) for at in range(3) for name in names]
                )
                number += 3
                time.sleep(0.01)

        append(1.0)
        client.admin.split("resumed", at="key-4", timeout=30.0)
        append(1.0)
        leader = testing.leader_of(client, "resumed")
        three.nodes[leader - 1].kill()
        append(2.0)
        three.nodes[leader - 1].start()
        three.nodes[leader - 1].wait_ready()
        testing.wait_healthy(three)
        client.admin.merge("resumed", at="key-4", timeout=60.0)
        append(1.0)
        want = {name: list(range(number)) for name in names}
        try:
            for reader in readers:
                testing.eventually(
                    lambda reader=reader: bool(reader.wrong)
                    or all(len(reader.found[name]) >= number for name in names),
                    timeout_s=60, what="the reader has all entries",
                )  # fmt: skip
        finally:
            for reader in readers:
                reader.done.set()
        for reader in readers:
            reader.join(20.0)
            assert not reader.wrong
            assert dict(reader.found) == want
            assert reader.cuts >= 5


def test_s8_a_repeated_append_gets_the_first_answer_from_any_node(
    three: testing.LocalCluster,
) -> None:
    """Through a split, a merge and a killed leader."""
    with lognode.Client(three.servers, timeout=30.0) as client:
        log = client.create_log("repeated", ranges=1)
        testing.wait_healthy(three)

        def append(at: int, key: str) -> tuple[int, bool]:
            body = {"key": key, "value": key}
            headers = {"Idempotency-Key": f"shop-{key}:1"}

            def answered() -> Answer | None:
                found = asked(
                    three.nodes[at].http, "POST", "/v1/logs/repeated/entries", body, headers=headers
                )
                return found if found.status == 200 else None

            found = testing.eventually(answered, timeout_s=60, what="the append is answered").json
            return found["seq"], found["duplicate"]

        first = {key: append(0, key) for key in ("a", "z")}
        assert [again for _, again in first.values()] == [False, False]

        def repeated(at: int) -> None:
            for key, (seq, _) in first.items():
                assert append(at, key) == (seq, True)

        client.admin.split("repeated", at="m", timeout=30.0)
        repeated(1)
        client.admin.merge("repeated", at="m", timeout=60.0)
        repeated(2)
        leader = testing.leader_of(client, "repeated")
        three.nodes[leader - 1].kill()
        repeated(leader % 3)
        three.nodes[leader - 1].start()
        three.nodes[leader - 1].wait_ready()
        repeated(leader - 1)
        assert [log.count(key) for key in first] == [1, 1]
