"""One client of a test: it does one thing at a time, and its requests and answers are recorded."""

import asyncio
import random
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from ..client.client import AsyncClient
from ..client.log import AsyncLog
from ..client.protocol.errors import LognodeError
from .history import Recorder

BUG: Final = "BUG"
"""The prefix of errors that the SDK must never raise."""


class Retired(Exception):
    """The last operation may or may not have happened: the process does nothing more."""


class Pace:
    """The pace of operations: random times, `rate` a second of all processes together.

    Operations that could not begin while all processes waited are not made up for.
    """

    def __init__(self, rate: float, rng: random.Random) -> None:
        self._rate = rate
        self._rng = rng
        self._next = 0.0

    async def turn(self) -> None:
        """Return when the caller's next operation may begin."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now)
        self._next = at + self._rng.expovariate(self._rate)
        await asyncio.sleep(at - now)


class Process:
    """A client with a number that no other process of the test has."""

    def __init__(
        self, number: int, servers: str, log: str, recorder: Recorder, rng: random.Random,
        *, pace: Pace, nodes: int, timeout_s: float, kafka: str = "",
    ) -> None:  # fmt: skip
        self.number = number
        self.kafka = kafka
        """The addresses of the nodes for Kafka clients."""
        self.rng = rng
        self.nodes = nodes
        self.timeout_s = timeout_s
        self.client = AsyncClient(servers, timeout=timeout_s)
        self.log: AsyncLog = self.client.log(log)
        self._recorder = recorder
        self._pace = pace

    async def turn(self) -> None:
        """Return when the next operation may begin."""
        await self._pace.turn()

    async def call(
        self,
        f: str,
        asked: Mapping[str, Any],
        answer: Awaitable[dict[str, Any]],
        *,
        writes: bool,
        node: int | None = None,
    ) -> dict[str, Any] | None:
        """Await an answer, as one operation. None: it failed and surely did not happen.

        Raises Retired when a write may have happened, or after an error that the SDK must not
        raise. A cancelled write has an unknown outcome as well.
        """
        record = self._recorder.record
        record(self.number, "invoke", f, asked, node=node)
        try:
            answered = await answer
        except LognodeError as error:
            sure = not writes or error.outcome == "not_applied"
            told = {"last": error.actual} if error.code == "SEQUENCE_MISMATCH" else None
            record(
                self.number, "fail" if sure else "info", f, told,
                error=f"{error.code}: {error.message}", node=node,
            )  # fmt: skip
            if sure:
                return None
            raise Retired from error
        except asyncio.CancelledError:
            record(self.number, "info" if writes else "fail", f, error="CRASHED", node=node)
            raise
        except Exception as error:
            record(self.number, "info", f, error=f"{BUG}: {error!r}", node=node)
            raise Retired from error
        record(self.number, "ok", f, answered, node=node)
        return answered

    async def close(self) -> None:
        """End the connections now; operations under way are abandoned."""
        await self.client.close(timeout=0.0)
