"""NATS JetStream: three servers, one file stream with three replicas."""

import asyncio
import contextlib
import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lognode.client.bench.shape import Shape
from lognode.client.ports import free_ports

from .system import Client, Members, Record, System, processes, said, wait_listening

_STREAM = "bench"


class Nats(System):
    """Debian's server with its defaults."""

    name: ClassVar[str] = "nats-debian"
    durability = "in the page cache of a majority; fsync every 2 minutes"
    window = 4_096
    limits = "the Python client sends a message per record"
    sync_interval: str | None = None

    def program(self, cache: Path) -> str | None:
        return shutil.which("nats-server")

    def missing(self, cache: Path) -> str | None:
        if self.program(cache) is None:
            return "no nats-server on PATH (Debian: nats-server)"
        if importlib.util.find_spec("nats") is None:
            return "the Python package nats-py is not installed"
        return None

    def version(self, cache: Path) -> str:
        return said(str(self.program(cache)), "--version")

    def settings(self) -> str:
        return _config("DIR", 0, 1, [2, 3, 4], self.sync_interval) + (
            "stream: storage file, num_replicas 3\n"
        )

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        ports = free_ports(6)
        clients, routes = ports[:3], ports[3:]
        commands = []
        for number, port in enumerate(clients):
            config = directory / f"{number}.conf"
            config.write_text(_config(str(directory), number, port, routes, self.sync_interval))
            commands.append([str(self.program(cache)), "-c", str(config)])
        with processes(commands, directory) as started:
            wait_listening(clients, started)
            addresses = [f"nats://127.0.0.1:{port}" for port in clients]
            yield Members(addresses, [process.pid for process in started])

    def client(self) -> Client:
        return _NatsClient()


class NatsNew(Nats):
    """A current server with its defaults."""

    name: ClassVar[str] = "nats"

    def program(self, cache: Path) -> str | None:
        found = cache / "nats" / "nats-server"
        return str(found) if found.exists() else None

    def missing(self, cache: Path) -> str | None:
        if self.program(cache) is None:
            return f"no {cache}/nats/nats-server: run scripts/bench fetch --cache {cache}"
        return super().missing(cache)


class NatsSynced(NatsNew):
    """A current server that syncs before it acknowledges; Debian's server has no such option."""

    name: ClassVar[str] = "nats-fsync"
    durability = "fsync on a majority"
    sync_interval = "always"


def _config(
    directory: str, number: int, port: int, routes: Sequence[int], sync_interval: str | None
) -> str:
    peers = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
    sync = f", sync_interval: {sync_interval}" if sync_interval else ""
    return (
        f"server_name: n{number}\nlisten: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{directory}/n{number}"{sync} }}\n'
        f"cluster {{ name: bench, listen: 127.0.0.1:{routes[number]}, routes: [{peers}] }}\n"
    )


class _NatsClient(Client):
    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig

        self._nats = await nats.connect(list(addresses))
        self._js = self._nats.jetstream(timeout=60)
        config = StreamConfig(
            name=_STREAM, subjects=[f"{_STREAM}.*"], num_replicas=3, storage=StorageType.FILE
        )
        for attempt in range(100):
            try:
                await self._js.add_stream(config)
                return
            except Exception:  # no leader yet; the client raises several classes
                if attempt == 99:
                    raise
                await asyncio.sleep(0.2)

    async def append(self, records: Sequence[Record]) -> Any:
        ((key, value),) = records
        ack = await self._js.publish(f"{_STREAM}.{key.decode()}", value)
        return ack.seq

    async def read(self, record: Record, found_by: Any) -> bytes | None:
        message = await self._js.get_msg(_STREAM, found_by)
        found: bytes | None = message.data
        return found

    async def close(self) -> None:
        await self._nats.close()
