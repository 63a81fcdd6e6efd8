"""Operations on invitations of new nodes: create, list, revoke."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ...client.protocol import Operation, invites, limits
from ...partitions import commands
from ...partitions.metadata import Metadata

log = logging.getLogger("lognode.access")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]


class InviteService:
    """Serves the operations on invitations.

    `command` has the controller commit a command; `refresh` brings this node's metadata up to date.
    `ca` returns the key of the authority of this node's certificate, or `none`."""

    def __init__(
        self,
        *,
        command: Callable[[Body], Awaitable[Body]],
        refresh: Callable[[], Awaitable[None]],
        metadata: Callable[[], Metadata],
        ca: Callable[[], str],
    ) -> None:
        self._command = command
        self._refresh = refresh
        self._metadata = metadata
        self._ca = ca
        self.handlers: dict[Operation, Handler] = {
            invites.NODE_INVITE: self.create,
            invites.NODE_INVITES: self.list,
            invites.NODE_UNINVITE: self.revoke,
        }

    async def create(self, body: Body) -> Body:
        """Invite one new node. `by` in the body is the name of the principal that asks.

        Raises Conflict, LimitExceeded, InvalidArgument."""
        by = _plain(body.get("by", ""))
        await self._command({"op": commands.CREATE_INVITE, **body, "by": by})
        log.info("node invited", extra={"fields": {"invitation": body["id"], "by": by}})
        return {"cluster": self._metadata().cluster_id, "ca": self._ca()}

    async def list(self, _: Body) -> Body:
        """Return the unused invitations, the oldest first, without digests."""
        await self._refresh()
        found = sorted(self._metadata().invites.values(), key=lambda each: each.created_ms)
        return {
            "invites": [
                {"id": each.invite_id, "by": each.by, "created_ms": each.created_ms,
                 "expires_ms": each.expires_ms}
                for each in found
            ]
        }  # fmt: skip

    async def revoke(self, body: Body) -> Body:
        """Revoke an invitation. Raises NotFound."""
        answer = await self._command({"op": commands.REVOKE_INVITE, "id": body["id"]})
        log.info("invitation revoked", extra={"fields": {"invitation": body["id"]}})
        return answer


def _plain(name: str) -> str:
    """Return the beginning of a principal's name in the form that the metadata accepts. The name
    may come from a certificate."""
    begin = name[: limits.inviter_bytes_max // 4].encode("utf-8", "replace").decode()
    return "".join(each if each.isprintable() else "?" for each in begin)
