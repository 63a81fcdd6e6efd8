"""Clients that crash in the middle of a call: no client receives the answer."""

from .package import Begun, Target


class Client:
    """Cuts one client off; the workload puts a new client in its place."""

    name = "client"

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Crash one producer or consumer."""
        return await target.clients.crash(), []

    async def end(self, target: Target) -> None:
        """Do nothing: the crashed client is gone."""
