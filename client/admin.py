"""The operations for operators: `client.admin`."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from .appends import checked_key
from .cluster import Body, Cluster
from .invitation import Invitation
from .progress import later_id
from .protocol import Operation
from .protocol.appends import RESTORE
from .protocol.cluster import (
    FINALIZE,
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
    InvalidArgument,
    NodeNotFound,
    NotFound,
    RemoteProtocolError,
    Timeout,
    Unavailable,
    Unsupported,
)
from .protocol.invites import NODE_INVITE, NODE_INVITES, NODE_UNINVITE
from .protocol.node_reports import NODE_REPORT
from .protocol.principal import DEFAULT_CLASS, check_principal_name
from .protocol.quotas import COUNTERS, QUOTA_DELETE, QUOTA_LIST, QUOTA_SET, STORED, USAGE
from .protocol.scopes import Scope, from_rows, scopes_of, to_rows
from .scram import kept_keys
from .tokens import digest_of, draw, id_of

RestoredRow = tuple[int, bytes, bytes]
"""A timestamp in milliseconds; seqs, eight bytes each, little-endian; the packed records."""
_RANGE_FIELDS: Final = ("start", "end", "generation", "members", "leader", "state")
_LOOKS_SHARE: Final = 0.05
"""The pause between two looks at an operation, as a share of the time since the first look."""
_LOOKS_MIN_S: Final = 0.02
_LOOKS_MAX_S: Final = 0.5


class AsyncAdmin:
    """Operations on ranges, nodes and tokens. `client.admin` returns the object, which uses the
    connections and the default deadline of its client."""

    def __init__(self, cluster: Cluster, *, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout

    async def transfer(
        self, range_id: int, *, to_node: int, timeout: float | None = None
    ) -> dict[str, Any]:
        """Transfer the leadership of a range to a member; range 0 is the controller's.

        Returns `leader`, the node that leads now, and `changed`, whether the leader changed.
        Appends wait a moment and none is lost.
        Raises NotFound for an unknown range, NodeNotFound for an unknown node or a node without a
        replica of the range, Conflict when the node is down, Timeout.
        """
        body = {"range": range_id, "node": to_node}
        return await self._cluster.call_any(RANGE_TRANSFER, body, deadline=self._deadline(timeout))

    async def restore_entries(
        self, log: str, key: bytes, next_seq: int, rows: Sequence[RestoredRow], *,
        timeout: float | None = None,
    ) -> tuple[int, bytes | None]:  # fmt: skip
        """Put entries of a backup into the range that has the key, with their seqs and timestamps.

        `rows`: batches in the order of seq: (timestamp in milliseconds, the seqs, the packed
        records). `next_seq`: the seq that the range gives next. The range has only restored
        entries. A repetition changes nothing. Returns the range's next seq, and the first key
        behind the range, None for the last range.
        Raises LogNotFound; Conflict for a range with other entries; CorruptData for entries out of
        order; BatchSpansRanges for keys of several ranges, as after a split; Unsupported below
        feature level 4; Unavailable, Timeout.
        """
        body = {"next_seq": next_seq, "rows": [list(row) for row in rows]}
        answer, known = await self._cluster.call(
            self._cluster.log(log), key, RESTORE, body, deadline=self._deadline(timeout)
        )
        return answer["next_seq"], known.end

    async def move(
        self,
        range_id: int,
        *,
        from_node: int,
        to_node: int,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Move the replica of a range from `from_node` to `to_node`, which copies its files first.

        Appends wait for the last entries and an election, and none is lost. With `wait=False` the
        call returns as soon as the move is planned. Returns `operation`, its number, and the
        `generation` and `members` of the range after the move.
        Raises NotFound for an unknown range; NodeNotFound for an unknown node, or when `from_node`
        has no replica; Conflict when `to_node` has a replica or is not ACTIVE, and when the move
        was given up, which leaves the members as they were; OperationInProgress; LimitExceeded with
        too many operations at once; InvalidArgument for one node given twice or for the
        controller's range; Timeout with outcome unknown: the move may still complete.
        """
        deadline = self._deadline(timeout)
        body = {"range": range_id, "from": from_node, "to": to_node}
        answer = await self._cluster.call_any(RANGE_MOVE, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "generation", "members")
        if wait:
            members = (await self._after(planned["operation"], range_id, deadline))["members"]
            if from_node in members or to_node not in members:
                raise Conflict(
                    f"the cluster gave up the move of range {range_id} from node "
                    f"{from_node} to node {to_node}: node {to_node} was gone, or did not "
                    f"copy in time; the members are {', '.join(map(str, members))}"
                )
        return planned

    async def split(
        self, log: str, *, at: bytes | str, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Split the range of a log that has the key `at` into the keys before `at` and the rest.

        No entry is copied, whatever the range's size. Appends to the range wait for its last
        entries and an election, and none is lost. With `wait=False` the call returns as soon as the
        split is planned. Returns `operation`, its number, and two ranges of `generation`: `range`
        keeps the keys before `at`, `new_range` gets the others.
        Raises LogNotFound; InvalidArgument for an invalid key or a key at which a range begins;
        OperationInProgress; LimitExceeded with too many ranges or operations at once; Conflict when
        the split was given up, which leaves the range as it was; Timeout with outcome unknown: the
        split may still complete.
        """
        deadline = self._deadline(timeout)
        body = {"log": log, "at": checked_key(at)}
        answer = await self._cluster.call_any(RANGE_SPLIT, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "range", "generation", "new_range")
        if wait:
            range_ = await self._after(planned["operation"], planned["range"], deadline)
            if range_["generation"] < planned["generation"]:
                raise Conflict(f"the cluster gave up the split of range {planned['range']}")
        return planned

    async def recovery(self, range_id: int, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the members from which a range that lost its majority could recover; changes
        nothing.

        Returns `range`, its `log`, `start`, `end`, `generation` and `operation`.
        `members` has a row for each member: its `node`, its `state`, whether the node `answers`,
        how the replica is `damaged` or None, `last_term` and `last_index` of its log's last entry,
        the last index that it has `applied`, and `last_seq` and `last_timestamp_ms` of the last
        applied record. An unknown value is None.
        `proposed` is the member with the longest log. `refused` is the reason why the range cannot
        recover from that member now, or None.
        Raises NotFound for an unknown range, Unavailable, Timeout.
        """
        deadline = self._deadline(timeout)
        answer = await self._cluster.call_any(
            RANGE_RECOVERY, {"range": range_id}, deadline=deadline
        )
        if not isinstance(answer.get("members"), list):
            raise RemoteProtocolError("the report before a recovery, without members")
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
        """Recover a range that lost its majority for good from one of its members.

        Acknowledged entries that only the lost members had are lost; `accept_loss=True` accepts
        this. `recovery` shows the choices. Every entry in the member's log counts as acknowledged,
        and new entries get seqs far above all earlier seqs. The range then has this member alone,
        and grows back automatically. With `wait=False` the call returns as soon as the recovery has
        begun. Returns `operation`, its number, and the `generation` of the range after the
        recovery.
        Raises NotFound for an unknown range; NodeNotFound for a node that is not a member; Conflict
        when the node does not answer or its replica is damaged, when a majority answers, and when
        another call asked for a different node meanwhile; OperationInProgress when the current
        operation of the range may still end by itself; InvalidArgument for the controller's range
        or without `accept_loss`; Timeout with outcome unknown: the recovery may still complete.
        """
        deadline = self._deadline(timeout)
        body = {"range": range_id, "from": from_node, "accept_loss": accept_loss}
        answer = await self._cluster.call_any(RANGE_RECOVER, body, deadline=deadline, waits=False)
        planned = self._planned(answer, "operation", "generation")
        if wait:
            range_ = await self._after(planned["operation"], range_id, deadline)
            if range_["generation"] < planned["generation"]:
                raise Conflict(
                    f"another operation replaced the recovery of range {range_id} from node "
                    f"{from_node}: operation {range_['operation']}"
                )
        return planned

    async def merge(
        self, log: str, *, at: bytes | str, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Merge the two ranges of a log that meet at `at`, the first key of the right range.

        No entry is copied, whatever the sizes, and entries keep their seqs. When the ranges are on
        different nodes, replicas of the right range first move to the nodes of the left range.
        Appends to both ranges wait for their last entries and an election, and none is lost. With
        `wait=False` the call returns as soon as the merge is planned, and moves nothing. Returns
        `operation`, its number; `range`, which then has all keys, and its `generation`; and
        `gone_range`, which no longer exists.
        Raises LogNotFound; InvalidArgument for a key at which no two ranges meet;
        OperationInProgress; LimitExceeded with too many operations at once; Conflict when the
        members differ with `wait=False`, and when the merge was given up, which leaves two ranges;
        the errors of `move` when a replica cannot be moved; Timeout with outcome unknown: the merge
        may still complete.
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
                    f"the cluster gave up the merge of ranges {planned['range']} and "
                    f"{planned['gone_range']}: the two ranges were not both sealed in time; "
                    "both ranges go on"
                )
        return planned

    async def _bring_together(self, log: str, at: bytes, deadline: float) -> None:
        """Move replicas of the range that begins at the key to the nodes of its left neighbour."""
        answer = await self._cluster.refresh(log, deadline)
        left = [range_ for range_ in answer["ranges"] if range_["end"] == at]
        right = [range_ for range_ in answer["ranges"] if range_["start"] == at]
        if left and right:  # else the controller reports the error
            here, there = set(right[0]["members"]), set(left[0]["members"])
            for from_node, to_node in zip(sorted(here - there), sorted(there - here), strict=False):
                timeout = deadline - self._cluster.now()
                await self.move(
                    right[0]["id"], from_node=from_node, to_node=to_node, timeout=timeout
                )

    def _planned(self, answer: Body, *names: str) -> dict[str, Any]:
        """Return the planned operation. From now on the client ignores metadata older than the
        plan."""
        try:
            planned, version = {name: answer[name] for name in names}, int(answer["version"])
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(
                f"the answer about an operation is not valid: {error!r}"
            ) from None
        self._cluster.version = max(self._cluster.version, version)
        return planned

    async def nodes(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all nodes, by id: `id`, `address`, `http`, `zone`, `state`, how many `replicas`
        the node has or will get (including the controller's), and `insecure`: whether the node
        runs with `--insecure`, None before its first report. Raises Unavailable, Timeout."""
        answer = await self._cluster.look(
            METADATA, {"limit": 1}, self._deadline(timeout), newer=False
        )
        found: list[dict[str, Any]] = answer["nodes"]
        return sorted(found, key=lambda node: int(node["id"]))

    async def ranges(
        self, log: str | None = None, *, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the ranges of a log, or of all logs, by log and key: `id`, `log`, `start`,
        `end`, `generation`, `members`, `leader` and `state`. Raises LogNotFound, Unavailable,
        Timeout."""
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
        """Return the named producers of the cluster, in the order in which they first opened:
        `name`, `id`, `epoch`, `opened_ms` of the newest opening or None, and `owner`.

        The cluster forgets a name that is not opened for 7 days. Raises Unavailable, Timeout.
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
        """Forget a name, to make room for others; return its `id` and `epoch`.

        Nothing else changes: the holder of the name continues to append, and the next opening of
        the name fences the holder. The cluster knows record numbers for 24 hours: take a new name
        for a new numbering.
        Raises NotFound, Unavailable, Timeout.
        """
        return await self._cluster.call_any(
            PRODUCER_DELETE, {"name": name}, deadline=self._deadline(timeout)
        )

    async def drain(
        self, node: int, *, undo: bool = False, wait: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        """Drain a node: it hands over its leaderships, then its replicas move to other nodes, and
        it gets no new replica. Returns when the node is empty; with `wait=False` once the drain has
        begun.

        `undo` ends the drain: the node is ACTIVE again, and balancing moves replicas back later.
        Returns `node`, its `state`, and how many `replicas` it has, including the controller's.
        Raises NodeNotFound; Conflict when too few other nodes exist for the drain to end, when the
        node is DEAD or REMOVED, and when another caller ended the drain; Timeout with outcome
        unknown: the drain may still complete.
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
            f"node {node} still has {now['replicas']} replicas, and the drain goes on; "
            "`lognode node list` shows the count, and the same command waits again",
            outcome="unknown",
        )

    async def remove(
        self, node: int, *, dead: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Remove a node from the cluster for good. The node must be drained, or with `dead` be DEAD
        and never come back; other nodes then get its replicas at once. A running process of the
        node ends.

        Returns `node`, its `state`, and how many `replicas` other nodes have yet to get.
        Raises NodeNotFound; Conflict with the reason: the node is ACTIVE or not drained yet, it
        holds the last copy of a range or a replica that a majority needs, or no other node is
        ACTIVE.
        """
        body = {"node": node, "dead": dead}
        answer = await self._cluster.call_any(NODE_REMOVE, body, deadline=self._deadline(timeout))
        return self._planned(answer, "node", "state", "replicas")

    async def finalize(
        self, level: int | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Raise the feature level of the cluster, once the programs of all nodes know the level. It
        is never lowered: from then on no earlier version can serve in the cluster.

        `level`: the level, from 1 on; None: the highest that all programs know. Returns the `level`
        of the cluster. Raises Conflict, with the nodes that stand in the way and their versions, or
        for a level below that of the cluster; InvalidArgument for a level that no program knows;
        Unsupported by a version without levels.
        """
        return await self._cluster.call_any(
            FINALIZE, {"level": level}, deadline=self._deadline(timeout)
        )

    async def rekey(self, node: int, key: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Bind a node to another TLS key. From now on only the holder of that key can act as the
        node, and connections with the old key end.

        `key`: the SHA-256 of the public key in hexadecimal, as `lognode ca node` prints it. Returns
        `node`, its `state`, and how many `replicas` it has.
        Raises NodeNotFound, Conflict for a removed node, InvalidArgument.
        """
        body = {"node": node, "key": key}
        answer = await self._cluster.call_any(NODE_REKEY, body, deadline=self._deadline(timeout))
        return self._planned(answer, "node", "state", "replicas")

    async def set_quota(
        self, name: str, limits: Mapping[str, int | None], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Change limits of the quota `name`, and create the quota if it is new; None removes a
        limit.

        A name that ends with `/`, as `acme/`, is the quota of a tenant: all logs whose names begin
        with this prefix, for all their users. Any other name is the quota of a class of principals,
        and each principal has the whole quota; `default` is the class of principals without another
        class.
        Limits per second and node: `append_bytes`, `append_records`, `read_bytes`, `read_records`,
        `requests`, `cpu_ms` (milliseconds of the node's event loop).
        Limits at a time for a class: `connections` and `follows` on each node, and names of
        `producers` in the cluster. Limits at a time for a tenant: `follows` on each node, `logs`
        and `stored_bytes` in the cluster. Stored bytes count one copy of each range, as its leader
        stores it.
        Returns the `name` and all its `limits`. The call is idempotent.
        Raises InvalidArgument, and LimitExceeded for one quota too many.
        """
        body = {"name": name, "limits": dict(limits)}
        return await self._cluster.call_any(QUOTA_SET, body, deadline=self._deadline(timeout))

    async def delete_quota(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a quota, which ends all its limits. Raises NotFound."""
        await self._take_away(QUOTA_DELETE, {"name": name}, timeout)

    async def quotas(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all quotas by name: `name` and `limits`. See `set_quota`."""
        answer = await self._cluster.call_any(QUOTA_LIST, {}, deadline=self._deadline(timeout))
        found: list[dict[str, Any]] = answer["quotas"]
        return found

    async def usage(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the usage on all nodes, each since its start: `tenants` and `principals`, rows
        with a `name` and counters.

        The counters: `append_bytes`, `append_records`, `read_bytes`, `read_records`, `requests`,
        `cpu_ms` (milliseconds of event loops) and `refused`, requests refused because of a quota. A
        tenant is the part of a log name up to its first slash. An append counts for its tenant
        once, when it is applied, however often it was sent. The row of a tenant also has
        `stored_bytes`, the bytes that its logs hold now in one copy of each range. `silent`: nodes
        that did not answer.
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

    async def node_report(
        self,
        node: int | None,
        part: str,
        *,
        offset: int = 0,
        limit: int = 500,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return what a node tells of itself: its `storage`, its `settings` or the `connections` of
        its clients, as `part` says. None: any node.

        Returns the id of the `node`, `facts`, at most `limit` `rows` after the first `offset` rows,
        and how many rows there are in `total`. The facts and rows are for people: a later version
        may have others. Raises NodeNotFound, InvalidArgument, Unauthorized, Unavailable, Timeout,
        and Unsupported by a node of an earlier version.
        """
        deadline = self._deadline(timeout)
        body = {"part": part, "offset": offset, "limit": limit}
        if node is None:
            return await self._cluster.call_any(NODE_REPORT, body, deadline=deadline)
        known = await self._cluster.look(METADATA, {"limit": 1}, deadline, newer=False)
        if all(each["id"] != node or each["state"] == "REMOVED" for each in known["nodes"]):
            raise NodeNotFound(
                f"node {node} does not exist; `lognode node list` shows the nodes", node=node
            )
        return await self._cluster.ask_node(node, NODE_REPORT, body, deadline)

    async def create_token(
        self,
        principal: str,
        scopes: Sequence[Scope | str],
        *,
        expires_s: float | None = None,
        quota_class: str = DEFAULT_CLASS,
        certificate: str | None = None,
        scram: bool = False,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Create a token for a principal, or give the rights to the holder of a certificate.

        `scopes`: the rights, each a `Scope` or its text (`read,append acme/* user-*`, `read shop
        pattern:eu/*/orders/>`), 1 to `token_scopes_max`. `expires_s`: seconds from now; None:
        never. `quota_class` names the quota that limits the principal. `certificate`: `client NAME`
        for a certificate of `lognode ca client`, else `name COMMON-NAME`. `scram`: Kafka clients
        may prove the token with SASL SCRAM; the user name is the id, the password the token.
        Returns `id`, `principal`, and `token`, the text to give to `lognode.Client`. The cluster
        keeps only digests, so nobody can read the text again. `token` is None when `certificate`
        is given.
        The first token of a cluster turns authorisation on for ever. It must allow everything
        (`all`) without expiry. Raises InvalidArgument, LimitExceeded, Conflict, Unauthorized, and
        Unsupported for a pattern below feature level 4, and for `scram` below level 6.
        """
        if scram and certificate is not None:
            raise InvalidArgument(
                "SCRAM proves a token, and a certificate has none; give one of the two",
                what="scram",
            )
        token, rows = draw(), to_rows(scopes_of(scopes))
        body = {
            "id": id_of(token),
            "principal": check_principal_name(principal),
            **rows,
            "digest": digest_of(token) if certificate is None else None,
            "certificate": certificate,
            "expires_ms": None if expires_s is None else int((time.time() + expires_s) * 1000),
            "quota_class": quota_class,
            **({"scram": await asyncio.to_thread(kept_keys, token)} if scram else {}),
        }
        answer = await self._cluster.call_any(TOKEN_CREATE, body, deadline=self._deadline(timeout))
        if len(rows.get("patterns", ())) != answer.get("patterns", 0):
            raise Unsupported(
                f"token {answer['id']} was created without its scopes with patterns, by a version "
                "of lognode that has no such scopes. Revoke the token, and create another token "
                "when all nodes run this version",
                outcome="applied",
            )
        if scram and not answer.get("scram"):
            raise Unsupported(
                f"token {answer['id']} was created without keys for SCRAM, by a version of lognode "
                "that has no such keys. Revoke the token, and create another token when all nodes "
                "run this version",
                outcome="applied",
            )
        shown = token if certificate is None else None
        return {"id": answer["id"], "principal": principal, "token": shown}

    async def tokens(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all tokens by principal: `id`, `principal`, `certificate`, `scopes` as text,
        `created_ms`, `expires_ms` (None: never), `quota_class`, and `scram`: whether the token has
        keys for SCRAM. Raises Unauthorized."""
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
        """Revoke a token by its id. Each node ends the connections of the token when it learns
        of the revocation, within half a second. Raises NotFound, Conflict for the last token
        that may create tokens."""
        await self._take_away(TOKEN_REVOKE, {"id": token_id}, timeout)

    async def invite_node(
        self, *, expires_s: float = 3_600.0, timeout: float | None = None
    ) -> dict[str, Any]:
        """Invite one new node to join within `expires_s` seconds from now, at most seven days.

        Returns `id`, and `invitation`, the line to give to the node (`lognode --invitation FILE`).
        The cluster keeps only a digest of the line. Raises InvalidArgument, LimitExceeded,
        Unauthorized.
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
        """Return the unused invitations, the oldest first: `id`, `by`, `created_ms` and
        `expires_ms`. `by` is the principal that made the invitation. Raises Unauthorized."""
        answer = await self._cluster.call_any(NODE_INVITES, {}, deadline=self._deadline(timeout))
        names = ("id", "by", "created_ms", "expires_ms")
        return [{name: row[name] for name in names} for row in answer["invites"]]

    async def uninvite_node(self, invite_id: str, *, timeout: float | None = None) -> None:
        """Withdraw an invitation. Raises NotFound when the invitation is gone, used or not."""
        await self._cluster.call_any(
            NODE_UNINVITE, {"id": invite_id}, deadline=self._deadline(timeout)
        )

    async def _take_away(self, operation: Operation, body: Body, timeout: float | None) -> None:
        """Send a request that deletes a thing. Raises NotFound, except when an earlier attempt
        of this call may have deleted the thing and its answer was lost."""
        try:
            await self._cluster.call_any(operation, body, deadline=self._deadline(timeout))
        except NotFound as error:
            if error.outcome != "unknown":
                raise

    async def _after(self, operation: int, range_id: int, deadline: float) -> Body:
        """Return the range once the operation no longer holds it."""
        async for looked in self._looks(RANGES, {"range": range_id}, deadline):
            found: list[Body] = [each for each in looked["ranges"] if each["id"] == range_id]
            if not found:
                raise NotFound(f"range {range_id} is gone: its log was deleted")
            if found[0]["operation"] != operation:
                return found[0]
        raise Timeout(
            f"operation {operation} on range {range_id} did not end in time and goes on; "
            "`lognode status` shows the operation",
            outcome="unknown",
        )

    async def _looks(
        self, operation: Operation, body: Body, deadline: float
    ) -> AsyncIterator[Body]:
        """Yield a page of metadata now and after each change, until the deadline. The longer the
        operation takes, the longer the pauses: with many ranges, something changes all the time."""
        began, newer = self._cluster.now(), False
        while (now := self._cluster.now()) < deadline:
            try:
                looked = await self._cluster.look(operation, body, deadline, newer=newer)
            except (Timeout, Unavailable):
                looked = None  # nodes come and go; only the deadline ends the loop
            if looked is not None:
                yield looked
                newer = True
            pause_s = (now - began) * _LOOKS_SHARE
            pause_s = min(max(pause_s, _LOOKS_MIN_S), _LOOKS_MAX_S)
            await asyncio.sleep(min(pause_s, max(0.0, deadline - self._cluster.now())))

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)


def _summed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the rows of each name into one row, ordered by name."""
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
    scopes = [scope.text for scope in from_rows(row)]
    return told | {"scopes": scopes, "scram": row.get("scram", False)}


def _drained_so_far(node: int, metadata: Body) -> dict[str, Any]:
    for row in metadata["nodes"]:
        if row["id"] == node:
            if row["state"] not in ("DRAINING", "REMOVED"):
                raise Conflict(
                    f"node {node} is {row['state']}: the drain has ended without success"
                )
            return {"node": node, "state": row["state"], "replicas": row["replicas"]}
    raise NodeNotFound(
        f"node {node} does not exist; `lognode node list` shows the nodes", node=node
    )
