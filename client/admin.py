"""What operators ask of a cluster: `client.admin`."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from .appends import checked_key
from .cluster import Body, Cluster
from .invitation import Invitation
from .progress import later_id
from .protocol import Operation
from .protocol.cluster import (
    METADATA,
    NODE_DRAIN,
    NODE_REKEY,
    NODE_REMOVE,
    PRODUCER_DELETE,
    PRODUCERS,
    RANGE_MERGE,
    RANGE_MOVE,
    RANGE_RECOVER,
    RANGE_RECOVERY,
    RANGE_SPLIT,
    RANGE_TRANSFER,
    RANGES,
    TOKEN_CREATE,
    TOKEN_LIST,
    TOKEN_REVOKE,
)
from .protocol.errors import (
    Conflict,
    NodeNotFound,
    NotFound,
    RemoteProtocolError,
    Timeout,
    Unavailable,
)
from .protocol.invites import NODE_INVITE, NODE_INVITES, NODE_UNINVITE
from .protocol.principal import DEFAULT_CLASS, check_principal_name
from .protocol.quotas import COUNTERS, QUOTA_DELETE, QUOTA_LIST, QUOTA_SET, STORED, USAGE
from .protocol.scopes import Scope, scopes_of
from .tokens import digest_of, draw, id_of

_RANGE_FIELDS: Final = ("start", "end", "generation", "members", "leader", "state")
_LOOKS_SHARE: Final = 0.05
"""How long from one look at an operation to the next, of the time since the first."""
_LOOKS_MIN_S: Final = 0.02
_LOOKS_MAX_S: Final = 0.5


class AsyncAdmin:
    """Operations on ranges, nodes and tokens. Had from a client, whose connections and default
    deadline it uses."""

    def __init__(self, cluster: Cluster, *, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout

    async def transfer(
        self, range_id: int, *, to_node: int, timeout: float | None = None
    ) -> dict[str, Any]:
        """Hand the lead of a range over to a member; 0 is the controller's.

        `leader` is the node that leads then, `changed` whether it did not before. Appends wait a
        moment and none is lost. Raises NotFound for a range that is none, NodeNotFound when the
        node is none or has no replica of it, Conflict when it is down, Timeout.
        """
        body = {"range": range_id, "node": to_node}
        return await self._cluster.call_any(RANGE_TRANSFER, body, deadline=self._deadline(timeout))

    async def move(
        self,
        range_id: int,
        *,
        from_node: int,
        to_node: int,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Give the replica of a range on `from_node` to `to_node`, which copies its files first.

        Appends wait for the tail and an election, and none is lost. With `wait=False` it returns
        as soon as the move is planned. `operation` is its number, `generation` and `members` are
        those that the range has after it.
        Raises NotFound for a range that is none, NodeNotFound for a node that is none or
        `from_node` without a replica, Conflict when `to_node` has one or is not ACTIVE, and when
        the move was given up, which leaves the members as they were; OperationInProgress,
        LimitExceeded with too many operations at once, InvalidArgument for one node given twice
        or the controller's range. Timeout, of outcome unknown: it may still go on.
        """
        deadline = self._deadline(timeout)
        body = {"range": range_id, "from": from_node, "to": to_node}
        answer = await self._cluster.call_any(RANGE_MOVE, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "generation", "members")
        if wait:
            members = (await self._after(planned["operation"], range_id, deadline))["members"]
            if from_node in members or to_node not in members:
                raise Conflict(
                    f"the move of range {range_id} from node {from_node} to node {to_node} was "
                    f"given up: node {to_node} was gone, or had not copied in time; the members "
                    f"are {', '.join(map(str, members))}"
                )
        return planned

    async def split(
        self, log: str, *, at: bytes | str, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Divide the range of a log that has the key `at` into the keys before it and the rest.

        No entry is copied, whatever the range's size. Appends to it wait for its tail and an
        election, and none is lost. With `wait=False` it returns as soon as the split is planned.
        `operation` is its number; the keys before `at` stay with `range`, the others are those of
        `new_range`, both of `generation`.
        Raises LogNotFound, InvalidArgument for a key at which a range begins, or that is none,
        OperationInProgress, LimitExceeded with too many ranges or operations at once, Conflict
        when the split was given up, which leaves the range as it was. Timeout, of outcome unknown:
        it may still go on.
        """
        deadline = self._deadline(timeout)
        body = {"log": log, "at": checked_key(at)}
        answer = await self._cluster.call_any(RANGE_SPLIT, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "range", "generation", "new_range")
        if wait:
            range_ = await self._after(planned["operation"], planned["range"], deadline)
            if range_["generation"] < planned["generation"]:
                raise Conflict(f"the split of range {planned['range']} was given up")
        return planned

    async def recovery(self, range_id: int, *, timeout: float | None = None) -> dict[str, Any]:
        """What a range that lost most of its members could be recovered from; nothing is changed.

        `range`, its `log`, `start`, `end`, `generation` and `operation`; `members`, of each its
        `node`, `state`, whether it `answers`, how it is `damaged` or None, and what it has or None:
        term and index of the last entry in its log, `last_term` and `last_index`, the last one
        that it has `applied`, and of the last record in those `last_seq` and `last_timestamp_ms`;
        the member that is `proposed`, whose log is the longest; why it is `refused` now to go on
        from that one, or None.
        Raises NotFound for a range that is none, Unavailable, Timeout.
        """
        deadline = self._deadline(timeout)
        answer = await self._cluster.call_any(
            RANGE_RECOVERY, {"range": range_id}, deadline=deadline
        )
        if not isinstance(answer.get("members"), list):
            raise RemoteProtocolError("what there is to recover from, without members")
        return answer

    async def recover(
        self,
        range_id: int,
        *,
        from_node: int,
        accept_loss: bool,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Go on from one member of a range that lost most of its members for good.

        Acknowledged entries that only the others had are lost, which `accept_loss=True` accepts;
        `recovery` tells what there is. All that is in the member's log counts as acknowledged, and
        new entries get seqs far above all that were ever given. The range has that member alone
        then, and grows back by itself. With `wait=False` it returns as soon as it is begun.
        `operation` is its number, `generation` that of the range after it.
        Raises NotFound for a range that is none, NodeNotFound for a node that is no member,
        Conflict when the node is not there or its replica is damaged, when most members are there,
        and when it was asked for with another node meanwhile; OperationInProgress when what holds
        the range may still end by itself, InvalidArgument for the controller's range or without
        `accept_loss`. Timeout, of outcome unknown: it may still go on.
        """
        deadline = self._deadline(timeout)
        body = {"range": range_id, "from": from_node, "accept_loss": accept_loss}
        answer = await self._cluster.call_any(RANGE_RECOVER, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "generation")
        if wait:
            range_ = await self._after(planned["operation"], range_id, deadline)
            if range_["generation"] < planned["generation"]:
                raise Conflict(
                    f"the recovery of range {range_id} from node {from_node} gave way to another: "
                    f"operation {range_['operation']}"
                )
        return planned

    async def merge(
        self, log: str, *, at: bytes | str, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Join the two ranges of a log that meet at the key `at`, the first of the right one.

        No entry is copied, whatever their sizes, and entries keep their seqs. Where they are on
        different nodes replicas of the right one are moved first to where the left one is. Appends
        to both wait for their tails and an election, and none is lost. With `wait=False` it
        returns as soon as the merge is planned, and moves nothing. `operation` is its number; all
        keys are then those of `range`, of `generation`, and `gone_range` is no more.
        Raises LogNotFound, InvalidArgument for a key at which no two ranges meet,
        OperationInProgress, LimitExceeded with too many operations at once, Conflict when the
        members differ, with `wait=False`, and when the merge was given up, which leaves two ranges;
        as `move` when a replica cannot be moved. Timeout, of outcome unknown: it may still go on.
        """
        deadline, key = self._deadline(timeout), checked_key(at)
        if wait:
            await self._bring_together(log, key, deadline)
        answer = await self._cluster.call_any(
            RANGE_MERGE, {"log": log, "at": key}, deadline=deadline, waits=False
        )
        planned = self._planned(answer, "operation", "range", "generation", "gone_range")
        if wait:
            range_ = await self._after(planned["operation"], planned["range"], deadline)
            if range_["end"] == key:
                raise Conflict(
                    f"the merge of ranges {planned['range']} and {planned['gone_range']} was given "
                    "up: not both were sealed in time; they go on, each by itself"
                )
        return planned

    async def _bring_together(self, log: str, at: bytes, deadline: float) -> None:
        """Move replicas of the range that begins at the key to where its left neighbour is."""
        answer = await self._cluster.refresh(log, deadline)
        left = [range_ for range_ in answer["ranges"] if range_["end"] == at]
        right = [range_ for range_ in answer["ranges"] if range_["start"] == at]
        if left and right:  # else the controller says what is wrong
            here, there = set(right[0]["members"]), set(left[0]["members"])
            for from_node, to_node in zip(sorted(here - there), sorted(there - here), strict=False):
                timeout = deadline - self._cluster.now()
                await self.move(
                    right[0]["id"], from_node=from_node, to_node=to_node, timeout=timeout
                )

    def _planned(self, answer: Body, *names: str) -> dict[str, Any]:
        """What was planned. Metadata that is older than that is not looked at from now on."""
        try:
            planned, version = {name: answer[name] for name in names}, int(answer["version"])
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(
                f"the answer to an operation that is none: {error!r}"
            ) from None
        self._cluster.version = max(self._cluster.version, version)
        return planned

    async def nodes(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """All nodes, by id: `id`, `address`, `http`, `zone`, `state`, how many `replicas` each
        has or is to get, the controller's counted, and whether the node runs with `--insecure`
        (`insecure`, None while nobody has heard from the node). Raises Unavailable, Timeout."""
        answer = await self._cluster.look(
            METADATA, {"limit": 1}, self._deadline(timeout), newer=False
        )
        found: list[dict[str, Any]] = answer["nodes"]
        return sorted(found, key=lambda node: int(node["id"]))

    async def ranges(
        self, log: str | None = None, *, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """The ranges of a log, or of all, by log and key: `id`, `log`, `start`, `end`,
        `generation`, `members`, `leader` and `state`. Raises LogNotFound, Unavailable, Timeout."""
        deadline = self._deadline(timeout)
        if log is None:
            answer = await self._cluster.overview(deadline)
            answer["ranges"] = await self._cluster.every_range(deadline)
        else:
            answer = await self._cluster.refresh(log, deadline)
        names = {each["id"]: each["name"] for each in answer["logs"]}
        found = [
            {"id": body["id"], "log": names.get(body["log"], "")}
            | {name: body[name] for name in _RANGE_FIELDS}
            for body in answer["ranges"]
            if log is None or names.get(body["log"]) == log
        ]
        return sorted(found, key=lambda row: (row["log"], row["start"]))

    async def producers(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The named producers that the cluster knows, in the order of their first opening: `name`,
        `id`, `epoch`, `opened_ms` of the newest opening or None, and the `owner`.

        A name that nobody opens for 7 days is forgotten. Raises Unavailable, Timeout.
        """
        deadline = self._deadline(timeout)
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self._cluster.call_any(PRODUCERS, {"after": after}, deadline=deadline)
            found += page["producers"]
            after = page.get("next")
        return found

    async def delete_producer(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Forget a name, to make room for others; its `id` and `epoch`.

        Nothing else changes: who holds the name appends on, and its next opening fences them.
        Record numbers stay known for 24 hours: for a new numbering take a new name.
        Raises NotFound, Unavailable, Timeout.
        """
        return await self._cluster.call_any(
            PRODUCER_DELETE, {"name": name}, deadline=self._deadline(timeout)
        )

    async def drain(
        self, node: int, *, undo: bool = False, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Empty a node: it hands over what it leads, then its replicas go to other nodes, and it
        gets nothing new. Returns when nothing is left there, with `wait=False` once it is begun.

        With `undo` it is given up: the node is ACTIVE again, what has left comes back by balancing.
        `node`, its `state`, and how many `replicas` it has, the controller's counted.
        Raises NodeNotFound, Conflict when it could never end for lack of other nodes, when the node
        is DEAD or REMOVED, and when somebody else gave it up; Timeout, of outcome unknown: it
        may still go on.
        """
        deadline = self._deadline(timeout)
        body = {"node": node, "undo": undo}
        answer = await self._cluster.call_any(NODE_DRAIN, body, deadline=deadline)
        now = self._planned(answer, "node", "state", "replicas")
        if undo or not wait or not now["replicas"]:
            return now
        async for looked in self._looks(METADATA, {"limit": 1}, deadline):
            now = _drained_so_far(node, looked)
            if not now["replicas"]:
                return now
        raise Timeout(
            f"node {node} has {now['replicas']} replicas left and is being drained still; "
            "`lognode node list` shows how many, and the same command waits on",
            outcome="unknown",
        )

    async def remove(
        self, node: int, *, dead: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Take a node out of the cluster for good: one that is drained, or with `dead` one that is
        DEAD and never comes back, whose replicas others get at once. Its process ends if it runs.

        `node`, its `state`, and how many `replicas` others have still to get.
        Raises NodeNotFound, Conflict with the reason: it is ACTIVE or not drained yet, it holds
        the last copy of a range or too much for a majority to be left, or no other is ACTIVE.
        """
        body = {"node": node, "dead": dead}
        answer = await self._cluster.call_any(NODE_REMOVE, body, deadline=self._deadline(timeout))
        return self._planned(answer, "node", "state", "replicas")

    async def rekey(self, node: int, key: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Bind a node to another TLS key: from now on only the holder of that key is believed to
        be the node, and connections with the old one end.

        `key`: the SHA-256 of the public key in hexadecimal, as `lognode ca node` prints it.
        `node`, its `state`, and how many `replicas` it has.
        Raises NodeNotFound, Conflict for a removed node, InvalidArgument.
        """
        body = {"node": node, "key": key}
        answer = await self._cluster.call_any(NODE_REKEY, body, deadline=self._deadline(timeout))
        return self._planned(answer, "node", "state", "replicas")

    async def set_quota(
        self, name: str, limits: Mapping[str, int | None], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Change limits of the quota `name`, which is created by that; None takes a limit away.

        A name that ends with `/`, as `acme/`, is that of a tenant: all logs whose names begin with
        it, whoever uses them. Any other name is that of a class of principals, each of which has
        the whole quota for itself; `default` is the class of those that have no other.
        The limits, each per second and node: `append_bytes`, `append_records`, `read_bytes`,
        `read_records`, `requests`, `cpu_ms` (milliseconds of the node's event loop). And what there
        may be at a time: of a class `connections` and `follows` on each node and names of
        `producers` in the cluster, of a tenant `follows` on each node, `logs` and `stored_bytes` in
        the cluster. Stored bytes are those of one copy of each range, as its leader stores it.
        Returns the `name` and all its `limits`. Doing it twice is doing it once.
        Raises InvalidArgument, LimitExceeded for one quota too many.
        """
        body = {"name": name, "limits": dict(limits)}
        return await self._cluster.call_any(QUOTA_SET, body, deadline=self._deadline(timeout))

    async def delete_quota(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a quota: nothing is limited by it any more. Raises NotFound."""
        await self._take_away(QUOTA_DELETE, {"name": name}, timeout)

    async def quotas(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """All quotas, by name: the `name` and its `limits`. See `set_quota`."""
        answer = await self._cluster.call_any(QUOTA_LIST, {}, deadline=self._deadline(timeout))
        found: list[dict[str, Any]] = answer["quotas"]
        return found

    async def usage(self, *, timeout: float | None = None) -> dict[str, Any]:
        """What was used of all nodes, each since it started: `tenants` and `principals`, rows with
        a `name` and counters.

        The counters: `append_bytes`, `append_records`, `read_bytes`, `read_records`, `requests`,
        `cpu_ms` (milliseconds of event loops) and `refused`, requests refused for a quota. A tenant
        is the part of a log name up to its first slash: what is appended counts for it when it is
        applied, once, however often it was sent. The row of a tenant also has `stored_bytes`, which
        its logs hold now, one copy of each range. `silent`: nodes that did not answer.
        Raises Unavailable, Timeout.
        """
        deadline = self._deadline(timeout)
        answer = await self._cluster.look(METADATA, {"limit": 1}, deadline, newer=False)
        silent, found = [], []
        for node in answer["nodes"]:
            if node["state"] == "REMOVED":
                continue
            try:
                found.append(await self._cluster.ask_node(node["id"], USAGE, {}, deadline))
            except (Timeout, Unavailable):
                silent.append(node["id"])
        return {
            "tenants": _summed(row for each in found for row in each["tenants"]),
            "principals": _summed(row for each in found for row in each["principals"]),
            "silent": silent,
        }

    async def create_token(
        self,
        principal: str,
        scopes: Sequence[Scope | str],
        *,
        expires_s: float | None = None,
        quota_class: str = DEFAULT_CLASS,
        certificate: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Create a token for a principal, or give the rights to the holder of a certificate.

        `scopes`: what it allows, each a `Scope` or its text (`read,append acme/* user-*`), 1 to
        `token_scopes_max`. `expires_s`: seconds from now, None: never. `quota_class` names the
        limits that hold. `certificate`: `client NAME` for a certificate of `lognode ca client`,
        else `name COMMON-NAME`.
        Returns `id`, `principal`, and `token`, the text to give to `lognode.Client`; the cluster
        keeps only its digest, so that nobody can read the text again. `token` is None where a
        certificate is named.
        The first token of a cluster turns authorisation on for ever and has to allow everything
        (`all`) without expiry. Raises InvalidArgument, LimitExceeded, Conflict, Unauthorized.
        """
        token = draw()
        body = {
            "id": id_of(token),
            "principal": check_principal_name(principal),
            "scopes": [scope.to_wire() for scope in scopes_of(scopes)],
            "digest": digest_of(token) if certificate is None else None,
            "certificate": certificate,
            "expires_ms": None if expires_s is None else int((time.time() + expires_s) * 1000),
            "quota_class": quota_class,
        }
        answer = await self._cluster.call_any(TOKEN_CREATE, body, deadline=self._deadline(timeout))
        shown = token if certificate is None else None
        return {"id": answer["id"], "principal": principal, "token": shown}

    async def tokens(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all tokens by principal: `id`, `principal`, `certificate`, `scopes` as text,
        `created_ms`, `expires_ms` (None: never) and `quota_class`. Raises Unauthorized."""
        deadline = self._deadline(timeout)
        found: list[Body] = []
        after, more = None, True
        while more:
            page = await self._cluster.call_any(TOKEN_LIST, {"after": after}, deadline=deadline)
            found += page["tokens"]
            after = later_id(page, "next", after)
            more = after is not None
        found.sort(key=lambda row: (row["principal"], row["created_ms"], row["id"]))
        return [_token_row(row) for row in found]

    async def revoke_token(self, token_id: str, *, timeout: float | None = None) -> None:
        """Revoke a token by its id. Its connections end at every node that hears of it, within
        half a second. Raises NotFound, Conflict for the last token that may create tokens."""
        await self._take_away(TOKEN_REVOKE, {"id": token_id}, timeout)

    async def invite_node(
        self, *, expires_s: float = 3_600.0, timeout: float | None = None
    ) -> dict[str, Any]:
        """Let one new node join, within so many seconds from now, up to seven days.

        Returns `id`, and `invitation`, the line to give to the node (`lognode --invitation FILE`).
        The cluster keeps only its digest. Raises InvalidArgument, LimitExceeded, Unauthorized.
        """
        token = draw()
        body = {
            "id": id_of(token),
            "digest": digest_of(token),
            "expires_ms": int((time.time() + expires_s) * 1000),
        }
        deadline = self._deadline(timeout)
        answer = await self._cluster.call_any(NODE_INVITE, body, deadline=deadline)
        line = Invitation(token, answer["cluster"], answer["ca"]).text()
        return {"id": body["id"], "invitation": line}

    async def invites(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The invitations that no node has used, the oldest first: `id`, `by`, `created_ms` and
        `expires_ms`. `by` is the principal that made the invitation. Raises Unauthorized."""
        answer = await self._cluster.call_any(NODE_INVITES, {}, deadline=self._deadline(timeout))
        names = ("id", "by", "created_ms", "expires_ms")
        return [{name: row[name] for name in names} for row in answer["invites"]]

    async def uninvite_node(self, invite_id: str, *, timeout: float | None = None) -> None:
        """Take an invitation back. Raises NotFound for one that is gone, used or not."""
        await self._cluster.call_any(
            NODE_UNINVITE, {"id": invite_id}, deadline=self._deadline(timeout)
        )

    async def _take_away(self, operation: Operation, body: Body, timeout: float | None) -> None:
        """Ask for what deletes a thing. Raises NotFound, but not where an earlier attempt of this
        call may have deleted the thing and its answer was lost: the thing is gone."""
        try:
            await self._cluster.call_any(operation, body, deadline=self._deadline(timeout))
        except NotFound as error:
            if error.outcome != "unknown":
                raise

    async def _after(self, operation: int, range_id: int, deadline: float) -> Body:
        """The range once the operation no longer holds it."""
        async for looked in self._looks(RANGES, {"range": range_id}, deadline):
            found: list[Body] = [each for each in looked["ranges"] if each["id"] == range_id]
            if not found:
                raise NotFound(f"range {range_id} is gone: its log was deleted")
            if found[0]["operation"] != operation:
                return found[0]
        raise Timeout(
            f"operation {operation} on range {range_id} was not over in time and goes on; "
            "`lognode status` shows it",
            outcome="unknown",
        )

    async def _looks(
        self, operation: Operation, body: Body, deadline: float
    ) -> AsyncIterator[Body]:
        """A page of metadata, now and whenever that has changed, until the deadline. Of what takes
        long it is asked for less often: where many ranges are, something changes all the time."""
        began, newer = self._cluster.now(), False
        while (now := self._cluster.now()) < deadline:
            try:
                looked = await self._cluster.look(operation, body, deadline, newer=newer)
            except (Timeout, Unavailable):
                looked = None  # nodes come and go; the deadline is the end of it
            if looked is not None:
                yield looked
                newer = True
            pause_s = (now - began) * _LOOKS_SHARE
            pause_s = min(max(pause_s, _LOOKS_MIN_S), _LOOKS_MAX_S)
            await asyncio.sleep(min(pause_s, max(0.0, deadline - self._cluster.now())))

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)


def _summed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row of each name, by name."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(row["name"], {"name": row["name"]})
        for counter in (*COUNTERS, STORED):
            if counter in row:
                known[counter] = known.get(counter, 0) + row[counter]
    return [found[name] for name in sorted(found)]


def _token_row(row: Body) -> dict[str, Any]:
    names = ("id", "principal", "certificate", "scopes", "created_ms", "expires_ms", "quota_class")
    told = {name: row[name] for name in names}
    return told | {"scopes": [Scope.from_wire(scope).text for scope in row["scopes"]]}


def _drained_so_far(node: int, metadata: Body) -> dict[str, Any]:
    for row in metadata["nodes"]:
        if row["id"] == node:
            if row["state"] not in ("DRAINING", "REMOVED"):
                raise Conflict(f"node {node} is {row['state']}: draining it was given up")
            return {"node": node, "state": row["state"], "replicas": row["replicas"]}
    raise NodeNotFound(f"no node {node}", node=node)
