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
import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import pytest

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.cached import LOG, Cached
from lognode.chaos.whole.far_store import Request
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

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

How = Literal["before", "after", "power"]
HOWS: tuple[How, ...] = ("before", "after", "power")
_ADDITIONS = Additions(tier=True, local=True)
_AGAIN_S = 0.3
_GONE_S = 100
"""The objects of the deleted log are gone within so many seconds."""


@pytest.fixture(autouse=True)
def _no_remains() -> Iterator[None]:
    """Close the coroutines of ended nodes before other tests of this process run."""
    yield
    gc.collect()
    gc.collect()


def kind_of(request: Request) -> str:
    """Say what a request does."""
    if names.part_of(request.name) is not None:
        return f"{request.kind} part"
    if names.manifest_of(request.name) is not None:
        return f"{request.kind} manifest"
    return f"{request.kind} {request.name.partition('/')[0] or '/'}"


def _has_places(puts: Mapping[str, Any], deletes: Iterable[str] = (), *_more: Any) -> bool:
    """Whether a transaction is about files that are in the tier only."""
    return any(key.startswith(meta_keys.KEPT) for key in (*puts, *deletes))


class Dying:
    """A node that dies at its step `at`, the first is 1. No step counts before `begin`."""

    def __init__(self, set_up: Stage, at: int, how: How, patch: pytest.MonkeyPatch) -> None:
        self.kinds: list[str] = []
        """What each step did, in order."""
        self._set_up = set_up
        self._at = at
        self._how = how
        self._counts = False
        tier = set_up.machines.tier
        assert tier is not None
        tier.calm()
        tier.arrives, tier.is_done = self._arrives, self._done
        for owner, name, kind in (
            (LmdbMeta, "commit", "store place"), (kept_pages, "write", "write pages"),
            (kept_pages, "remove", "forget pages"), (SegmentStore, "remove", "delete file"),
            (FarFiles, "_fetch", "fetch file"),
        ):  # fmt: skip
            self._wrap(patch, owner, name, kind)

    def begin(self) -> None:
        """Count steps from now on."""
        self._counts = True

    def end(self) -> None:
        """Count no further step."""
        self._counts = False

    def _wrap(self, patch: pytest.MonkeyPatch, owner: Any, name: str, kind: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **named: Any) -> Any:
            if not self._counts or (kind == "store place" and not _has_places(*args[1:])):
                return real(*args, **named)
            self.kinds.append(kind)
            here = len(self.kinds) == self._at
            if here and self._how != "after":
                self._die()
                raise Ended
            found = real(*args, **named)
            if here:
                self._die()
                raise Ended
            return found

        patch.setattr(owner, name, wrapped)

    def _arrives(self, request: Request) -> bool:
        if not self._counts:
            return True
        self.kinds.append(kind_of(request))
        if len(self.kinds) != self._at or self._how == "after":
            return True
        self._die()
        return False

    def _done(self, request: Request) -> None:
        if self._counts and len(self.kinds) == self._at and self._how == "after":
            self._die()

    def _die(self) -> None:
        machine, loop = self._set_up.machines[1], self._set_up.loop
        if self._how == "power":
            machine.lose_power(speaks=False)
        else:
            assert machine.process is not None
            loop.end(machine.process)
        loop.call_later(_AGAIN_S, machine.begin, context=loop.world.context)


async def _scenario(set_up: Stage, dying: Dying, side: Cached) -> None:
    machines = set_up.machines
    await found(machines, _ADDITIONS)
    async with AsyncClient(machines.servers, timeout=20.0) as client:
        await join(machines, machines.numbers, client, _ADDITIONS)
        await side.prepare(client)
        dying.begin()
        admin = client.admin
        changes: list[tuple[Any, str]] = [(admin.split, "k2"), (admin.merge, "k4")]
        for change, key in changes:
            await side.fill(client)
            await asyncio.sleep(4.0)
            await _read(side, client)
            await _repeated(lambda change=change, key=key: change(LOG, at=key))
            await _repeated(lambda: side.trim(client))
        await side.rest(client)
        await side.judge(client)
        await side.damaged(client)
        await side.delete(client)
        tier = machines.tier
        assert tier is not None
        for _ in range(_GONE_S):
            if list(tier.contents) == [names.TIER]:
                dying.end()
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"the store still has {sorted(tier.contents)[:4]}")


async def _read(side: Cached, client: AsyncClient) -> None:
    """Read in several ways; a death may take the answer."""
    for _ in range(6):
        with contextlib.suppress(LognodeError):
            await side.read(client, timeout=5.0)


async def _repeated(call: Callable[[], Any]) -> None:
    """Make a change, whose answer a death may have taken."""
    for _ in range(3):
        with contextlib.suppress(LognodeError):
            await call()
            return
        await asyncio.sleep(1.0)


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


def _chosen(kinds: list[str]) -> list[int]:
    """Each kind of step in the middle, and each that changes something also at other places; by
    hand all steps."""
    if os.environ.get("LOGNODE_TIER_KILLS") == "all":
        return list(range(1, len(kinds) + 1))
    places: dict[str, list[int]] = {}
    for at, kind in enumerate(kinds, 1):
        places.setdefault(kind, []).append(at)
    return sorted(some[len(some) // 2] for some in places.values())


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_node_that_dies_while_files_leave_its_disk_loses_nothing_and_keeps_nothing(
    kinds: list[str], how: How
) -> None:
    chosen = _chosen(kinds)
    if os.environ.get("LOGNODE_TIER_KILLS") != "all":
        chosen = chosen[HOWS.index(how) :: len(HOWS)]
    for at in chosen:
        run(at, how)
