"""A stored test as the report sees it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...client.protocol.errors import InvalidArgument
from ..history import CLUSTER, Band, History, Operation

FINAL: Final = "final"
"""The kind of operation that reads everything back after all faults have healed."""
_NOT_JUDGED: Final = {
    "verdict": "unknown",
    "why": "The history was not judged; run `lognode-chaos analyze` on this folder.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A kind of anomaly that a checker found."""

    checker: str
    name: str
    promise: str | None
    count: int
    """The number of all such anomalies; `examples` has fewer."""
    examples: tuple[dict[str, Any], ...]
    """{message, key, operations} of each."""


@dataclass(frozen=True, slots=True)
class Run:
    """One test: its options, its events (times are ns since its start), and its findings."""

    test: dict[str, Any]
    results: dict[str, Any]
    operations: list[Operation]
    told: dict[int, int]
    """By the index of an operation, when its client was answered or gave up; operations that the
    end of the test cut off are missing."""
    bands: list[Band]
    leaders: list[tuple[int, dict[str, int]]]
    """When the leaders of ranges were seen to change, and the leaders from then on."""
    end: int
    found: list[Found]

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of operations under faults, in the order of their first occurrence."""
        return list(dict.fromkeys(one.f for one in self.operations if one.f != FINAL))

    def offending(self) -> dict[int, str]:
        """Return, by the index of an operation, the first anomaly that it shows."""
        named: dict[int, str] = {}
        for found in self.found:
            for example in found.examples:
                for index in example["operations"]:
                    named.setdefault(index, found.name)
        return named


def read(folder: Path) -> Run:
    """Read a test. Raises InvalidArgument when the folder holds no test, or it cannot be read."""
    test = _json(folder / "test.json")
    results = _json(folder / "results.json") if (folder / "results.json").exists() else _NOT_JUDGED
    try:
        history = History.read(folder / "history.jsonl")
        operations, bands = history.operations(), history.bands()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{folder / 'history.jsonl'}: {error}", what="history") from None
    leaders = [
        (event.time, event.value["leaders"]) for event in history.events if event.f == CLUSTER
    ]
    return Run(
        test, results, operations, _told(history), bands, leaders,
        max((event.time for event in history.events), default=0), list(_found(results)),
    )  # fmt: skip


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error}; give a folder STORE/TEST/TIME", what="folder"
        ) from None
    return content


def _told(history: History) -> dict[int, int]:
    pending: dict[int, int] = {}
    told: dict[int, int] = {}
    for event in history.events:
        if event.process is None:
            continue
        if event.type == "invoke":
            pending[event.process] = event.index
        else:
            told[pending.pop(event.process)] = event.time
    return told


def _found(results: dict[str, Any]) -> Iterator[Found]:
    for checker, result in results.get("checkers", {}).items():
        for name, one in result["anomalies"].items():
            yield Found(checker, name, one.get("promise"), one["count"], tuple(one["examples"]))
