"""The kinds of toxics, with the attributes of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Direction = Literal["upstream", "downstream"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("upstream", "downstream")

ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("latency", "jitter"),
    "bandwidth": ("rate",),
    "slow_close": ("delay",),
    "timeout": ("timeout",),
    "reset_peer": ("timeout",),
    "slicer": ("average_size", "size_variation", "delay"),
    "limit_data": ("bytes",),
}
"""Attributes by kind. Times are in milliseconds, but a slicer's `delay` is in microseconds; rates
are in kB/s."""


@dataclass(slots=True)
class Toxic:
    """One toxic of a proxy, which may change: the stages of all its connections read it."""

    name: str
    kind: str
    stream: str
    """The direction as given, in any case."""
    toxicity: float
    """The share of connections that the toxic affects."""
    attributes: dict[str, int]

    def __getitem__(self, attribute: str) -> int:
        """Return one attribute; a value below zero counts as 0."""
        return max(0, self.attributes[attribute])

    @property
    def direction(self) -> Direction:
        """The direction of the affected bytes."""
        return "upstream" if self.stream.lower() == "upstream" else "downstream"

    def to_json(self) -> dict[str, Any]:
        """Return the toxic as the API shows it."""
        return {
            "attributes": self.attributes,
            "name": self.name,
            "type": self.kind,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }
