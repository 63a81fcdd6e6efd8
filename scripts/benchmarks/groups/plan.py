"""What the appends and the consumers of one turn have to know, as JSON from process to process."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from ..stamps import Stamps

DELIVERIES_MAX: Final = 5
"""How often the item of the poison key is tried."""
RETRY_S: Final = 0.1
"""The pause between two tries."""
POISON: Final = 0
"""The number of the poison key."""


@dataclass(frozen=True)
class Plan:
    """One turn of one system.

    `mode`: which kind of group, see `on_lognode`, `on_nats`, `on_kafka`. `rate`: records a second
    that are appended while consumers work; without it, `records` are there before. `in_order`:
    the backlog has the keys one after the other instead of at random. `burst`: how many records of
    a key follow one another. `poison_every`: each so many-th record goes to the poison key;
    `fails`: and consumers fail at that key. `life_s`: how long a consumer stays before it leaves
    and another joins; 0 for ever. `credit`: the most keys that a consumer of lognode has at a time.
    """

    system: str
    mode: str
    addresses: list[str]
    directory: str
    keys: int
    value_bytes: int
    consumers: int
    processes: int
    batch: int
    rate: float = 0.0
    seconds: float = 0.0
    warmup_s: float = 0.0
    records: int = 0
    in_order: bool = False
    burst: int = 1
    poison_every: int = 0
    fails: bool = False
    life_s: float = 0.0
    ranges: int = 4
    credit: int = 4_096
    timeout_s: float = 60.0

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Undo `to_text`."""
        return cls(**json.loads(text))

    def to_text(self) -> str:
        """Return the plan as an argument of a program."""
        return json.dumps(asdict(self))

    @cached_property
    def stamps(self) -> Stamps:
        """The keys and values. Making their fills takes long."""
        return Stamps(self.keys, self.value_bytes)

    @property
    def appended(self) -> Path:
        """The file with the number of records of each key."""
        return Path(self.directory) / "appended"

    @property
    def tally(self) -> Path:
        """The file in which each process counts what is acknowledged."""
        return Path(self.directory) / "tally"

    def done(self, process: int) -> Path:
        """The file in which a process of consumers writes what it did."""
        return Path(self.directory) / f"done{process}"
