"""Batches of Kafka clients for one range go to the range in few requests."""

import asyncio
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import LognodeError, RemoteProtocolError, Timeout
from lognode.client.routing import Range
from lognode.node.kafka import joined_appends
from lognode.node.kafka.joined_appends import BYTES_MAX, JoinedAppends, Outcome

ONE = Range(1, 1, 7, b"", b"m", (1, 2, 3), 2)
OTHER = Range(2, 1, 7, b"m", None, (1, 2, 3), 3)
SECONDS = 5.0


class Ranges:
    """Answers each request with its batches, or with an error."""

    def __init__(self, error: LognodeError | None = None, less: int = 0) -> None:
        self.requests: list[tuple[Range, int, bytes | None, list[bytes]]] = []
        self.deadlines: list[float] = []
        self.goes_on = asyncio.Event()
        """Set: requests are answered."""
        self.goes_on.set()
        self.came = asyncio.Event()
        """Set when a request comes."""
        self._error = error
        self._less = less

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def target(self, known: Range) -> int:
        assert known.leader is not None
        return known.leader

    async def ask(
        self, known: Range, _: object, body: dict[str, Any], deadline: float, *, node: int
    ) -> dict[str, Any]:
        batches = body["batches"]
        self.requests.append((known, node, body["grant"], batches))
        self.deadlines.append(deadline)
        self.came.set()
        await asyncio.sleep(0)
        await self.goes_on.wait()
        if self._error is not None:
            raise self._error
        told = batches[self._less :]
        return {"results": [{"status": "ok", "first_seq": int(each)} for each in told]}


Given = tuple[Range, int, bytes | None]


def sent(ranges: Any, *turns: list[Given]) -> list[Outcome]:
    """Return the outcome of each batch; batch 0 is `0`, and so on."""

    async def run() -> list[Outcome]:
        joined, waiting = JoinedAppends(ranges), list[Any]()
        for turn in turns:
            for known, size, grant in turn:
                deadline = ranges.now() + SECONDS + len(waiting)
                data = b"%d" % len(waiting)
                waiting.append(joined.append(known, data, size, 1, grant, deadline))
            await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            return list(await asyncio.gather(*waiting, return_exceptions=True))

    return asyncio.run(run())


def seqs(outcomes: list[Outcome]) -> list[int]:
    assert not any(isinstance(each, BaseException) for each in outcomes)
    return [each["first_seq"] for each in outcomes if not isinstance(each, BaseException)]


def test_batches_of_a_turn_go_to_their_range_in_one_request_and_in_order() -> None:
    ranges = Ranges()
    turns = [(ONE, 10, None), (OTHER, 10, None), (ONE, 10, None), (ONE, 10, b"g"), (ONE, 10, None)]
    assert seqs(sent(ranges, turns, turns[:2])) == list(range(7))
    assert ranges.requests == [
        (ONE, 2, None, [b"0", b"2", b"4"]),
        (OTHER, 3, None, [b"1"]),
        (ONE, 2, b"g", [b"3"]),
        (ONE, 2, None, [b"5"]),
        (OTHER, 3, None, [b"6"]),
    ]
    assert ranges.deadlines[0] < ranges.deadlines[1] < ranges.deadlines[2]


def test_a_request_has_few_bytes_and_few_batches() -> None:
    ranges = Ranges()
    assert seqs(sent(ranges, [(ONE, BYTES_MAX // 2, None)] * 5)) == list(range(5))
    assert [len(batches) for *_, batches in ranges.requests] == [2, 2, 1]
    ranges = Ranges()
    assert seqs(sent(ranges, [(ONE, 1, None)] * 600)) == list(range(600))
    assert [len(batches) for *_, batches in ranges.requests] == [256, 256, 88]


def test_a_request_has_no_more_records_than_a_range_takes() -> None:
    ranges, most = Ranges(), limits.request_records_max

    async def run() -> None:
        joined = JoinedAppends(ranges)  # type: ignore[arg-type]
        records = [most // 2, most // 2, 1, most]
        end = ranges.now() + SECONDS
        each = [joined.append(ONE, b"%d" % at, 1, n, None, end) for at, n in enumerate(records)]
        assert seqs(list(await asyncio.gather(*each))) == [0, 1, 2, 3]

    asyncio.run(run())
    assert [batches for *_, batches in ranges.requests] == [[b"0", b"1"], [b"2"], [b"3"]]


class Under:
    """Appends to a range that answers when it is told to."""

    def __init__(self) -> None:
        self.ranges = Ranges()
        self.ranges.goes_on.clear()
        self.joined = JoinedAppends(self.ranges)  # type: ignore[arg-type]
        self.waiting: list[asyncio.Future[Outcome]] = []

    async def turn(self, *sizes: int) -> list[list[bytes]]:
        """Append batches of these sizes; return the batches of the requests so far."""
        for size in sizes:
            data, end = b"%d" % len(self.waiting), self.ranges.now() + SECONDS
            self.waiting.append(self.joined.append(ONE, data, size, 1, None, end))
        for _ in range(5):
            await asyncio.sleep(0)
        return [batches for *_, batches in self.ranges.requests]

    async def answered(self) -> list[int]:
        """Let the range answer; return the seqs."""
        self.ranges.goes_on.set()
        async with asyncio.timeout(SECONDS):
            return seqs(list(await asyncio.gather(*self.waiting)))


def test_small_batches_do_not_wait_for_answers() -> None:
    async def run() -> None:
        under = Under()
        await under.turn(10)
        assert await under.turn(10, 10) == [[b"0"], [b"1", b"2"]]
        assert await under.answered() == [0, 1, 2]

    asyncio.run(run())


def test_batches_behind_many_bytes_go_together_after_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined_appends, "_WAIT_S", SECONDS)
    large = limits.KIB * 64

    async def run() -> None:
        under = Under()
        for size in (large, large, 10, large):
            assert await under.turn(size) == [[b"0"]]
        assert await under.answered() == [0, 1, 2, 3]
        under.waiting.clear()
        assert await under.turn(10) == [[b"0"], [b"1", b"2", b"3"], [b"0"]], "nothing is under way"

    asyncio.run(run())


def test_batches_do_not_wait_for_ever_behind_a_range_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined_appends, "_WAIT_S", 0.01)

    async def run() -> None:
        under = Under()
        await under.turn(limits.KIB * 64)
        assert await under.turn(10, 10) == [[b"0"]]
        under.ranges.came.clear()
        async with asyncio.timeout(SECONDS):
            await under.ranges.came.wait()
        assert await under.turn() == [[b"0"], [b"1", b"2"]]
        assert await under.answered() == [0, 1, 2]

    asyncio.run(run())


def test_batches_behind_an_error_go_after_its_news() -> None:
    """An answer may name another leader, which the next request should try."""

    async def run() -> None:
        under = Under()
        leaders, under.ranges._error = [2], Timeout("no leader", outcome="not_applied")
        under.ranges.target = lambda known: leaders[-1]  # type: ignore[method-assign]
        await under.turn(limits.KIB * 64)
        await under.turn(10)
        told = asyncio.create_task(_heed(under.waiting[0], leaders))
        await under.turn()
        under.ranges.goes_on.set()
        await under.turn()
        await told
        assert [node for _, node, *_ in under.ranges.requests] == [2, 3]

    async def _heed(outcome: "asyncio.Future[Outcome]", leaders: list[int]) -> None:
        await outcome
        leaders.append(3)

    asyncio.run(run())


def test_nothing_more_is_sent_once_the_node_stops() -> None:
    async def run() -> Under:
        under = Under()
        await under.turn(limits.KIB * 64)
        await under.turn(10)
        return under

    under = asyncio.run(run())  # cancels the request
    assert [batches for *_, batches in under.ranges.requests] == [[b"0"]]
    assert not under.joined._open


def test_an_error_lets_the_batches_behind_it_go() -> None:
    async def run() -> None:
        under = Under()
        under.ranges._error = Timeout("no answer", outcome="unknown")
        await under.turn(limits.KIB * 64)
        assert await under.turn(10) == [[b"0"]]
        under.ranges.goes_on.set()
        assert await under.turn() == [[b"0"], [b"1"]]
        assert all(isinstance(each, Timeout) for each in await asyncio.gather(*under.waiting))

    asyncio.run(run())


@pytest.mark.parametrize("less", [0, 1])
def test_each_batch_of_a_request_that_fails_has_an_error_of_its_own(less: int) -> None:
    """An error keeps what the attempts of its own batch have found."""
    ranges = Ranges(None if less else Timeout("no answer", outcome="unknown"), less)
    outcomes = sent(ranges, [(ONE, 1, None)] * 3)
    assert len({id(each) for each in outcomes}) == 3
    for each in outcomes:
        assert isinstance(each, RemoteProtocolError if less else Timeout)
        assert less or each.outcome == "unknown"


def test_nobody_waits_for_ever_after_an_error_of_the_program() -> None:
    class Broken(Ranges):
        async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise KeyError("program")

    outcomes = sent(Broken(), [(ONE, 1, None)] * 2)
    assert [type(each) for each in outcomes] == [asyncio.CancelledError] * 2
