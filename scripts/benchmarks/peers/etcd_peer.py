"""etcd: three members; puts through its JSON gateway, in transactions if several go at once."""

import asyncio
import base64
import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lognode.client.bench.shape import Shape
from lognode.client.ports import free_ports

from .system import Client, Members, Record, System, processes, said, wait_listening


class Etcd(System):
    """etcd with its defaults: it syncs before it acknowledges."""

    name: ClassVar[str] = "etcd"
    durability = "fsync on a majority"
    batch = 100
    window = 64
    limits = (
        "JSON gateway; transactions of 100 puts (at most 128 go in one); it keeps all revisions"
    )

    def missing(self, cache: Path) -> str | None:
        if shutil.which("etcd") is None:
            return "no etcd on PATH (Debian: etcd-server)"
        return None

    def version(self, cache: Path) -> str:
        return said("etcd", "--version")

    def settings(self) -> str:
        return " ".join(_command(0, Path("DIR"), [1, 2, 3], [4, 5, 6])) + "\n"

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        ports = free_ports(6)
        clients, peers = ports[:3], ports[3:]
        commands = [_command(number, directory, clients, peers) for number in range(3)]
        with processes(commands, directory) as started:
            wait_listening(clients, started)
            addresses = [f"http://127.0.0.1:{port}" for port in clients]
            yield Members(addresses, [process.pid for process in started])

    def client(self) -> Client:
        return _EtcdClient()


def _command(
    number: int, directory: Path, clients: Sequence[int], peers: Sequence[int]
) -> list[str]:
    members = ",".join(f"e{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
    client, peer = (f"http://127.0.0.1:{ports[number]}" for ports in (clients, peers))
    return [
        "etcd", "--name", f"e{number}", "--data-dir", str(directory / f"e{number}"),
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", members, "--initial-cluster-state", "new",
        "--quota-backend-bytes", str(8 << 30), "--log-level", "error",
    ]  # fmt: skip


class _EtcdClient(Client):
    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        import aiohttp

        self._addresses = addresses
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        self._turn = 0
        for attempt in range(100):
            try:
                await self._call("kv/put", {"key": _text(b"begin"), "value": _text(b"")})
                return
            except (aiohttp.ClientError, RuntimeError):
                if attempt == 99:
                    raise
                await asyncio.sleep(0.2)

    async def append(self, records: Sequence[Record]) -> Any:
        if len(records) == 1:
            ((key, value),) = records
            answer = await self._call("kv/put", {"key": _text(key), "value": _text(value)})
        else:
            # A key may occur once in a transaction; the first record of it counts.
            puts = [
                {"requestPut": {"key": _text(key), "value": _text(value)}}
                for key, value in dict(reversed(records)).items()
            ]
            answer = await self._call("kv/txn", {"success": puts})
        return answer["header"]["revision"]

    async def read(self, record: Record, found_by: Any) -> bytes | None:
        answer = await self._call("kv/range", {"key": _text(record[0]), "revision": found_by})
        return base64.b64decode(answer["kvs"][0]["value"])

    async def close(self) -> None:
        await self._session.close()

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._turn += 1
        address = self._addresses[self._turn % len(self._addresses)]
        async with self._session.post(f"{address}/v3/{path}", json=body) as response:
            if response.status != 200:
                raise RuntimeError(f"etcd: {response.status} {(await response.text())[:200]}")
            found: dict[str, Any] = await response.json()
            return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
