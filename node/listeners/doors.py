"""Open a node's listeners for clients, for other nodes and for HTTP, with their bounds."""

import asyncio
from collections.abc import Iterator
from typing import Any

from ...client.accepting import acceptor
from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.handler import Handler, ListenTls
from ...client.accepting.listener import Listener
from ...client.accepting.meter import NodeBudgets
from ...client.accepting.seats import Bounds
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.errors import LognodeError, Unavailable
from ..audit.audit import Audit
from ..certificates.tls import NodeTls
from ..config import Config
from ..metrics import Metrics
from ..runtime.descriptors import Plan, open_now
from ..web.http import HttpServer
from .turned_away import TurnedAway


def client_bounds(plan: Plan, idle_s: float) -> Bounds:
    """Return the bounds of the port for clients."""
    return Bounds(
        connections=plan.clients, handshakes=plan.handshakes, idle_s=idle_s,
        frame_bytes_per_s=limits.frame_bytes_per_s_min,
    )  # fmt: skip


def peer_bounds(plan: Plan) -> Bounds:
    """Return the bounds of the port for peers. A slow network does not end a peer's connection."""
    return Bounds(connections=plan.from_peers, handshakes=plan.peer_handshakes, host_share=1.0)


class Doors:
    """Opens and closes the listeners. Every connection counts against `plan`."""

    def __init__(
        self,
        config: Config,
        plan: Plan,
        *,
        secret: bytes | None,
        tls: NodeTls | None,
        budgets: NodeBudgets,
        metrics: Metrics,
        told: TurnedAway,
        audit: Audit,
    ) -> None:
        self._config = config
        self._plan = plan
        self._secret = secret
        self._tls = tls
        self._budgets = budgets
        self._told = told
        self._audit = audit
        self._clients: Listener | None = None
        self._peers: Listener | None = None
        self._http: HttpServer | None = None
        metrics.descriptors_max.set(plan.limit)
        metrics.descriptors_open.set_function(lambda: open_now() or 0)
        metrics.client_connections_max.set(plan.clients)

    async def open(self, clients: Handler, peers: Handler, http: HttpServer) -> None:
        """Open all listeners, or none. Raises Unavailable when an address is not available."""
        try:
            await self._open(clients, peers, http)
        except BaseException:
            await self.close()
            raise

    async def _open(self, clients: Handler, peers: Handler, http: HttpServer) -> None:
        config, plan, tls = self._config, self._plan, self._tls
        self._peers = await self._serve(
            peers, config.peer_listened, "peer-listen", peer_bounds(plan),
            None if tls is None else tls.between_nodes,
        )  # fmt: skip
        self._clients = await self._serve(
            clients, config.listen, "listen", client_bounds(plan, config.idle_timeout), tls
        )
        self._http = http
        await http.start()

    async def close(self) -> None:
        """Close the listeners and all connections; returns within two seconds."""
        listeners = [each for each in (self._clients, self._peers) if each is not None]
        await asyncio.gather(*(each.close() for each in listeners))
        if self._http is not None:
            await self._http.stop()

    def recheck(self) -> None:
        """End the connections whose hello TLS would no longer allow."""
        for each in (self._clients, self._peers):
            if each is not None:
                each.recheck()

    def ended(self) -> int:
        """Return how many connections with TLS have ended since the node began."""
        if self._tls is None:
            return 0
        listeners = [each.entrance.ended for each in (self._clients, self._peers) if each]
        return sum(listeners) + (0 if self._http is None else self._http.ended)

    def row(self) -> dict[str, Any]:
        """Return the row of the status."""
        plan = self._plan
        return {
            "max": plan.limit,
            "open": open_now(),
            "clients": 0 if self._clients is None else self._clients.connections,
            "clients_max": plan.clients,
            "peers": 0 if self._peers is None else self._peers.connections,
            "peers_max": plan.from_peers,
            "http": 0 if self._http is None else self._http.connections,
            "http_max": plan.over_http,
            "nodes_max": plan.nodes,
        }

    def clients(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each connection of a client whose handshake is done."""
        now = asyncio.get_running_loop().time()
        for each in [] if self._clients is None else self._clients.guests:
            if each.hello is not None:
                yield {
                    "address": each.address,
                    "principal": each.principal.name,
                    "role": each.hello.role,
                    "node": each.hello.node,
                    "private": each.is_private,
                    "requests": each.in_flight,
                    "bytes_in": each.bytes_in,
                    "bytes_out": each.bytes_out,
                    "idle_s": round(max(0.0, now - each.last_in_s), 1),
                }

    def _refused(self, connection: ServerConnection, error: LognodeError) -> None:
        """Audit a connection that ended before its handshake was done."""
        if not isinstance(error, Unavailable):  # Unavailable: the other side closed it
            who = connection.principal.name
            self._audit.turned_away(who, connection.address, "hello", error)

    async def _serve(
        self, handler: Handler, address: str, flag: str, bounds: Bounds, tls: ListenTls | None
    ) -> Listener:
        host, port = split_address(address, flag)
        try:
            return await acceptor.serve(
                handler, host, port, secret=self._secret, tls=tls, budgets=self._budgets,
                bounds=bounds, on_closed=self._told, on_refused=self._refused,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {address}: {error.strerror or error}; "
                f"give another address with --{flag}"
            ) from None
