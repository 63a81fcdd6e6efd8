"""Nodes that are upgraded to this build, and rolled back to an earlier one, in order (SIGTERM)."""

from ..upgrades import change_build
from .package import Begun, Target


class Upgrade:
    """Changes the build of one node at a time. Nothing is finalized meanwhile."""

    name = "upgrade"

    def __init__(self) -> None:
        self._changing: int | None = None

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Give one node the other build."""
        self._changing = target.rng.choice(target.nodes.numbers)
        what = await change_build(target.nodes, self._changing)
        return f"{what} of a node", [self._changing]

    async def end(self, target: Target) -> None:
        """Start the node, if the change was interrupted. It keeps its build."""
        if self._changing is not None:
            await target.nodes[self._changing].start()
        self._changing = None
