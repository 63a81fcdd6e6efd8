"""The longest pause that clients saw during an operation on ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import quantile

Times = Mapping[str, Sequence[float]]
"""`due` and `ended` of calls or deliveries, in seconds of one clock."""
_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, from when to when clients may have noticed it."""

    kind: str
    began: float
    until: float
    took_s: float
    given_up: bool = False


def longest_s(times: Times, operation: Operation) -> float:
    """Return the longest call or delivery that overlaps the operation; 0 without any."""
    return max(
        (
            ended - due
            for due, ended in zip(times["due"], times["ended"], strict=True)
            if due <= operation.until and ended >= operation.began
        ),
        default=0.0,
    )


def rows(
    operations: Sequence[Operation], clients: Mapping[str, Times], targets: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a row for each kind, in order of first occurrence.

    `each` has the single operations.
    """
    found = []
    for kind in dict.fromkeys(each.kind for each in operations):
        some = [each for each in operations if each.kind == kind]
        singly = {"took": [each.took_s for each in some]}
        singly |= {
            f"{who} pause": [longest_s(times, each) for each in some]
            for who, times in clients.items()
        }
        row: dict[str, Any] = {"operation": kind, "count": len(some)}
        row["given up"] = sum(each.given_up for each in some)
        for what, seconds in singly.items():
            row |= {f"{what} {name} ms": _ms(quantile(seconds, at)) for name, at in _QUANTILES}
        row["each"] = {f"{what} ms": list(map(_ms, seconds)) for what, seconds in singly.items()}
        found.append({**row, "target": targets.get(kind)})
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
