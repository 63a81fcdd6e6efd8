"""A producer: `python -m benchmarks.door.produce PLAN`; it prints what it did as JSON.

What counts as acknowledged is what was given to the client, less what the client still has: a
callback for each record would cost more than the record.
"""

import json
import sys
import time
from collections import Counter
from functools import partial
from typing import Any, Final

from lognode.client.bench.report import spread_ms

from .plan import TOPIC, Plan, Values

_SAMPLE: Final = 50
"""At full speed, each so many-th record is timed."""
_TURN: Final = 100
"""Records between two looks at the clock."""
_TICK_S: Final = 0.001
_FLUSH_S: Final = 120.0


class _Producer:
    def __init__(self, plan: Plan) -> None:
        from confluent_kafka import Producer

        self._plan = plan
        self._client = Producer({
            **plan.client, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        })  # fmt: skip
        self._values = Values(plan.value_bytes)
        self._number = 0
        self._times: list[tuple[float, float]] = []
        """When a record was due, and how long its acknowledgement took."""
        self._failed: Counter[str] = Counter()

    def run(self) -> dict[str, Any]:
        """Produce; return the report."""
        plan, begun = self._plan, time.perf_counter()
        first = begun + plan.warmup_s
        end = first + plan.seconds
        self._until(first, begun)
        before, began = self._acknowledged(), time.perf_counter()
        self._until(end, begun)
        after, ended = self._acknowledged(), time.perf_counter()
        if left := self._client.flush(_FLUSH_S):
            self._failed["not acknowledged at the end"] = left
        return {
            "produced": self._number, "failed": self._failed,
            "acked/s": round((after - before) / (ended - began)), "measured": [began, ended],
            "acked": after - before,
            "ack": spread_ms([took for due, took in self._times if first <= due < end]),
        }  # fmt: skip

    def _acknowledged(self) -> int:
        return self._number - len(self._client)

    def _until(self, end: float, begun: float) -> None:
        """Produce until a time; `begun`: when the records of a rate began to be due."""
        rate = self._plan.rate
        while (now := time.perf_counter()) < end:
            if not rate:
                for _ in range(_TURN):
                    self._produce(time.perf_counter(), timed=self._number % _SAMPLE == 0)
                self._client.poll(0)
                continue
            while self._number < (now - begun) * rate:
                self._produce(begun + self._number / rate, timed=True)
            self._client.poll(_TICK_S)

    def _produce(self, due: float, *, timed: bool) -> None:
        number = self._number
        key = b"%015d" % (number * 7_919 % self._plan.keys)
        value = self._values.value(number, due)
        told = {"on_delivery": partial(self._delivered, due)} if timed else {}
        while True:
            try:
                self._client.produce(TOPIC, value, key, **told)
                break
            except BufferError:
                self._client.poll(0.01)
        self._number += 1

    def _delivered(self, due: float, error: Any, _: Any) -> None:
        if error is not None:
            self._failed[str(error)] += 1
        else:
            self._times.append((due, time.perf_counter() - due))


if __name__ == "__main__":
    print(json.dumps(_Producer(Plan.from_text(sys.argv[1])).run()))
