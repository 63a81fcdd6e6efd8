"""An object store that fails: errors, lost answers, silence, late requests, old listings."""

from typing import Final

from .. import tier_server
from .package import Begun, Target

_SHARES: Final = {"500": (0.2, 0.6, 1.0), "silent": (0.3, 1.0), "away": (1.0,), "old": (0.3, 0.7)}
"""The share of requests that a fault spoils."""
_USUAL: Final = (0.1, 0.3, 0.6)
WORDS: Final = {
    "500": "get 500 or 503",
    "lost": "are done and get no answer",
    "cut": "get half of an answer",
    "part": "break off in the middle of an upload",
    "silent": "get no answer",
    "late": "arrive late",
    "old": "get an old listing",
    "away": "find no store",
}
"""What happens to the requests, by the names of `tier_proxy.FAULTS`."""


class Tier:
    """Spoils requests of nodes to the store of the cluster's tier."""

    name = "tier"

    def missing(self) -> str | None:
        """Return what the server of the store lacks."""
        return tier_server.missing()

    async def begin(self, target: Target) -> Begun | None:
        """Begin a fault, unless the cluster has no tier."""
        if target.tier is None:
            return None
        fault = target.rng.choice(sorted(WORDS))
        share = target.rng.choice(_SHARES.get(fault, _USUAL))
        target.tier.spoil(fault, share)
        return f"{share:.0%} of the requests to the store {WORDS[fault]}", []

    async def end(self, target: Target) -> None:
        """End the fault."""
        if target.tier is not None:
            target.tier.heal()
