"""The results of checkers on a history: valid, invalid or unknown, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["valid", "invalid", "unknown"]

EXIT_CODES: dict[Verdict, int] = {"valid": 0, "invalid": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One violation: `name` is its kind, such as `lost-write`."""

    name: str
    message: str
    """A sentence with the observation and the expectation."""
    key: str | None = None
    operations: tuple[int, ...] = ()
    """Indexes of the invocations that show the violation."""
    promise: str | None = None
    """The id of the broken promise, such as `S2`."""


@dataclass(slots=True)
class Result:
    """The result of one checker.

    `unknown` holds the reasons why it cannot vouch for the history.
    """

    checker: str
    anomalies: list[Anomaly] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The verdict: anomalies outweigh reasons for unknown."""
        if self.anomalies:
            return "invalid"
        return "unknown" if self.unknown else "valid"

    def to_json(self) -> dict[str, Any]:
        """Return the content of `results.json`, with at most 20 anomalies of each name.

        Their number is there in full.
        """
        names = sorted({one.name for one in self.anomalies})
        found = {name: [one for one in self.anomalies if one.name == name] for name in names}
        return {
            "verdict": self.verdict,
            "unknown": self.unknown,
            "counts": self.counts,
            "anomalies": {
                name: {
                    "count": len(same),
                    "promise": same[0].promise,
                    "examples": [
                        {"message": one.message, "key": one.key, "operations": list(one.operations)}
                        for one in same[:20]
                    ],
                }
                for name, same in found.items()
            },
        }


def merged(results: Sequence[Result]) -> Verdict:
    """Return the verdict of all checkers together."""
    return worst(one.verdict for one in results)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return invalid if any verdict is; else unknown if any is; else valid."""
    found = set(verdicts)
    return "invalid" if "invalid" in found else "unknown" if "unknown" in found else "valid"
