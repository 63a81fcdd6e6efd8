"""Batches of Kafka clients for one range go to the range in few requests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lognode.client.cluster import Cluster, LogRoutes
from lognode.client.protocol import limits
from lognode.client.protocol.errors import LognodeError, RemoteProtocolError, Timeout
from lognode.client.routing import Range
from lognode.node.kafka import joined_appends
from lognode.node.kafka.joined_appends import Attempt, JoinedAppends, NumberedBatch

ONE = Range(1, 1, 7, b"", b"m", (1, 2, 3), 2)
OTHER = Range(2, 1, 7, b"m", None, (1, 2, 3), 3)
SECONDS = 20.0
LARGE = joined_appends._BYTES_MAX
SMALL = joined_appends._SMALL_BYTES


class Ranges:
    """Appends to two ranges, which answer each request with its batches, or with an error."""

    def __init__(self, error: LognodeError | None = None, less: int = 0) -> None:
        self.requests: list[tuple[Range, int, bytes | None, list[bytes]]] = []
        self.deadlines: list[float] = []
        self.goes_on = asyncio.Event()
        """Set: requests are answered."""
        self.goes_on.set()
        self.gates: dict[bytes, asyncio.Event] = {}
        """The same for the request that begins with a batch."""
        self.error = error
        self._less = less
        self.routes = LogRoutes("a")
        self.routes.table.insert_all([ONE, OTHER])
        self.joined = JoinedAppends(self)  # type: ignore[arg-type]
        self.waiting: list[asyncio.Future[Attempt]] = []

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def target(self, known: Range) -> int:
        return Cluster.target(self, known)  # type: ignore[arg-type]

    async def ask(
        self, known: Range, _: object, body: dict[str, Any], deadline: float, *, node: int
    ) -> dict[str, Any]:
        batches = body["batches"]
        self.requests.append((known, node, body["grant"], batches))
        self.deadlines.append(deadline)
        await asyncio.sleep(0)
        await self.gates.get(batches[0], self.goes_on).wait()
        if self.error is not None:
            raise self.error
        told = batches[self._less :]
        return {"results": [{"status": "ok", "first_seq": int(each)} for each in told]}

    def append(
        self, size: int, known: Range = ONE, *, grant: bytes | None = None, records: int = 1,
        seconds: float = SECONDS,
    ) -> "asyncio.Future[Attempt]":  # fmt: skip
        """Append a batch; the first is `0`, and so on."""
        batch = NumberedBatch(b"%d" % len(self.waiting), size, records, grant)
        attempt = self.joined.append(self.routes, known, batch, self.now() + seconds)
        self.waiting.append(attempt)
        return attempt

    async def turn(self, *sizes: int) -> list[list[bytes]]:
        """Append batches of these sizes; return the batches of the requests so far."""
        for size in sizes:
            self.append(size)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.sent

    @property
    def sent(self) -> list[list[bytes]]:
        return [batches for *_, batches in self.requests]

    async def outcomes(self) -> list[Any]:
        """Let the ranges answer; return the outcome of each batch."""
        self.goes_on.set()
        async with asyncio.timeout(SECONDS):
            found = await asyncio.gather(*self.waiting, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not self.joined._open
        assert not self.joined._under_way
        return [each.outcome if isinstance(each, Attempt) else each for each in found]

    async def seqs(self) -> list[int]:
        return [each["first_seq"] for each in await self.outcomes()]


@pytest.fixture(autouse=True)
def _long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent because time has passed, however slow the machine is."""
    monkeypatch.setattr(joined_appends, "_WAIT_S", SECONDS)


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_batches_of_a_turn_go_to_their_range_in_one_request_and_in_order() -> None:
    async def test() -> None:
        ranges = Ranges()
        first = [(ONE, None), (OTHER, None), (ONE, None), (ONE, b"g"), (ONE, None)]
        for turn in (first, first[:2]):
            for known, grant in turn:
                ranges.append(10, known, grant=grant, seconds=SECONDS + len(ranges.waiting))
            await asyncio.sleep(0)
        assert await ranges.seqs() == list(range(7))
        assert ranges.requests == [
            (ONE, 2, None, [b"0", b"2", b"4"]),
            (OTHER, 3, None, [b"1"]),
            (ONE, 2, b"g", [b"3"]),
            (ONE, 2, None, [b"5"]),
            (OTHER, 3, None, [b"6"]),
        ]
        assert ranges.deadlines[0] < ranges.deadlines[1] < ranges.deadlines[2]

    in_loop(test)


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([LARGE // 2] * 5, [2, 2, 1]),
        ([1] * 600, [256, 256, 88]),
        # A range keeps the order of a request that is not small only with few batches.
        ([SMALL // 16] * 40, [16, 16, 8]),
        ([SMALL // 16 + 1] * 40, [16, 16, 8]),
    ],
)
def test_a_request_has_few_bytes_and_few_batches(sizes: list[int], together: list[int]) -> None:
    async def test() -> None:
        ranges = Ranges()
        for size in sizes:
            ranges.append(size)
        assert await ranges.seqs() == list(range(len(sizes)))
        assert [len(batches) for batches in ranges.sent] == together

    in_loop(test)


def test_a_request_has_no_more_records_than_a_range_takes() -> None:
    async def test() -> None:
        ranges, most = Ranges(), limits.request_records_max
        for records in (most // 2, most // 2, 1, most):
            ranges.append(1, records=records)
        assert await ranges.seqs() == [0, 1, 2, 3]
        assert ranges.sent == [[b"0", b"1"], [b"2"], [b"3"]]

    in_loop(test)


def test_small_batches_do_not_wait_for_answers() -> None:
    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        await ranges.turn(10)
        assert await ranges.turn(10, 10) == [[b"0"], [b"1", b"2"]]
        assert await ranges.seqs() == [0, 1, 2]

    in_loop(test)


def test_batches_behind_many_bytes_go_together_after_an_answer() -> None:
    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        for size in (SMALL, SMALL, 10, SMALL):
            assert await ranges.turn(size) == [[b"0"]]
        assert await ranges.seqs() == [0, 1, 2, 3]
        assert ranges.sent == [[b"0"], [b"1", b"2", b"3"]]
        ranges.append(10)
        assert await ranges.seqs() == [0, 1, 2, 3, 4], "nothing is under way"

    in_loop(test)


def test_batches_wait_until_few_bytes_are_under_way() -> None:
    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        ranges.gates[b"0"] = asyncio.Event()
        await ranges.turn(SMALL, LARGE, LARGE)
        assert ranges.sent == [[b"0"], [b"1"]], "a full request does not wait, the third does"
        ranges.gates[b"0"].set()
        await ranges.turn()
        assert ranges.waiting[0].done()
        assert ranges.sent == [[b"0"], [b"1"]]
        assert await ranges.seqs() == [0, 1, 2]
        assert ranges.sent == [[b"0"], [b"1"], [b"2"]]

    in_loop(test)


def test_batches_under_a_grant_do_not_wait() -> None:
    """All of them are of one partition."""

    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        for _ in range(3):
            ranges.append(SMALL, grant=b"g")
            await ranges.turn()
        assert ranges.sent == [[b"0"], [b"1"], [b"2"]]
        assert await ranges.seqs() == [0, 1, 2]

    in_loop(test)


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(LARGE + 1, SECONDS), (10, joined_appends._LEAST_S * 0.9)],
    ids=["large", "with little time"],
)
def test_some_batches_go_alone_behind_those_that_wait(size: int, seconds: float) -> None:
    """A deadline that is near would end the request of others."""

    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        await ranges.turn(SMALL)
        assert await ranges.turn(20, 10) == [[b"0"]]
        ranges.append(size, seconds=seconds)
        ranges.append(10)
        assert await ranges.turn() == [[b"0"], [b"1", b"2"], [b"3"]]
        assert ranges.deadlines[1] > ranges.now() + SECONDS / 2
        assert await ranges.seqs() == [0, 1, 2, 3, 4]
        assert ranges.sent[3:] == [[b"4"]]

    in_loop(test)


def test_batches_do_not_wait_for_ever_behind_a_range_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined_appends, "_WAIT_S", 0.01)

    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        await ranges.turn(SMALL)
        ranges.append(10)
        ranges.append(10)
        async with asyncio.timeout(SECONDS):
            while len(ranges.requests) < 2:  # noqa: ASYNC110  the time is what is tested
                await asyncio.sleep(0.01)
        assert ranges.sent == [[b"0"], [b"1", b"2"]]
        assert await ranges.seqs() == [0, 1, 2]

    in_loop(test)


def test_batches_behind_an_error_go_to_the_leader_that_the_error_named() -> None:
    async def test() -> None:
        ranges = Ranges(Timeout("no leader", outcome="not_applied"))
        ranges.goes_on.clear()

        async def heed(attempt: "asyncio.Future[Attempt]") -> None:
            ranges.routes.table.lead((await attempt).asked, 3)

        await ranges.turn(SMALL)
        heeding = asyncio.create_task(heed(ranges.waiting[0]))
        await ranges.turn(10)
        ranges.goes_on.set()
        await heeding
        assert all(isinstance(each, Timeout) for each in await ranges.outcomes())
        assert [node for _, node, *_ in ranges.requests] == [2, 3]
        assert [(await each).asked.leader for each in ranges.waiting] == [2, 3]

    in_loop(test)


def test_a_request_names_the_generation_for_which_its_batches_came() -> None:
    """A later generation may have other bounds; the range refuses, and each batch goes alone."""

    async def test() -> None:
        ranges = Ranges()
        ranges.goes_on.clear()
        await ranges.turn(SMALL)
        await ranges.turn(10)
        ranges.routes.table.insert(ONE._replace(generation=2, end=b"c"))
        assert await ranges.seqs() == [0, 1]
        assert {known.generation for known, *_ in ranges.requests} == {1}

    in_loop(test)


@pytest.mark.parametrize("less", [0, 1])
def test_each_batch_of_a_request_that_fails_has_an_error_of_its_own(less: int) -> None:
    """An error keeps what the attempts of its own batch have found."""

    async def test() -> None:
        ranges = Ranges(None if less else Timeout("no answer", outcome="unknown"), less)
        await ranges.turn(1, 1, 1)
        outcomes = await ranges.outcomes()
        assert len({id(each) for each in outcomes}) == 3
        for each in outcomes:
            assert isinstance(each, RemoteProtocolError if less else Timeout)
            assert less or each.outcome == "unknown"

    in_loop(test)


def test_nobody_waits_for_ever_after_an_error_of_the_program() -> None:
    class Broken(Ranges):
        async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise KeyError("program")

    async def test() -> None:
        ranges = Broken()
        ranges.append(SMALL)
        await asyncio.sleep(0)
        ranges.append(1)
        assert [type(each) for each in await ranges.outcomes()] == [asyncio.CancelledError] * 2

    in_loop(test)


def test_nothing_more_is_sent_once_the_node_stops() -> None:
    async def test() -> Ranges:
        ranges = Ranges()
        ranges.goes_on.clear()
        await ranges.turn(SMALL)
        await ranges.turn(10)
        return ranges

    ranges = asyncio.run(test())  # cancels the request
    assert ranges.sent == [[b"0"]]
    assert all(each.cancelled() for each in ranges.waiting)
    assert not ranges.joined._open
