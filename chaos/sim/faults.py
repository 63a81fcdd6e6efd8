"""A fault as a value: when, what, where, for how long. A nemesis makes a list of them.

A schedule contains everything that was drawn, with victims by number and exact times. It therefore
replays without the random source, and any part of it is a run of its own, as the shrinker needs
(`shrink`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Times are virtual seconds; `at` counts from the start of the run."""

    at: float
    kind: str
    """One of `options.FAULTS`; `change` is an operation on a range instead of a fault. Or `lose`: a
    machine is gone for good."""
    nodes: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    """Directions (from, to)."""
    seconds: float = 0.0
    """The duration, or the time until the victim starts again; 0: the fault has no end of its
    own."""
    how: str = ""
    value: float = 0.0
    notice: bool = False
    """Whether both ends of a broken connection notice the break."""

    def __str__(self) -> str:
        parts = [f"{self.at:.3f}", self.kind]
        parts += [self.how] if self.how else []
        parts += [",".join(f"n{node}" for node in self.nodes)] if self.nodes else []
        parts += [",".join(f"n{a}>n{b}" for a, b in self.pairs)] if self.pairs else []
        parts += [f"value={self.value:g}"] if self.value else []
        parts += [f"for={self.seconds:.3f}"] if self.seconds else []
        parts += ["noticed"] if self.notice else []
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the form of a schedule's file: the fields that differ from the defaults."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in told.items() if value or name in ("at", "kind")}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Fault":
        """Undo `to_json`. Raises TypeError, ValueError."""
        told = dict(body)
        told["nodes"] = tuple(told.get("nodes", ()))
        told["pairs"] = tuple((a, b) for a, b in told.get("pairs", ()))
        return cls(**told)
