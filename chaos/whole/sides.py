"""The clients beside the workload of a run: guests, readers of pages, users of other logs."""

import random
from typing import Final, Protocol

from ...client.client import AsyncClient
from ..plan import Plan
from ..verdict import Anomaly
from .additions import Additions
from .cached import Cached
from .guests import Guests
from .nodes import Machines
from .pages import Pages
from .removed import Removed
from .renewals import Renewals
from .restores import Restores
from .tiered import Tiered

_BOUNDS: Final = (None, 1, 40_000)
"""Bytes of a range of the restored log that the disks keep, with the addition `local`."""


class Side(Protocol):
    """Clients with a judgement of their own."""

    anomalies: list[Anomaly]
    """What broke a promise, so far."""

    async def prepare(self, admin: AsyncClient) -> None:
        """Make what the clients need, before the faults begin."""

    async def run(self) -> None:
        """Work until cancelled."""

    async def finish(self, admin: AsyncClient) -> None:
        """Judge what is left, once the faults are over and the cluster is healthy."""


def sides_of(plan: Plan, additions: Additions, machines: Machines) -> list[Side]:
    """Return the clients that the seed adds."""

    def rng(name: str) -> random.Random:
        return random.Random(f"{plan.seed}/{name}")

    found: list[Side] = []
    if additions.tokens:
        right = "clock" not in plan.nemesis
        found.append(Guests(machines, rng("guests"), clocks_are_right=right))
    if additions.tls:
        found.append(Renewals(machines, rng("renewals")))
    if additions.http:
        found.append(Pages(machines, rng("pages")))
    if additions.removal:
        found.append(Removed(machines, rng("removed")))
    if additions.restores:
        found.append(Restores(machines, rng("restores")))
    if machines.tier is not None:
        spread = plan.nodes > 1 and not additions.loss
        if additions.local:
            found.append(Cached(machines, machines.tier, rng("local")))
        bound = rng("bound").choice(_BOUNDS) if additions.local else None
        found.append(
            Tiered(machines, machines.tier, rng("tier"), is_spread=spread, local_bytes=bound)
        )
    return found
