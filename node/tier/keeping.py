"""The work of each node for its local disk: leave files of ranges in the tier only.

One range at a time. The node claims in the manifests of the range what it has in the tier only, and
what it wishes to delete, by the log's `local_retention_bytes`. Then it stores where the files are,
and deletes its copies (the docstring of the folder has the contract, from rule 6 on). A replica of
a new generation speaks at its first look. Later looks come when the files of the range have
changed, and `grace / 4` apart at the most: a damaged head loses its claims.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...client.protocol.limits import MIB
from ...partitions.metadata import Metadata
from ...partitions.model import LogRecord
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ...statemachine.segments import SegmentStore
from ...statemachine.spans import EVERYTHING
from ..directory.kept_files import Place, Places
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..rules.ending import files_of
from ..runtime.slices import one_by_one
from ..runtime.workers import Workers
from . import claims
from .far_files import FarFiles
from .manifest import Held, Manifest
from .names import Chain
from .planning import Own
from .tier_progress import TierProgress
from .tier_store import TierStore
from .uploads import facts_of, own_of

_PERIOD_S: Final = 1.0
_AGAIN_S: Final = 2.0
"""How long a range rests whose files the tier does not have yet."""
_REST_S: Final = 10.0
"""How long all ranges rest after an error of the store."""
_AT_ONCE: Final = 64
"""The most files that one manifest of a node claims anew."""
_IDLE_S: Final = 20.0
"""The leader has nothing more to publish if the head is the same for so long; less with a short
grace time."""
_ADDED_BYTES: Final = 16 * MIB
"""After so many bytes a member publishes the files that it has uploaded."""
_JOIN_S: Final = 30.0
_JOIN_FILE_S: Final = 0.2
"""How long a base from a peer waits for the tier, and for each file: then files come from peers."""
_UNLISTED_S: Final = 300.0
"""How long a chain without a listed manifest is looked for, before the node takes it for removed:
a listing may be old."""
_NEVER: Final = float("-inf")

log = logging.getLogger("lognode.tier")


@dataclass(slots=True)
class _Range:
    """What the node knows of a range. `has_spoken`: the last look at the tier has left nothing to
    say. `done`: base and bound of the last look that left nothing to delete."""

    has_spoken: bool = False
    head: int = 0
    """The number of the head at the last look, which was the same since `head_since`."""
    head_since: float = _NEVER
    done: tuple[Base, int | None] | None = None
    looked_at: float = _NEVER
    rests_until: float = _NEVER


class Keeping:
    """Runs on every node with a tier. All calls on the loop."""

    def __init__(
        self, *, node_id: int, cluster: str, host: Host, files: SegmentStore, store: TierStore,
        far: FarFiles, metadata: Callable[[], Metadata], wall_ms: Callable[[], int],
        progress: TierProgress, workers: Workers, grace_s: float,
        upload: Callable[[Own, str, int, int], Awaitable[Held]],
    ) -> None:  # fmt: skip
        self._node_id = node_id
        self._cluster = cluster
        self._host = host
        self._kept = host.kept
        self._files = files
        self._store = store
        self._far = far
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._progress = progress
        self._workers = workers
        self._upload = upload
        self._look_s = max(_PERIOD_S, grace_s / 4)
        self._idle_s = min(_IDLE_S, max(2 * _PERIOD_S, grace_s / 4))
        self._ranges: dict[GroupId, _Range] = {}
        self._has_begun = False
        self._turn = asyncio.Lock()
        """Held while this node puts a manifest: it makes each from what it said before."""
        self._rests_until = _NEVER
        self._adding: tuple[GroupId, asyncio.Task[None]] | None = None
        """The upload of files that no leader uploads, beside all other work: it may take long."""
        self._added: dict[GroupId, tuple[int, dict[str, Held]]] = {}
        """The number of the head for which the last upload of a range was, and its files."""
        self._unlisted: dict[GroupId, tuple[float, float]] = {}
        """Since when the chain of a claim that is to end has no listed manifest, and when the node
        looks again."""
        self._with_pages: Places = {}
        """The places at the last look at pages of files without a place."""

    def stop(self) -> None:
        """Stop. A request under way ends by itself, and nobody waits for it."""
        if self._adding is not None:
            self._adding[1].cancel()
        self._workers.leave()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            seen: set[GroupId] = set()
            async for replica in one_by_one(self._host.ranges()):
                seen.add(replica.gid)
                if time.monotonic() >= self._rests_until and self._is_due(replica):
                    with self._noted(replica.gid):
                        await self._serve(replica)
            for gid in self._ranges.keys() - seen:
                del self._ranges[gid]
                self._added.pop(gid, None)
            if self._adding is not None and self._adding[1].done():
                (_, ended), self._adding = self._adding, None
                ended.result()
            if time.monotonic() >= self._rests_until:
                with self._noted(None):
                    await self._end_joins()
            if self._kept.by_id is not self._with_pages:
                self._with_pages = self._kept.by_id
                await self._far.forget_pages()

    @contextlib.contextmanager
    def _noted(self, gid: GroupId | None) -> Iterator[None]:
        """Note an error of the store. A store that is away gives all ranges a rest."""
        try:
            yield
        except LognodeError as error:
            self._progress.failed(error)
            fields = {"range": None if gid is None else gid.range_id, "error": str(error)}
            log.warning("the node tries again to leave files in the tier only",
                        extra={"fields": fields})  # fmt: skip
            until = time.monotonic() + _REST_S
            if isinstance(error, Unavailable) or gid is None:
                self._rests_until = until
            elif gid in self._ranges:
                self._ranges[gid].rests_until = until

    def _is_due(self, replica: RangeReplica) -> bool:
        """Whether to look at the tier for this range now."""
        gid, now = replica.gid, time.monotonic()
        if replica.stopped or replica.is_sealed:
            return False  # the chain of a sealed generation is closed, or soon will be
        known = self._ranges.get(gid)
        if known is not None and now < known.rests_until:
            return False
        bound = self._bound(replica)
        if bound is None and not self._kept.knows(gid):
            return False
        if known is None or known.done is None or now - known.looked_at > self._look_s:
            return True
        return known.done[0] is not replica.state.durable_base or known.done[1] != bound

    def _bound(self, replica: RangeReplica) -> int | None:
        record = self._metadata().logs.get(replica.descriptor.log_id)
        return None if record is None else record.policy.local_retention_bytes

    def leaving(self, log_id: int, base: Base) -> list[str]:
        """Return the files of a base that the policy leaves in the tier only, the oldest first."""
        record = self._metadata().logs.get(log_id)
        bound = None if record is None else record.policy.local_retention_bytes
        if bound is None:
            return []
        sizes = {info.content_id: info.size for info in base.manifest}
        return claims.surplus(list(sizes.items()), sizes, bound)

    def _surplus(self, replica: RangeReplica) -> list[str]:
        """Return those of these files that are on the disk."""
        leaving = self.leaving(replica.descriptor.log_id, replica.state.durable_base)
        return [name for name in leaving if self._files.is_listed(name)]

    async def _serve(self, replica: RangeReplica) -> None:
        """Claim files, and delete what is claimed. Raises the errors of the store."""
        gid, now = replica.gid, time.monotonic()
        known = self._ranges.setdefault(gid, _Range())
        base, bound = replica.state.durable_base, self._bound(replica)
        surplus = self._surplus(replica)
        before, wants = len(surplus), any(not self._kept.has(gid, name) for name in surplus)
        unneeded = self._kept.of(gid).keys() - _named(replica)
        is_adding = self._adding is not None and self._adding[0] == gid
        if is_adding:
            known.has_spoken = False  # a manifest now would make the upload useless
        elif wants or unneeded or not known.has_spoken or now - known.looked_at > self._look_s:
            known.has_spoken = False
            async with self._turn:
                known.has_spoken = await self._claim(replica, known)
            known.looked_at = now
        await self._delete(name for name in self._surplus(replica) if self._kept.has(gid, name))
        left = len(self._surplus(replica))
        if left or not known.has_spoken:
            rest_s = _AGAIN_S if left >= before else 0.0  # go on where something was deleted
            known.done, known.rests_until = None, time.monotonic() + rest_s
        else:
            known.done = base, bound

    async def _claim(self, replica: RangeReplica, known: _Range) -> bool:
        """Speak in the chain of the range, if there is something to say; False: look again soon."""
        record = self._metadata().logs.get(replica.descriptor.log_id)
        if record is None:
            return True
        gid, own = replica.gid, own_of(replica, record)
        head = await self._head(own)
        if self._host.replica(gid) is not replica or replica.is_sealed:
            return True
        if head is not None and head.number != known.head:
            known.head, known.head_since = head.number, time.monotonic()
        added = self._uploaded(replica, own, head, known)
        if added is None:
            return False
        word = self._word(replica, head, added)
        if word is None:
            await self._follow(gid, head)
            return head is not None
        # From here to the put nothing may use a place that the word gives up.
        said_names = word.claims[self._node_id]
        places = {name: place for name, place in self._kept.of(gid).items() if name in said_names}
        if places != self._kept.of(gid):
            await self._kept.store(gid, places)
        said = replace(word, node=self._node_id, written_ms=self._wall_ms())
        if not await self._workers.run(partial(self._store.publish, said)):
            return False  # another writer was faster: the next look sees what it did
        found = claims.granted(self._node_id, said, await self._head(own))
        if found and self._host.replica(gid) is not None:
            granted = {name: Place(*held) for name, held in found.items()}
            await self._kept.store(gid, {**self._kept.of(gid), **granted})
        return bool(found)

    async def _head(self, own: Own) -> Manifest | None:
        if not self._has_begun:
            await self._workers.run(partial(self._store.begin, self._cluster))
            await self._kept.check(await self._workers.run(self._store.token))
            self._has_begun = True
        return await self._workers.run(partial(self._store.head, own.chain, own))

    def _uploaded(
        self, replica: RangeReplica, own: Own, head: Manifest | None, known: _Range
    ) -> dict[str, Held] | None:
        """Return files that this member has uploaded for this head; None: an upload begins.

        These are files that the member wishes to delete and that no leader will upload: the head
        has a base that is as late as the one here, without the files, or nobody has put a manifest
        for a while. The members have frozen their memtables or merged differently. The files have
        the label of the head, so the next manifest may name them. If another writer is faster, the
        upload was in vain. One range at a time uploads, while all others are looked at.
        """
        number, found = self._added.pop(replica.gid, (0, {}))
        if head is None or head.closed or not head.is_whole or replica.leads:
            return {}
        if number == head.number:
            return found
        is_idle = time.monotonic() - known.head_since > self._idle_s
        if head.applied[0] < own.applied[0] and not is_idle:
            return {}
        places = self._kept.of(replica.gid)
        lacking = [
            name for name in self._surplus(replica)
            if name not in head.held and name not in places and name in own.files
        ]  # fmt: skip
        if not lacking or self._adding is not None:
            return {}
        work = self._add(replica.gid, own, lacking, head.number)
        self._adding = replica.gid, asyncio.get_running_loop().create_task(work)
        return None

    async def _add(self, gid: GroupId, own: Own, names: list[str], label: int) -> None:
        """Upload files of a member for the head with this number, about `_ADDED_BYTES`."""
        found, size = dict[str, Held](), 0
        with self._noted(gid):
            for name in names:
                with contextlib.suppress(OSError):  # it is gone meanwhile
                    found[name] = await self._upload(own, name, own.files[name], label)
                size += own.files[name]
                if size >= _ADDED_BYTES:
                    break
            self._added[gid] = label, found

    def _word(
        self, replica: RangeReplica, head: Manifest | None, added: Mapping[str, Held]
    ) -> Manifest | None:
        """Return the manifest to put; None: there is nothing to say, or not yet.

        The first word of a node in a generation may claim nothing: it ends what the node has
        claimed in generations before.
        """
        gid = replica.gid
        # A base that is being fetched may need files that the present base does not name.
        named = _named(replica).union(self._host.pinned.content_ids())
        places = self._kept.of(gid)
        absent = {name: Held(*place) for name, place in places.items() if name in named}
        absent |= {name: held for name, held in added.items() if name in named}
        wished = [name for name in self._surplus(replica) if name not in places][:_AT_ONCE]
        if head is None:
            return None
        return claims.spoken(self._node_id, head, absent, wished)

    async def _follow(self, gid: GroupId, head: Manifest | None) -> None:
        """Store the places of the head: the answer to the last word may have been lost."""
        if head is None or head.closed:
            return
        known = self._kept.of(gid)
        moved = {
            name: Place(*head.held[name])
            for name in head.claims.get(self._node_id, ())
            if name in known and known[name] != Place(*head.held[name])
        }
        if moved:
            await self._kept.store(gid, {**known, **moved})

    async def _delete(self, wished: Iterable[str]) -> None:
        """Delete the copies of those files that no replica here needs from the disk.

        The tier is looked at first: a manifest also holds a file whose parts somebody removed, or
        that went to another place while a mount was away. Raises CorruptData if the tier lacks a
        file, and the errors of the store.
        """
        lacks = None
        for name in self._free(wished):
            place = self._kept.place(name)
            held = None if place is None else Held(*place)
            if held is None or not await self._workers.run(partial(self._store.has, held)):
                lacks = name
                continue
            try:
                await self._far.keep_pages(name)
            except (CorruptData, OSError) as error:
                # The scrub finds damage. Without its pages a file costs more requests.
                log.info("pages not kept", extra={"fields": {"id": name, "error": str(error)}})
                continue
            gone = self._free([name])
            await self._host.give_up(gone)
            for each in gone:
                log.info("the file is in the tier only", extra={"fields": {"id": each}})
        if lacks is not None:
            raise CorruptData(
                f"file {lacks} stays on the disk: the tier lacks parts of the file. Run "
                "`lognode tier verify`",
                outcome="not_applied",
            )

    def _free(self, wished: Iterable[str]) -> list[str]:
        """Return those of the files that each replica here has in the tier, and no work uses."""
        free = set(wished).difference(self._host.pinned.content_ids())
        users: list[tuple[set[str], Places]] = [
            (_named(each), self._kept.of(each.gid)) for each in self._host.ranges()
        ]
        for key, row in self._host.idle_rows().items():
            users.append((files_of([row]), self._kept.of(_gid(key, row))))
        for named, places in users:
            free -= named - places.keys()
        return sorted(name for name in free if not self._files.is_suspended(name))

    # Bases that come from peers.

    async def join(self, gid: GroupId, base: Base) -> None:
        """Claim the files of a peer's base that the policy leaves in the tier only.

        Does nothing while the tier gives no answer: then all files come from the peer.
        """
        range_ = self._metadata().ranges.get(gid.range_id)
        record = None if range_ is None else self._metadata().logs.get(range_.log_id)
        if record is None or time.monotonic() < self._rests_until:
            return
        wished = [
            name for name in self.leaving(record.log_id, base)
            if not self._files.is_listed(name) and not self._kept.has(gid, name)
        ]  # fmt: skip
        if not wished:
            return
        try:
            # A directory of a file server that is down gives no answer at all.
            async with asyncio.timeout(_JOIN_S + len(wished) * _JOIN_FILE_S), self._turn:
                found = await self._joined(gid, wished, _own_of(gid, record))
        except (LognodeError, TimeoutError) as error:
            self._rests_until = time.monotonic() + _REST_S
            late = Unavailable("the tier gives no answer in time")
            self._progress.failed(error if isinstance(error, LognodeError) else late)
            return
        for name in found:
            try:
                async with asyncio.timeout(_JOIN_S):
                    await self._far.fetch_pages(name)
            except (LognodeError, OSError):  # also TimeoutError, for a store that is away now
                break

    async def _joined(self, gid: GroupId, wished: list[str], own: Own) -> list[str]:
        """Claim files of a generation that may have no replica here; return what is claimed."""
        head = await self._head(own)
        names = [
            name for name in claims.claimable(head, wished)
            if head is not None
            and await self._workers.run(partial(self._store.has, head.held[name]))
        ]  # fmt: skip
        known = self._kept.of(gid)
        absent = {name: Held(*place) for name, place in known.items()}
        word = claims.joining(self._node_id, head, names, absent)
        if word is None or not names:
            return []
        said = replace(word, node=self._node_id, written_ms=self._wall_ms())
        if not await self._workers.run(partial(self._store.publish, said)):
            return []
        found = claims.granted(self._node_id, said, await self._head(own))
        places = {name: Place(*found[name]) for name in (*known, *names) if name in found}
        if places:
            await self._kept.store(gid, {**self._kept.of(gid), **places})
        return [name for name in names if name in places]

    async def _end_joins(self) -> None:
        """Release what was claimed for replicas that have begun, or never will."""
        for gid in [gid for gid in self._kept.gids if not self._is_needed(gid)]:
            if gid in self._unlisted and time.monotonic() < self._unlisted[gid][1]:
                continue
            async with self._turn:
                # Again: a fetch or a begin may have taken the places while others had the turn.
                if not self._is_needed(gid):
                    await self._release(gid)

    def _is_needed(self, gid: GroupId) -> bool:
        """Whether a replica of the generation, or work under way, may use its places."""
        if self._host.replica(gid) is not None:
            return True
        if not self._kept.of(gid).keys().isdisjoint(self._host.pinned.content_ids()):
            return True
        return any(_gid(key, row) == gid for key, row in self._host.idle_rows().items())

    async def _release(self, gid: GroupId) -> None:
        """End the claims of this node in a chain for which it has no replica.

        A replica of the next generation may still live by some of these claims: it has the same
        places, and has not spoken. They stay in the chain, which the next generation closes.
        """
        range_ = self._metadata().ranges.get(gid.range_id)
        record = None if range_ is None else self._metadata().logs.get(range_.log_id)
        # From here on nothing may use the places, whatever becomes of the answer to the put.
        await self._kept.store(gid, {})
        is_said = record is None
        while record is not None and not is_said:
            head = await self._head(_own_of(gid, record))
            if head is None:  # also where the directory of the tier is not mounted
                await self._workers.run(self._store.check_place)
            if head is None and not self._is_removed(gid):
                return  # the row stays: claims of a manifest that is not listed would never end
            if head is None or head.closed:
                break
            used = {
                item for other in self._kept.gids if other != gid
                for item in self._kept.of(other).items()
            }  # fmt: skip
            claimed = {name: head.held[name] for name in head.claims.get(self._node_id, ())}
            still = {
                name: held for name, held in claimed.items() if (name, Place(*held)) in used
            }  # fmt: skip
            word = claims.spoken(self._node_id, head, still) if claimed else None
            if word is not None:
                said = replace(word, node=self._node_id, written_ms=self._wall_ms())
                is_said = await self._workers.run(partial(self._store.publish, said))
            elif still:
                return  # the next look sees whether they are still in use
            else:
                break
            if is_said and still:
                return
        if not self._kept.of(gid):
            self._unlisted.pop(gid, None)
            await self._kept.drop(gid)

    def _is_removed(self, gid: GroupId) -> bool:
        """Whether a chain without a listed manifest was removed, with the claims in it."""
        now = time.monotonic()
        since, _ = self._unlisted.get(gid, (now, now))
        self._unlisted[gid] = since, now + _REST_S
        return now - since > _UNLISTED_S


def _named(replica: RangeReplica) -> set[str]:
    """Return the files of the durable base, and of the base that is about to become durable."""
    state = replica.state
    return {info.content_id for info in (*state.durable_base.manifest, *state.manifest)}


def _gid(key: GroupId | str, row: Any) -> GroupId:
    """Return the generation of an idle row: of a replica, or of a prepared state."""
    return key if isinstance(key, GroupId) else GroupId(row["range"], row["generation"])


def _own_of(gid: GroupId, record: LogRecord) -> Own:
    """Return what a node without a replica knows of a generation: its chain, and its log."""
    return Own(Chain(*gid), EVERYTHING, facts_of(record), (0, 0), {})
