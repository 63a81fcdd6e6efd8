"""A node that dies at each step by which files leave its disk, are read again, and end in the tier.

A node of the whole mode has a log with a tiny `local_retention_bytes`. The steps are its requests
to the object store, and what it does on its disk between them: it stores the place of a file,
writes pages, deletes the file, forgets pages, fetches a damaged file. The node dies before a step,
after the step and before its answer, or by a loss of power; then it starts again. At the end every
acknowledged entry is read, once; the disk is within its bound; the store has nothing but what
a restore needs; and the deleted log leaves neither the disk nor the store.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from dying_tier_node import HOWS, DyingNode, How, no_remains, places_of, repeated, tried

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.cached import LOG, Cached
from lognode.chaos.whole.founding import found, join
from lognode.chaos.whole.process import Ended
from lognode.chaos.whole.stage import Stage, stage
from lognode.chaos.whole.trace import Trace
from lognode.client.client import AsyncClient
from lognode.client.protocol.errors import LognodeError
from lognode.node.directory import meta_keys
from lognode.node.tier import kept_pages, names
from lognode.node.tier.far_files import FarFiles
from lognode.statemachine.meta import LmdbMeta
from lognode.statemachine.segments import SegmentStore

__all__ = ["no_remains"]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_ADDITIONS = Additions(tier=True, local=True)
_GONE_S = 100
"""The objects of the deleted log are gone within so many seconds."""


def _has_places(puts: Mapping[str, Any], deletes: Iterable[str] = (), *_more: Any) -> bool:
    """Whether a transaction is about files that are in the tier only."""
    return any(key.startswith(meta_keys.KEPT) for key in (*puts, *deletes))


class Dying(DyingNode):
    """A node whose steps are also those on its disk."""

    def __init__(self, set_up: Stage, at: int, how: How, patch: pytest.MonkeyPatch) -> None:
        super().__init__(set_up, at, how, counts=False)
        for owner, name, kind in (
            (LmdbMeta, "commit", "store place"), (kept_pages, "write", "write pages"),
            (kept_pages, "remove", "forget pages"), (SegmentStore, "remove", "delete file"),
            (FarFiles, "_fetch", "fetch file"),
        ):  # fmt: skip
            self._wrap(patch, owner, name, kind)

    def _wrap(self, patch: pytest.MonkeyPatch, owner: Any, name: str, kind: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **named: Any) -> Any:
            if not self.counts or (kind == "store place" and not _has_places(*args[1:])):
                return real(*args, **named)
            self.kinds.append(kind)
            here = len(self.kinds) == self.at
            if here and self.how != "after":
                self.die()
                raise Ended
            found = real(*args, **named)
            if here:
                self.die()
                raise Ended
            return found

        patch.setattr(owner, name, wrapped)


async def _scenario(set_up: Stage, dying: Dying, side: Cached) -> None:
    machines = set_up.machines
    await found(machines, _ADDITIONS)
    async with AsyncClient(machines.servers, timeout=20.0) as client:
        await join(machines, machines.numbers, client, _ADDITIONS)
        await side.prepare(client)
        dying.counts = True
        admin = client.admin
        changes: list[tuple[Any, str]] = [(admin.split, "k2"), (admin.merge, "k4")]
        for change, key in changes:
            await side.fill(client)
            await asyncio.sleep(4.0)
            await _read(side, client)
            await repeated(lambda change=change, key=key: change(LOG, at=key))
            await repeated(lambda: side.trim(client))
        await side.rest(client)
        await side.judge(client)
        await side.damaged(client)
        await side.delete(client)
        tier = machines.tier
        assert tier is not None
        for _ in range(_GONE_S):
            if list(tier.contents) == [names.TIER]:
                dying.counts = False
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"the store still has {sorted(tier.contents)[:4]}")


async def _read(side: Cached, client: AsyncClient) -> None:
    """Read in several ways; a death may take the answer."""
    for _ in range(6):
        with contextlib.suppress(LognodeError):
            await side.read(client, timeout=5.0)


def run(at: int, how: How) -> list[str]:
    with stage(7, 1, Trace(None), _ADDITIONS) as set_up, pytest.MonkeyPatch.context() as patch:
        tier = set_up.machines.tier
        assert tier is not None
        dying = Dying(set_up, at, how, patch)
        side = Cached(set_up.machines, tier, random.Random(2))
        set_up.loop.run(_scenario(set_up, dying, side))
        assert not set_up.machines.bugs
    assert [each.message for each in side.anomalies] == [], f"{how} step {at}"
    return dying.kinds


@pytest.fixture(scope="module")
def kinds() -> list[str]:
    """What the steps of a node do that does not die."""
    return run(0, "before")


def test_the_scenario_has_all_kinds_of_steps(kinds: list[str]) -> None:
    counts = Counter(kinds)
    for kind in ("put part", "put manifest", "get manifest", "list manifests", "list files",
                 "get part", "delete part", "delete manifest", "store place", "write pages",
                 "delete file", "forget pages", "fetch file"):  # fmt: skip
        assert counts[kind] >= 1, counts


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_node_that_dies_while_files_leave_its_disk_loses_nothing_and_keeps_nothing(
    kinds: list[str], how: How
) -> None:
    """CI tries each kind of step in the middle."""
    chosen = sorted(some[len(some) // 2] for some in places_of(kinds).values())
    for at in tried(kinds, chosen, how):
        run(at, how)
