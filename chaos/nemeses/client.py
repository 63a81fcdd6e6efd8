"""Clients that crash in the middle of a call: nobody is there to take the answer."""

from .package import Begun, Target


class Client:
    """Cuts one client off; the workload puts a new one in its place."""

    name = "client"

    def missing(self) -> str | None:
        """Nothing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """One producer or consumer."""
        return await target.clients.crash(), []

    async def end(self, target: Target) -> None:
        """Nothing: what crashed is gone."""
