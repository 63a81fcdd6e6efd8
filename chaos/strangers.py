"""Clients that must not get in, and try during a test: without TLS, certificate, token or right.

A cluster under faults must still refuse strangers. An attempt is refused when a node says so; an
attempt that a fault cut off counts as nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ..client.client import AsyncClient
from ..client.connection import dial
from ..client.protocol.errors import LognodeError, RemoteProtocolError, Unauthorized
from ..client.protocol.tls import DialTls
from ..client.tokens import read_token
from .credentials import Credentials
from .nodes import Node, Nodes

_EVERY_S: Final = 0.25
_ANSWER_S: Final = 2.0
_FORBIDDEN_LOG: Final = "strangers"


class Strangers:
    """One attempt after another, each of the next kind and at a random node."""

    def __init__(self, nodes: Nodes, credentials: Credentials, rng: random.Random) -> None:
        self._nodes = nodes
        self._rng = rng
        self._token = read_token(credentials.workload_token)
        self._own = DialTls(credentials.context)
        self._anonymous = DialTls(credentials.anonymous)
        self._kinds: Mapping[str, Callable[[Node], Awaitable[None]]] = {
            "a client without TLS": self._without_tls,
            "a node without TLS": self._node_without_tls,
            "a client without a certificate": self._without_certificate,
            "a client without a token": self._without_token,
            "a client that dials the port for nodes": self._at_the_port_for_nodes,
            "a workload that creates a log": self._without_the_verb,
        }
        self._refused = dict.fromkeys(self._kinds, 0)
        self._let_in = dict.fromkeys(self._kinds, 0)

    async def run(self) -> None:
        """Try until cancelled."""
        while True:
            for kind in self._kinds:
                await asyncio.sleep(_EVERY_S)
                await self._try(kind, self._nodes[self._rng.choice(self._nodes.numbers)])

    def told(self) -> dict[str, dict[str, int]]:
        """Return how many attempts of each kind were `refused` and `let_in`."""
        return {"refused": self._refused.copy(), "let_in": self._let_in.copy()}

    async def _try(self, kind: str, node: Node) -> None:
        try:
            await self._kinds[kind](node)
        except Unauthorized:
            self._refused[kind] += 1
        except RemoteProtocolError:  # a TLS port gives no other answer to plain text
            self._refused[kind] += kind.endswith("without TLS")
        except LognodeError:
            pass
        else:
            self._let_in[kind] += 1

    async def _without_tls(self, node: Node) -> None:
        await _dialled(node.advertised)

    async def _node_without_tls(self, node: Node) -> None:
        await _dialled(node.peer, role="node")

    async def _without_certificate(self, node: Node) -> None:
        await _dialled(node.advertised, tls=self._anonymous, token=self._token)

    async def _without_token(self, node: Node) -> None:
        await _dialled(node.advertised, tls=self._own)

    async def _at_the_port_for_nodes(self, node: Node) -> None:
        await _dialled(node.peer, tls=self._own, token=self._token)

    async def _without_the_verb(self, _: Node) -> None:
        async with AsyncClient(self._nodes.workload_servers, timeout=_ANSWER_S) as client:
            await client.create_log(_FORBIDDEN_LOG, exist_ok=True)


async def _dialled(address: str, **how: Any) -> None:
    """Shake hands there, and hang up. Raises the errors of `dial`."""
    host, port = address.rsplit(":", 1)
    connection = await dial(host, int(port), timeout_s=_ANSWER_S, **how)
    connection.close()
    await connection.wait_closed()
