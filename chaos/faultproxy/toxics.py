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
"""By kind. Times in milliseconds, but `delay` of a slicer in microseconds; rates in kB/s."""


@dataclass(slots=True)
class Toxic:
    """One toxic of a proxy; the stages of all its connections read it, so it may be changed."""

    name: str
    kind: str
    stream: str
    """The direction as it was given, in capitals or not."""
    toxicity: float
    """The share of connections that it takes."""
    attributes: dict[str, int]

    def __getitem__(self, attribute: str) -> int:
        """One attribute; below zero there is none."""
        return max(0, self.attributes[attribute])

    @property
    def direction(self) -> Direction:
        """Of the bytes that it takes."""
        return "upstream" if self.stream.lower() == "upstream" else "downstream"

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "attributes": self.attributes,
            "name": self.name,
            "type": self.kind,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }
