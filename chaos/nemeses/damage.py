"""The rules that keep damage fair: S2 assumes only that a majority of the members' disks survives.

Damage may stay unseen, in a file that is not read for now. Only one node is therefore damaged in a
test, which is a minority of any range of three members or more. It is damaged again only after the
ranges that it gave up have gone on to later generations and the cluster is healthy.
"""

import contextlib
import json
from typing import TYPE_CHECKING, Final

from ...client.protocol.errors import LognodeError
from .victims import leaders_of, pick

if TYPE_CHECKING:
    from .package import Target

_MEMBERS_MIN: Final = 3
_ANSWER_S: Final = 1.0


class Damage:
    """The damage of a test, shared by all packages that damage disks."""

    def __init__(self) -> None:
        self._victim: int | None = None
        self._since: int | None = None
        """The length of the node's log, in bytes, when it was damaged; None: the node is whole."""

    async def next_victim(self, target: "Target") -> int | None:
        """Return the node to damage now; None while it is not whole, or no node can be spared."""
        if self._since is not None and not await self._over(target):
            return None
        self._since = None
        if self._victim is None:
            if len(target.nodes) < _MEMBERS_MIN:
                return None
            # A leader, if one is known: damage of followers shows less.
            leaders = pick(target.rng, "leaders", target.nodes.numbers, await leaders_of(target))
            self._victim = target.rng.choice(leaders)
        self._since = self._log_size(target)
        return self._victim

    def refused(self, target: "Target") -> dict[int, int]:
        """Return range and generation of the replicas given up since the node was damaged."""
        found: dict[int, int] = {}
        if self._victim is not None:
            log = target.nodes[self._victim].log_path.read_bytes()[self._since or 0 :]
            for line in log.splitlines():
                if b"takes no part" in line:
                    with contextlib.suppress(ValueError, KeyError):
                        said = json.loads(line)
                        found[said["range"]] = said["generation"]
        return found

    async def _over(self, target: "Target") -> bool:
        """Whether the node serves and no damage is left."""
        assert self._victim is not None
        with contextlib.suppress(LognodeError):
            await target.nodes[self._victim].wait_ready(_ANSWER_S)
            health = await target.client.health(nodes=len(target.nodes), timeout=_ANSWER_S)
            ranges = (await target.client.status(timeout=_ANSWER_S))["ranges"]
            now = {row["id"]: row["generation"] for row in ranges}
            refused = self.refused(target)
            # A missing range was merged with another, or its log deleted.
            return bool(health["ok"]) and all(
                now.get(range_id, generation + 1) > generation
                for range_id, generation in refused.items()
            )
        return False

    def _log_size(self, target: "Target") -> int:
        assert self._victim is not None
        with contextlib.suppress(OSError):
            return target.nodes[self._victim].log_path.stat().st_size
        return 0
