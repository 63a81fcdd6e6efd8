"""Guests: clients whose tokens allow little and end during the run.

A guest asks for what its token allows and for what it does not allow. Then an operator revokes the
token, or the token expires. A node that is cut off from the controller trusts a token for as long
as its lease allows, and no longer (`--auth-lease`).
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError, NotFound
from ...client.protocol.types import Entry
from ..verdict import Anomaly
from ..workloads.parts import LOG
from .credentials import LEASE_S
from .nodes import Machines

_LOG: Final = "guests"
_CLASS: Final = "guests"
_SCOPES: Final = ("read,append guests", "read,append guests k*", "read guests", "append other/*",
                  "describe guests")  # fmt: skip
_WRITERS: Final = 2
"""The first scopes allow appends of the guests' key."""
_ANSWER_S: Final = 2.0
_EVERY_S: Final = 0.1
_EXPIRES_S: Final = (0.5, 3.0)
_OVER_S: Final = LEASE_S + 1.5
"""How long after its end a token may still be accepted: the lease, and the time in which a node
fetches metadata that it knows to be old."""
_BACK_S: Final = 15.0
_LIMITS: Final = ({"requests": 5}, {"append_bytes": 200}, {"read_records": 10}, {"connections": 2},
                  {"cpu_ms": 1_000})  # fmt: skip
_AUDIT: Final = "_audit"


@dataclass(slots=True)
class _Guest:
    client: AsyncClient
    token: str
    scope: str
    ended_s: float | None = None
    """When the token surely had ended, in the loop's time; None while it may be valid."""


class Guests:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, rng: random.Random, *, clocks_are_right: bool) -> None:
        self.anomalies: list[Anomaly] = []
        self._machines = machines
        self._rng = rng
        self._expires = clocks_are_right
        self._guests: list[_Guest] = []
        self._numbers = itertools.count(1)

    async def prepare(self, admin: AsyncClient) -> None:
        """Make the guests' log."""
        await admin.create_log(_LOG, replicas=3)

    async def run(self) -> None:
        """Let guests come and go until cancelled."""
        admin = AsyncClient(self._machines.servers, timeout=_ANSWER_S)
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                with contextlib.suppress(LognodeError):
                    await self._rng.choice((self._invite, self._end_one, self._ask, self._ask,
                                            self._operate))(admin)  # fmt: skip
        finally:
            await admin.close(timeout=0.0)

    async def finish(self, admin: AsyncClient) -> None:
        """Check that no ended token is accepted any more, and that a new token is."""
        with contextlib.suppress(NotFound):
            await admin.admin.delete_quota(_CLASS)
        await asyncio.sleep(_OVER_S)
        for guest in self._guests:
            # Maybe on the connections of the time before the end.
            await self._append(guest)
            await self._read(guest)
            await guest.client.close(timeout=0.0)
            guest.client = AsyncClient(self._address, token=guest.token, timeout=_ANSWER_S)
            await self._append(guest)
            await guest.client.close(timeout=0.0)
        made = await admin.admin.create_token("last", ["all"], timeout=_BACK_S)
        async with AsyncClient(self._address, token=made["token"], timeout=_BACK_S) as client:
            try:
                await client.log(_LOG).append("k", b"last")
            except LognodeError as error:
                told = f"a new token is not accepted at the end: {error.code} {error.message}"
                self.anomalies.append(Anomaly("new-token-refused", told, promise="L2"))
        await _audited(admin)

    @property
    def _address(self) -> str:
        return self._machines.credentials.address(self._machines.hosts)

    async def _invite(self, admin: AsyncClient) -> None:
        """Make a token for a new guest."""
        scope = self._rng.choice(_SCOPES)
        life_s = self._rng.uniform(*_EXPIRES_S) if self._expires else None
        life_s = self._rng.choice((None, life_s))
        made = await admin.admin.create_token(
            f"guest{next(self._numbers)}", [scope], expires_s=life_s, quota_class=_CLASS
        )
        now = asyncio.get_running_loop().time()
        guest = _Guest(AsyncClient(self._address, token=made["token"], timeout=_ANSWER_S),
                       made["token"], scope)  # fmt: skip
        if life_s is not None:
            guest.ended_s = now + life_s
        self._guests.append(guest)
        await self._read(guest)  # over connections that are open when the token ends
        await self._append(guest)

    async def _end_one(self, admin: AsyncClient) -> None:
        """Revoke the token of a guest."""
        valid = [guest for guest in self._guests if guest.ended_s is None]
        if valid:
            guest = self._rng.choice(valid)
            await admin.admin.revoke_token(guest.token.partition(".")[0])
            guest.ended_s = asyncio.get_running_loop().time()

    async def _ask(self, _admin: AsyncClient) -> None:
        """Let a guest ask for something."""
        if self._guests:
            guest = self._rng.choice(self._guests)
            acts = (self._append, self._read, self._trespass)
            await self._rng.choice(acts)(guest)

    async def _append(self, guest: _Guest) -> None:
        may = guest.scope in _SCOPES[:_WRITERS]
        await self._judged(guest, guest.client.log(_LOG).append("k", b"of a guest"), may=may,
                           what="an append")  # fmt: skip

    async def _read(self, guest: _Guest) -> None:
        may = guest.scope.startswith("read")
        log = guest.client.log(_LOG)
        node = self._rng.choice((None, None, 1))
        await self._judged(guest, _first(log.scan("k", node=node)), may=may, what="a read")
        await self._judged(guest, guest.client.logs(), may=True, what="a list of logs")
        await self._judged(guest, guest.client.status(), may=True, what="the status")

    async def _trespass(self, guest: _Guest) -> None:
        """Ask for what no guest may do."""
        client = guest.client
        await self._judged(guest, client.log(LOG).append("k500", b"of a guest"), may=False,
                           what="an append to another log")  # fmt: skip
        await self._judged(guest, client.create_log("of-a-guest"), may=False, what="a new log")
        await self._judged(guest, client.admin.tokens(), may=False, what="the tokens")

    async def _judged(
        self, guest: _Guest, request: Awaitable[Any], *, may: bool, what: str
    ) -> None:
        """Await the answer; note a guest that was served against its rights."""
        began_s, ended_s = asyncio.get_running_loop().time(), guest.ended_s
        try:
            await request
        except LognodeError:
            return  # a refusal, a fault, a quota
        if not may:
            told = f"{what} by a guest with the scope {guest.scope!r} succeeded"
            self.anomalies.append(Anomaly("no-right", told, promise="X5"))
        elif ended_s is not None and began_s > ended_s + _OVER_S:
            told = f"{what} succeeded that began {began_s - ended_s:.1f} s after the token's end"
            self.anomalies.append(Anomaly("ended-token", told, promise="X5"))

    async def _operate(self, admin: AsyncClient) -> None:
        """Do what operators do with principals and invitations."""
        operator = admin.admin
        await self._rng.choice((self._limit, self._invitations))(operator)
        await operator.usage()
        await operator.tokens()

    async def _limit(self, operator: Any) -> None:
        await operator.set_quota(_CLASS, self._rng.choice(_LIMITS))
        await operator.quotas()
        if self._rng.random() < 0.5:
            await operator.delete_quota(_CLASS)

    async def _invitations(self, operator: Any) -> None:
        made = await operator.invite_node()
        await operator.invites()
        await operator.uninvite_node(made["id"])


async def _first(entries: Any) -> Sequence[Entry]:
    return [entry async for entry in entries]


async def _audited(admin: AsyncClient) -> None:
    """Read the log of audit records."""
    with contextlib.suppress(LognodeError):
        log = admin.log(_AUDIT)
        async for key in log.keys():
            await log.latest(key)
