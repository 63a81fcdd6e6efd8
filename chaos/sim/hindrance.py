"""A hindrance at the end of a run: a consumer, or a key, with which a group gets nowhere (G5).

The consumer is `slow` and extends the leases of its keys without end, or is `dead` with keys in
hand; or a key is `failing` at every consumer. Meanwhile all other keys must come to their end. Then
the hindrance ends, except that the dead consumer stays dead, and the rest must come to its end too.
"""

import random
from collections.abc import Collection, Sequence
from typing import Final

from .consumers import Consumer
from .options import Options

_KINDS: Final = ("", "slow", "dead", "failing")


class Hindrance:
    """What is drawn for a run; it begins when the consumers do nothing but acknowledge."""

    def __init__(self, consumers: Sequence[Consumer], options: Options, rng: random.Random) -> None:
        self._consumers = consumers
        self.kind = rng.choice(_KINDS) if consumers else ""
        self._key = b"%d/k%d" % (rng.randrange(options.groups), rng.randrange(options.keys))

    def begin(self) -> None:
        """Let the consumers take and acknowledge, beside the hindrance."""
        for consumer in self._consumers:
            consumer.calm_down()
        if self.kind == "slow":
            self._consumers[0].hold_on()
        elif self.kind == "dead":
            self._consumers[0].die()
        elif self.kind == "failing":
            for consumer in self._consumers:
                consumer.failing = self._key

    def end(self) -> None:
        """Let all keys come to their end."""
        self.kind = ""
        for consumer in self._consumers:
            consumer.failing = None
            consumer.calm_down()

    @property
    def keys(self) -> Collection[bytes]:
        """The keys that may wait because of the hindrance. A dead consumer's leases end."""
        if self.kind == "slow":
            return self._consumers[0].held
        return {self._key} if self.kind == "failing" else ()
