"""Consumers of one process: `python -m benchmarks.door.consume NUMBER PLAN`.

A line on standard input is a question: `count` asks how many records the consumers have, `end` ends
the consumers and asks for the report. Each answer is a line of JSON. Each consumer is a thread, and
checks that the offsets of each partition rise.
"""

import json
import sys
import threading
import time
from typing import Any, Final

from .plan import TOPIC, Plan, due_of

_TOGETHER: Final = 500
"""Records of a call, as in Java's client."""
_POLL_S: Final = 0.2


class _Consumer:
    def __init__(self, plan: Plan, number: int, over: threading.Event) -> None:
        self._plan = plan
        self._partitions = plan.assigned(number)
        self._over = over
        self.count = 0
        self.repeated = 0
        self.error: str | None = None
        self.first_at = self.last_at = 0.0
        self.times: list[tuple[float, float]] = []
        """When a record was due, and how long its way to the consumer took."""

    def run(self) -> None:
        """Consume until the end of the turn."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({
            **self._plan.client, "group.id": "door", "enable.auto.commit": False,
            "auto.offset.reset": "error",
        })  # fmt: skip
        try:
            consumer.assign([
                TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in self._partitions
            ])  # fmt: skip
            self._consume(consumer)
        finally:
            consumer.close()

    def _consume(self, consumer: Any) -> None:
        last = dict.fromkeys(self._partitions, -1)
        together, paced = (1, True) if self._plan.rate else (_TOGETHER, False)
        while not self._over.is_set():
            found = consumer.consume(together, _POLL_S)
            now = time.perf_counter()
            for message in found:
                if (error := message.error()) is not None:
                    self.error = str(error)
                    continue
                partition, offset = message.partition(), message.offset()
                self.repeated += offset <= last[partition]
                last[partition] = offset
                due = due_of(message.value())
                if paced:
                    self.times.append((due, now - due))
            if found:
                self.count += len(found)
                self.first_at = self.first_at or now
                self.last_at = now


def main(process: int, plan: Plan) -> None:
    """Run the consumers of a process; answer questions until the end."""
    over = threading.Event()
    mine = range(process, plan.consumers, plan.processes)
    consumers = [_Consumer(plan, number, over) for number in mine]
    threads = [threading.Thread(target=each.run, daemon=True) for each in consumers]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        if line.strip() == "end":
            break
        print(json.dumps({"count": sum(each.count for each in consumers)}), flush=True)
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(_report(consumers)), flush=True)


def _report(consumers: list[_Consumer]) -> dict[str, Any]:
    return {
        "count": sum(each.count for each in consumers),
        "repeated": sum(each.repeated for each in consumers),
        "errors": sorted({each.error for each in consumers if each.error}),
        "first_at": min((each.first_at for each in consumers if each.count), default=0.0),
        "last_at": max(each.last_at for each in consumers),
        "times": [pair for each in consumers for pair in each.times],
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), Plan.from_text(sys.argv[2]))
