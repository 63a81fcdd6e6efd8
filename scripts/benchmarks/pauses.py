"""The longest pause that clients saw while something was done to ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import quantile

Times = Mapping[str, Sequence[float]]
"""`due` and `ended` of calls or deliveries, in seconds of one clock."""
_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


@dataclass(frozen=True, slots=True)
class Operation:
    """What was done, from when to when somebody may have noticed."""

    kind: str
    began: float
    until: float
    took_s: float
    given_up: bool = False


def longest_s(times: Times, operation: Operation) -> float:
    """The longest that anything took of which a part lies within the operation; 0 of nothing."""
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
    """A row for each kind, in the order in which they were first done; `each` has them singly."""
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
