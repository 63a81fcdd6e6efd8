# Generated from client/admin.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/admin.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..admin import AsyncAdmin, RestoredRow
from ..loop_thread import LoopThread
from ..protocol.principal import DEFAULT_CLASS
from ..protocol.scopes import Scope


class Admin:
    """Operations on ranges, nodes and tokens. `client.admin` returns the object, which uses the
    connections and the default deadline of its client."""

    def __init__(self, loop: LoopThread, twin: AsyncAdmin) -> None:
        self._loop = loop
        self._twin = twin

    def transfer(
        self, range_id: int, *, to_node: int, timeout: float | None = None
    ) -> dict[str, Any]:
        """Transfer the leadership of a range to a member; range 0 is the controller's.

        Returns `leader`, the node that leads now, and `changed`, whether the leader changed.
        Appends wait a moment and none is lost.
        Raises NotFound for an unknown range, NodeNotFound for an unknown node or a node without a
        replica of the range, Conflict when the node is down, Timeout.
        """
        return self._loop.call(self._twin.transfer(range_id, to_node=to_node, timeout=timeout))

    def restore_entries(
        self,
        log: str,
        key: bytes,
        next_seq: int,
        rows: Sequence[RestoredRow],
        *,
        timeout: float | None = None,
    ) -> tuple[int, bytes | None]:
        """Put entries of a backup into the range that has the key, with their seqs and timestamps.

        `rows`: batches in the order of seq: (timestamp in milliseconds, the seqs, the packed
        records). `next_seq`: the seq that the range gives next. The range has only restored
        entries. A repetition changes nothing. Returns the range's next seq, and the first key
        behind the range, None for the last range.
        Raises LogNotFound; Conflict for a range with other entries; CorruptData for entries out of
        order; BatchSpansRanges for keys of several ranges, as after a split; Unsupported below
        feature level 4; Unavailable, Timeout.
        """
        return self._loop.call(
            self._twin.restore_entries(log, key, next_seq, rows, timeout=timeout)
        )

    def move(
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
        return self._loop.call(
            self._twin.move(
                range_id, from_node=from_node, to_node=to_node, wait=wait, timeout=timeout
            )
        )

    def split(
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
        return self._loop.call(self._twin.split(log, at=at, wait=wait, timeout=timeout))

    def recovery(self, range_id: int, *, timeout: float | None = None) -> dict[str, Any]:
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
        return self._loop.call(self._twin.recovery(range_id, timeout=timeout))

    def recover(
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
        return self._loop.call(
            self._twin.recover(
                range_id, from_node=from_node, accept_loss=accept_loss, wait=wait, timeout=timeout
            )
        )

    def merge(
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
        return self._loop.call(self._twin.merge(log, at=at, wait=wait, timeout=timeout))

    def nodes(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all nodes, by id: `id`, `address`, `http`, `zone`, `state`, how many `replicas`
        the node has or will get (including the controller's), and `insecure`: whether the node
        runs with `--insecure`, None before its first report. Raises Unavailable, Timeout."""
        return self._loop.call(self._twin.nodes(timeout=timeout))

    def ranges(
        self, log: str | None = None, *, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the ranges of a log, or of all logs, by log and key: `id`, `log`, `start`,
        `end`, `generation`, `members`, `leader` and `state`. Raises LogNotFound, Unavailable,
        Timeout."""
        return self._loop.call(self._twin.ranges(log, timeout=timeout))

    def producers(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the named producers of the cluster, in the order in which they first opened:
        `name`, `id`, `epoch`, `opened_ms` of the newest opening or None, and `owner`.

        The cluster forgets a name that is not opened for 7 days. Raises Unavailable, Timeout.
        """
        return self._loop.call(self._twin.producers(timeout=timeout))

    def delete_producer(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Forget a name, to make room for others; return its `id` and `epoch`.

        Nothing else changes: the holder of the name continues to append, and the next opening of
        the name fences the holder. The cluster knows record numbers for 24 hours: take a new name
        for a new numbering.
        Raises NotFound, Unavailable, Timeout.
        """
        return self._loop.call(self._twin.delete_producer(name, timeout=timeout))

    def drain(
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
        return self._loop.call(self._twin.drain(node, undo=undo, wait=wait, timeout=timeout))

    def remove(
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
        return self._loop.call(self._twin.remove(node, dead=dead, timeout=timeout))

    def finalize(self, level: int | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Raise the feature level of the cluster, once the programs of all nodes know the level. It
        is never lowered: from then on no earlier version can serve in the cluster.

        `level`: the level, from 1 on; None: the highest that all programs know. Returns the `level`
        of the cluster. Raises Conflict, with the nodes that stand in the way and their versions, or
        for a level below that of the cluster; InvalidArgument for a level that no program knows;
        Unsupported by a version without levels.
        """
        return self._loop.call(self._twin.finalize(level, timeout=timeout))

    def rekey(self, node: int, key: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Bind a node to another TLS key. From now on only the holder of that key can act as the
        node, and connections with the old key end.

        `key`: the SHA-256 of the public key in hexadecimal, as `lognode ca node` prints it. Returns
        `node`, its `state`, and how many `replicas` it has.
        Raises NodeNotFound, Conflict for a removed node, InvalidArgument.
        """
        return self._loop.call(self._twin.rekey(node, key, timeout=timeout))

    def set_quota(
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
        return self._loop.call(self._twin.set_quota(name, limits, timeout=timeout))

    def delete_quota(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a quota, which ends all its limits. Raises NotFound."""
        self._loop.call(self._twin.delete_quota(name, timeout=timeout))

    def quotas(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all quotas by name: `name` and `limits`. See `set_quota`."""
        return self._loop.call(self._twin.quotas(timeout=timeout))

    def usage(self, *, timeout: float | None = None) -> dict[str, Any]:
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
        return self._loop.call(self._twin.usage(timeout=timeout))

    def node_report(
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
        return self._loop.call(
            self._twin.node_report(node, part, offset=offset, limit=limit, timeout=timeout)
        )

    def create_token(
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
        return self._loop.call(
            self._twin.create_token(
                principal,
                scopes,
                expires_s=expires_s,
                quota_class=quota_class,
                certificate=certificate,
                scram=scram,
                timeout=timeout,
            )
        )

    def tokens(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all tokens by principal: `id`, `principal`, `certificate`, `scopes` as text,
        `created_ms`, `expires_ms` (None: never), `quota_class`, and `scram`: whether the token has
        keys for SCRAM. Raises Unauthorized."""
        return self._loop.call(self._twin.tokens(timeout=timeout))

    def revoke_token(self, token_id: str, *, timeout: float | None = None) -> None:
        """Revoke a token by its id. Each node ends the connections of the token when it learns
        of the revocation, within half a second. Raises NotFound, Conflict for the last token
        that may create tokens."""
        self._loop.call(self._twin.revoke_token(token_id, timeout=timeout))

    def invite_node(
        self, *, expires_s: float = 3600.0, timeout: float | None = None
    ) -> dict[str, Any]:
        """Invite one new node to join within `expires_s` seconds from now, at most seven days.

        Returns `id`, and `invitation`, the line to give to the node (`lognode --invitation FILE`).
        The cluster keeps only a digest of the line. Raises InvalidArgument, LimitExceeded,
        Unauthorized.
        """
        return self._loop.call(self._twin.invite_node(expires_s=expires_s, timeout=timeout))

    def invites(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the unused invitations, the oldest first: `id`, `by`, `created_ms` and
        `expires_ms`. `by` is the principal that made the invitation. Raises Unauthorized."""
        return self._loop.call(self._twin.invites(timeout=timeout))

    def uninvite_node(self, invite_id: str, *, timeout: float | None = None) -> None:
        """Withdraw an invitation. Raises NotFound when the invitation is gone, used or not."""
        self._loop.call(self._twin.uninvite_node(invite_id, timeout=timeout))
