"""Consumers of a group: they take batches, settle them, are late, repeat themselves, and die.

A consumer that dies goes on with another number. Some of its requests come after its death. In some
runs consumers append an output, to the key of the batch, together with some acknowledgements.
"""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ...client.protocol.records import encode_batch
from ...partitions.model import Span
from ...statemachine.groups.units import key_of
from .clients import TIMEOUT_S, Door, Reply
from .clock import Scheduler
from .history import History
from .options import Options
from .trace import Trace

_THINK_S: Final = 0.15
_PAUSE_S: Final = 3.0
"""Longer than a lease."""
_PAUSES: Final = 0.03
_DIES: Final = 0.02
_REPEATS: Final = 0.1
_TAKES: Final = 0.4
_HELD_MAX: Final = 8
"""Units in hand with which a consumer at the end of a run takes no more: with more of them some
leases would end before it is their turn."""
_OUTPUTS: Final = 0.5
"""Share of the acknowledgements that come with an output."""
_PRODUCERS: Final = 10_000
"""Consumers have producer ids above all clients and readers."""
_WAYS: Final = ("ack", "ack", "ack", "ack", "ack", "ack", "part", "release", "fail", "extend")
_FAILING: Final = ("ack", "ack", "part", "release", "fail", "fail", "fail", "extend")
"""What consumers do in runs with dead letters."""


@dataclass(slots=True)
class _Held:
    unit: bytes
    """The key, or in a group without an order the entry."""
    key: bytes
    token: int
    seqs: list[int]


@dataclass(slots=True)
class Consumer:
    """One consumer, which asks one thing after another."""

    consumer_id: int
    options: Options
    door: Door
    scheduler: Scheduler
    rng: random.Random
    trace: Trace
    history: History
    makes: Callable[[bytes, Sequence[int]], None]
    """Is told of each output, and from which entries of the key the output is made."""
    outputs: random.Random
    """Decides about outputs, so that the other draws stay as they are without outputs."""
    failing: bytes | None = None
    """A key whose entries the consumer cannot do."""
    _number: int = 0
    """The record number of the last output."""
    _is_calm: bool = False
    _is_slow: bool = False
    _is_dead: bool = False
    _life: int = 0
    _held: dict[bytes, _Held] = field(default_factory=dict)
    """By unit."""
    _fences: dict[bytes, int] = field(default_factory=dict)
    """By the first key of a range, the fence of the leader that was asked last."""
    _claims: set[bytes] = field(default_factory=set)
    """The first keys of ranges whose leader must be told what the consumer holds."""
    _hints: dict[bytes, int] = field(default_factory=dict)
    _past: list[_Held] = field(default_factory=list)
    """The last batches, also of earlier lives. The consumer claims their keys too, by mistake."""
    _sent: list[dict[str, Any]] = field(default_factory=list)
    """Requests that may come again."""
    _spans: dict[bytes, Span] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the present life."""
        return self.consumer_id * 1_000 + self._life

    def start(self) -> None:
        """Begin to consume."""
        self._later(self.rng.random())

    def calm_down(self) -> None:
        """Do nothing but take and acknowledge from now on."""
        self._is_calm, self._is_slow = True, False

    def hold_on(self) -> None:
        """Extend the leases of the keys in hand from now on, or of one key, and do nothing else."""
        self._is_slow = True

    def die(self) -> None:
        """Ask for nothing more."""
        self._is_dead = True

    @property
    def held(self) -> Collection[bytes]:
        """The keys in hand, as far as the consumer knows."""
        return {each.key for each in self._held.values()}

    def _think_s(self) -> float:
        """Draw a pause. At the end of a run single entries take as long together as keys would."""
        is_quick = self._is_calm and self.options.unordered
        return self.rng.expovariate(1.0) * _THINK_S * (0.1 if is_quick else 1.0)

    def _later(self, delay_s: float) -> None:
        self.scheduler.after(delay_s, self._next)

    def _next(self) -> None:
        if self._is_dead:
            return
        drawn = 1.0 if self._is_calm else self.rng.random()
        if drawn < _DIES:
            self.trace(f"g{self.consumer_id}", "dies", f"with {len(self._held)} keys")
            self._life += 1
            self._held.clear()
            self._fences.clear()
        elif drawn < _DIES + _PAUSES:
            self._later(_PAUSE_S)
            return
        if self._sent and not self._is_calm and self.rng.random() < _REPEATS:
            self._ask(self.rng.choice(self._sent), lambda _: None)
            self._later(_THINK_S)
        elif self._held and (self._is_slow or self._is_full() or self.rng.random() >= _TAKES):
            self._settle(self.rng.choice(list(self._held.values())))
        else:
            self._take()

    def _is_full(self) -> bool:
        return self._is_calm and len(self._held) >= _HELD_MAX

    def _take(self) -> None:
        group = self.rng.randrange(self.options.groups)
        key = b"%d/k%d" % (group, self.rng.randrange(self.options.keys))
        span = next((span for span in self._spans.values() if key in span), None)
        start = None if span is None else span.start
        holds = None
        if span is not None and start in self._claims:
            own = {each.unit: each for each in (*self._past, *self._held.values())}
            holds = [(unit, each.token) for unit, each in own.items() if each.key in span]
        body = {
            "op": "group", "what": "take", "key": key, "consumer": self.number,
            "fence": self._fences.get(start or b"", 0),
            "count": 1 if self._is_slow else self.rng.randint(1, 4),
            "holds": holds,
        }  # fmt: skip
        self._ask(body, partial(self._took, body, self.number))

    def _took(self, body: dict[str, Any], number: int, reply: Reply | None) -> None:
        self._later(self._think_s())
        if reply is None or number != self.number:
            return
        span = reply["span"]
        self._spans = {start: each for start, each in self._spans.items()
                       if (each.end is not None and each.end <= span.start)
                       or (span.end is not None and span.end <= start)}  # fmt: skip
        self._spans[span.start] = span
        if body["fence"] != reply["fence"]:
            self._fences[span.start] = reply["fence"]
            self._claims.add(span.start)
            return
        if body["holds"] is not None:
            self._claims.discard(span.start)
            for unit in reply["refused"]:
                self._held.pop(unit, None)
        for unit, token, seqs in reply["batches"]:
            key = key_of(unit) if self.options.unordered else unit
            self._held[unit] = _Held(unit, key, token, seqs)
            self._past = [*self._past[-3:], self._held[unit]]

    def _settle(self, held: _Held) -> None:
        how = (
            "ack" if self._is_calm else self.rng.choice(_FAILING if self.options.letters else _WAYS)
        )
        if self._is_slow or held.key == self.failing:
            how = "extend" if self._is_slow else "fail"
        through = held.seqs[0 if how == "part" else -1] + 1
        unit, token = held.unit, held.token
        if how == "ack" and self._makes_output():
            self._append(held, through)
            return
        body = {
            "op": "group", "what": "settle", "key": held.key, "consumer": self.number,
            "acks": [(unit, token, through)] if how in ("ack", "part") else [],
            "releases": [(unit, token, self.rng.choice((0, 500)), "bad" if how == "fail" else "")]
            if how in ("release", "fail") else [],
            "extends": [(unit, token)] if how == "extend" else [],
            "leaves": False,
        }  # fmt: skip
        self._sent = [*self._sent[-5:], body]
        self._ask(body, partial(self._settled, held, how, through))

    def _makes_output(self) -> bool:
        makes = self.options.outputs and not self._is_calm
        return makes and self.outputs.random() < _OUTPUTS

    def _append(self, held: _Held, through: int) -> None:
        """Append an output of all entries of a batch, and acknowledge these."""
        self._number += 1
        producer = _PRODUCERS + self.consumer_id
        value = b"%d.%d" % (producer, self._number)
        self.history.invoke(held.key, value, producer=producer, number=self._number)
        self.makes(value, held.seqs)
        batch = encode_batch(
            [held.key], [value], producer=producer, epoch=1, low=self._number,
            numbers=self._number, atomic=True, compress=False,
        )  # fmt: skip
        body = {
            "op": "group", "what": "append", "key": held.key, "consumer": self.number,
            "ack": (held.unit, held.token, held.seqs[0], through), "batch": batch,
        }  # fmt: skip
        self._ask(body, partial(self._appended, held, value, body))

    def _appended(
        self, held: _Held, value: bytes, body: dict[str, Any], reply: Reply | None
    ) -> None:
        self._later(self._think_s())
        if reply is not None and not reply["refused"]:
            self.history.ack(value, reply["seq"])
        elif reply is not None and reply.get("outcome") != "unknown":
            self.history.refuse(value)
        else:
            self.history.give_up(value)
            self._sent = [*self._sent[-5:], body]  # perhaps the output is there: ask again
        if reply is not None and self._held.get(held.unit) is held:
            del self._held[held.unit]

    def _settled(self, held: _Held, how: str, through: int, reply: Reply | None) -> None:
        self._later(self._think_s())
        is_lost = how == "part" and self._makes_output()
        if reply is None or is_lost or self._held.get(held.unit) is not held:
            return  # the consumer asks again, or has another batch
        held.seqs = [seq for seq in held.seqs if seq >= through or how == "extend"]
        if held.unit in reply["refused"] or not held.seqs or how not in ("part", "extend"):
            del self._held[held.unit]

    def _ask(self, body: dict[str, Any], done: Callable[[Reply | None], None]) -> None:
        """Ask once; `done` gets the answer, or None after a refusal or without an answer."""
        key = body["key"]
        node = self._hints.get(key) or self.rng.randint(1, self.options.nodes)
        is_open = [True]

        def answered(reply: Reply) -> None:
            if not is_open[0]:
                return
            is_open[0] = False
            if reply["status"] == "ok":
                self._hints[key] = node
                done(reply)
                return
            hint = reply.get("hint")
            self._hints.pop(key, None)
            if hint is not None:
                self._hints[key] = hint
            done(None)

        def timed_out() -> None:
            if is_open[0]:
                is_open[0] = False
                self._hints.pop(key, None)
                done(None)

        self.door.request(node, body, answered)
        self.scheduler.after(TIMEOUT_S, timed_out)
