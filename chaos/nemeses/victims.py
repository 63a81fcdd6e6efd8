"""The choice of victims: pure functions of the node numbers, the leaders and a random source."""

import contextlib
import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import LognodeError

if TYPE_CHECKING:
    from .package import Target

WHO: Final = ("one", "minority", "majority", "all", "leaders")
_STATUS_S: Final = 1.0


def pick(
    rng: random.Random, who: str, numbers: Sequence[int], leaders: Collection[int]
) -> list[int]:
    """Return the numbers of the nodes that `who`, one of WHO, names; at least one.

    A minority is as large as possible. Without known leaders, one random node replaces them.
    """
    count = len(numbers)
    if who == "leaders":
        known = sorted(set(leaders) & set(numbers))
        return known or [rng.choice(numbers)]
    sizes = {
        "one": 1, "minority": max(1, (count - 1) // 2), "majority": count // 2 + 1, "all": count,
    }  # fmt: skip
    return sorted(rng.sample(numbers, sizes[who]))


class Draw:
    """Draws the victims of each fault of a run.

    The first draw is the leaders, so that a short run hits a leader too: a run without a leader as
    victim shows nothing. Each later draw is random.
    """

    def __init__(self, among: Sequence[str] = WHO) -> None:
        self._among = among
        self._drawn = False

    def __call__(self, rng: random.Random) -> str:
        """Return one of the choices given at the start."""
        who = rng.choice(self._among) if self._drawn else "leaders"
        self._drawn = True
        return who


def in_words(who: str) -> str:
    """Return the text that follows "kill of"."""
    named = {"one": "one node", "minority": "a minority", "majority": "a majority"}
    return named.get(who, "all nodes" if who == "all" else "the leaders")


async def status_of(target: "Target") -> dict[str, Any]:
    """Return the cluster's status from one node; no ranges, nodes, operations if none answers."""
    with contextlib.suppress(LognodeError):
        return await target.client.status(timeout=_STATUS_S)
    return {"ranges": [], "nodes": [], "operations": [], "cluster": {"controller_leader": None}}


async def leaders_of(target: "Target") -> list[int]:
    """Return the nodes that lead ranges of the log, as one node knows; none if no node answers."""
    ranges = (await status_of(target))["ranges"]
    return sorted({row["leader"] for row in ranges if row["log"] == target.log and row["leader"]})
