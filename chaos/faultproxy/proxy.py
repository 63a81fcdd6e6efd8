"""A proxy: a listener, the connections through it, and its toxics."""

import asyncio
import os
from typing import Any

from .streams import Connection, End
from .toxics import DIRECTIONS, Direction, Toxic

_BACKLOG = 1024


class Proxy:
    """Forwards from `listen` to `upstream`, both host:port, while it is enabled."""

    def __init__(self, name: str, listen: str, upstream: str) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.toxics: dict[Direction, list[Toxic]] = {one: [] for one in DIRECTIONS}
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._opening: dict[asyncio.Task[None], End] = {}

    @property
    def enabled(self) -> bool:
        """Whether the proxy listens."""
        return self._server is not None

    async def start(self) -> None:
        """Listen; port 0 becomes a free port. Raises OSError and ValueError."""
        host, port = split(self.listen)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._client, host, port, backlog=_BACKLOG)
        name = self._server.sockets[0].getsockname()
        self.listen = join(name[0], name[1])

    def stop(self) -> None:
        """Refuse connections, and close the existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task, client in list(self._opening.items()):
            task.cancel()
            client.abort()
        for connection in list(self._connections):
            connection.abort()

    def find(self, name: str) -> Toxic | None:
        """Return the toxic of this name."""
        every = (toxic for direction in DIRECTIONS for toxic in self.toxics[direction])
        return next((toxic for toxic in every if toxic.name == name), None)

    def add(self, toxic: Toxic) -> None:
        """Add a toxic, on live connections too."""
        self.toxics[toxic.direction].append(toxic)
        for connection in list(self._connections):
            connection.streams[toxic.direction].add(toxic)

    def change(self, toxic: Toxic) -> None:
        """Give the toxic other attributes."""
        for connection in list(self._connections):
            connection.streams[toxic.direction].change(toxic)

    def remove(self, toxic: Toxic) -> None:
        """Remove a toxic, from live connections too."""
        self.toxics[toxic.direction].remove(toxic)
        for connection in list(self._connections):
            connection.streams[toxic.direction].remove(toxic)

    def to_json(self) -> dict[str, Any]:
        """Return the proxy as the API shows it.

        `Logger` is an empty object, as in the real server.
        """
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "Logger": {},
            "toxics": [one.to_json() for each in DIRECTIONS for one in self.toxics[each]],
        }

    def _client(self) -> End:
        client = End()
        client.on_made = self._open
        return client

    def _open(self, client: End) -> None:
        if not self.enabled:  # accepted before the listener was closed, and reported after
            client.abort()
            return
        task = asyncio.get_running_loop().create_task(self._dial(client))
        self._opening[task] = client
        task.add_done_callback(self._opening.pop)

    async def _dial(self, client: End) -> None:
        """Dial the upstream.

        If it cannot be reached, close the client, which was accepted already.
        """
        upstream = End()
        try:
            host, port = split(self.upstream)
            await asyncio.get_running_loop().create_connection(lambda: upstream, host, port)
        except (OSError, ValueError):
            client.close()
            return
        except asyncio.CancelledError:
            upstream.abort()
            raise
        connection = Connection(client, upstream, self.toxics, self._connections.discard)
        self._connections.add(connection)
        connection.begin()


def split(address: str) -> tuple[str, int]:
    """Split host:port, or [host]:port for IPv6.

    Raises ValueError, in the words of Go's net package.
    """
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError(f"address {address}: missing port in address")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"address {address}: invalid port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join(host: str, port: int) -> str:
    """Undo `split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason(listen: str, error: OSError | ValueError) -> str:
    """Return why the proxy cannot listen there, in the words of Go's net package."""
    if isinstance(error, ValueError):
        return f"listen tcp: {error}"
    words = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"listen tcp {listen}: bind: {words}"
