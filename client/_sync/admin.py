# Generated from client/admin.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/admin.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..admin import AsyncAdmin
from ..loop_thread import LoopThread
from ..protocol.principal import DEFAULT_CLASS
from ..protocol.scopes import Scope


class Admin:
    """Operations on ranges, nodes and tokens. Had from a client, whose connections and default
    deadline it uses."""

    def __init__(self, loop: LoopThread, twin: AsyncAdmin) -> None:
        self._loop = loop
        self._twin = twin

    def transfer(
        self, range_id: int, *, to_node: int, timeout: float | None = None
    ) -> dict[str, Any]:
        """Hand the lead of a range over to a member; 0 is the controller's.

        `leader` is the node that leads then, `changed` whether it did not before. Appends wait a
        moment and none is lost. Raises NotFound for a range that is none, NodeNotFound when the
        node is none or has no replica of it, Conflict when it is down, Timeout.
        """
        return self._loop.call(self._twin.transfer(range_id, to_node=to_node, timeout=timeout))

    def move(
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
        return self._loop.call(
            self._twin.move(
                range_id, from_node=from_node, to_node=to_node, wait=wait, timeout=timeout
            )
        )

    def split(
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
        return self._loop.call(self._twin.split(log, at=at, wait=wait, timeout=timeout))

    def recovery(self, range_id: int, *, timeout: float | None = None) -> dict[str, Any]:
        """What a range that lost most of its members could be recovered from; nothing is changed.

        `range`, its `log`, `start`, `end`, `generation` and `operation`; `members`, of each its
        `node`, `state`, whether it `answers`, how it is `damaged` or None, and what it has or None:
        term and index of the last entry in its log, `last_term` and `last_index`, the last one
        that it has `applied`, and of the last record in those `last_seq` and `last_timestamp_ms`;
        the member that is `proposed`, whose log is the longest; why it is `refused` now to go on
        from that one, or None.
        Raises NotFound for a range that is none, Unavailable, Timeout.
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
        return self._loop.call(
            self._twin.recover(
                range_id, from_node=from_node, accept_loss=accept_loss, wait=wait, timeout=timeout
            )
        )

    def merge(
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
        return self._loop.call(self._twin.merge(log, at=at, wait=wait, timeout=timeout))

    def nodes(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """All nodes, by id: `id`, `address`, `http`, `zone`, `state`, how many `replicas` each
        has or is to get, the controller's counted, and whether the node runs with `--insecure`
        (`insecure`, None while nobody has heard from the node). Raises Unavailable, Timeout."""
        return self._loop.call(self._twin.nodes(timeout=timeout))

    def ranges(
        self, log: str | None = None, *, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """The ranges of a log, or of all, by log and key: `id`, `log`, `start`, `end`,
        `generation`, `members`, `leader` and `state`. Raises LogNotFound, Unavailable, Timeout."""
        return self._loop.call(self._twin.ranges(log, timeout=timeout))

    def producers(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The named producers that the cluster knows, in the order of their first opening: `name`,
        `id`, `epoch`, `opened_ms` of the newest opening or None, and the `owner`.

        A name that nobody opens for 7 days is forgotten. Raises Unavailable, Timeout.
        """
        return self._loop.call(self._twin.producers(timeout=timeout))

    def delete_producer(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Forget a name, to make room for others; its `id` and `epoch`.

        Nothing else changes: who holds the name appends on, and its next opening fences them.
        Record numbers stay known for 24 hours: for a new numbering take a new name.
        Raises NotFound, Unavailable, Timeout.
        """
        return self._loop.call(self._twin.delete_producer(name, timeout=timeout))

    def drain(
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
        return self._loop.call(self._twin.drain(node, undo=undo, wait=wait, timeout=timeout))

    def remove(
        self, node: int, *, dead: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Take a node out of the cluster for good: one that is drained, or with `dead` one that is
        DEAD and never comes back, whose replicas others get at once. Its process ends if it runs.

        `node`, its `state`, and how many `replicas` others have still to get.
        Raises NodeNotFound, Conflict with the reason: it is ACTIVE or not drained yet, it holds
        the last copy of a range or too much for a majority to be left, or no other is ACTIVE.
        """
        return self._loop.call(self._twin.remove(node, dead=dead, timeout=timeout))

    def rekey(self, node: int, key: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Bind a node to another TLS key: from now on only the holder of that key is believed to
        be the node, and connections with the old one end.

        `key`: the SHA-256 of the public key in hexadecimal, as `lognode ca node` prints it.
        `node`, its `state`, and how many `replicas` it has.
        Raises NodeNotFound, Conflict for a removed node, InvalidArgument.
        """
        return self._loop.call(self._twin.rekey(node, key, timeout=timeout))

    def set_quota(
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
        return self._loop.call(self._twin.set_quota(name, limits, timeout=timeout))

    def delete_quota(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a quota: nothing is limited by it any more. Raises NotFound."""
        self._loop.call(self._twin.delete_quota(name, timeout=timeout))

    def quotas(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """All quotas, by name: the `name` and its `limits`. See `set_quota`."""
        return self._loop.call(self._twin.quotas(timeout=timeout))

    def usage(self, *, timeout: float | None = None) -> dict[str, Any]:
        """What was used of all nodes, each since it started: `tenants` and `principals`, rows with
        a `name` and counters.

        The counters: `append_bytes`, `append_records`, `read_bytes`, `read_records`, `requests`,
        `cpu_ms` (milliseconds of event loops) and `refused`, requests refused for a quota. A tenant
        is the part of a log name up to its first slash: what is appended counts for it when it is
        applied, once, however often it was sent. The row of a tenant also has `stored_bytes`, which
        its logs hold now, one copy of each range. `silent`: nodes that did not answer.
        Raises Unavailable, Timeout.
        """
        return self._loop.call(self._twin.usage(timeout=timeout))

    def create_token(
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
        return self._loop.call(
            self._twin.create_token(
                principal,
                scopes,
                expires_s=expires_s,
                quota_class=quota_class,
                certificate=certificate,
                timeout=timeout,
            )
        )

    def tokens(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all tokens by principal: `id`, `principal`, `certificate`, `scopes` as text,
        `created_ms`, `expires_ms` (None: never) and `quota_class`. Raises Unauthorized."""
        return self._loop.call(self._twin.tokens(timeout=timeout))

    def revoke_token(self, token_id: str, *, timeout: float | None = None) -> None:
        """Revoke a token by its id. Its connections end at every node that hears of it, within
        half a second. Raises NotFound, Conflict for the last token that may create tokens."""
        self._loop.call(self._twin.revoke_token(token_id, timeout=timeout))

    def invite_node(
        self, *, expires_s: float = 3600.0, timeout: float | None = None
    ) -> dict[str, Any]:
        """Let one new node join, within so many seconds from now, up to seven days.

        Returns `id`, and `invitation`, the line to give to the node (`lognode --invitation FILE`).
        The cluster keeps only its digest. Raises InvalidArgument, LimitExceeded, Unauthorized.
        """
        return self._loop.call(self._twin.invite_node(expires_s=expires_s, timeout=timeout))

    def invites(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The invitations that no node has used, the oldest first: `id`, `by`, `created_ms` and
        `expires_ms`. `by` is the principal that made the invitation. Raises Unauthorized."""
        return self._loop.call(self._twin.invites(timeout=timeout))

    def uninvite_node(self, invite_id: str, *, timeout: float | None = None) -> None:
        """Take an invitation back. Raises NotFound for one that is gone, used or not."""
        self._loop.call(self._twin.uninvite_node(invite_id, timeout=timeout))
