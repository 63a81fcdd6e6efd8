"""NATS JetStream, three servers, a file stream of three replicas; as it comes it acknowledges
before fsync (its `sync_interval` is two minutes)."""

import asyncio
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .figures import Result, result
from .workload import Shape

NAME = "nats"
_DURABILITY = "before fsync (default)"
_WINDOW = 4_096
"""Publishes in flight in the throughput run."""


def missing() -> str | None:
    """Why NATS cannot be run here, or None."""
    if shutil.which("nats-server") is None:
        return "nats-server is not on PATH (Debian: nats-server)"
    try:
        import nats  # noqa: F401
    except ImportError:
        return "the Python package nats-py is not installed"
    return None


def run(shape: Shape, workloads: set[str], root: Path) -> list[Result]:
    """Start three servers under `root`, run the workloads, stop them."""
    from lognode.node.dev import free_ports

    ports = free_ports(6)
    clients, routes = ports[:3], ports[3:]
    with tempfile.TemporaryDirectory(dir=root) as directory:
        processes = []
        for number in range(3):
            config = Path(directory) / f"{number}.conf"
            config.write_text(_config(directory, number, clients[number], routes))
            processes.append(
                subprocess.Popen(
                    ["nats-server", "-c", str(config)],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        try:
            _wait_listening(clients)
            return asyncio.run(_run(shape, workloads, clients))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(10)


def _wait_listening(ports: list[int]) -> None:
    deadline = time.monotonic() + 10
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def version() -> str:
    """What the server says of itself."""
    said = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.strip() or said.stderr.strip()


def _config(directory: str, number: int, port: int, routes: list[int]) -> str:
    peers = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
    return (
        f"server_name: n{number}\nlisten: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{directory}/n{number}" }}\n'
        f"cluster {{ name: bench, listen: 127.0.0.1:{routes[number]}, routes: [{peers}] }}\n"
    )


async def _run(shape: Shape, workloads: set[str], ports: list[int]) -> list[Result]:
    import nats
    from nats.js.api import StorageType, StreamConfig

    client = await nats.connect([f"nats://127.0.0.1:{port}" for port in ports])
    js = client.jetstream(publish_async_max_pending=2 * _WINDOW)
    config = StreamConfig(
        name="bench", subjects=["bench.*"], num_replicas=3, storage=StorageType.FILE
    )
    for attempt in range(100):
        try:
            await js.add_stream(config)
            break
        except Exception:  # the cluster has no leader yet; the client raises several classes
            if attempt == 99:
                raise
            await asyncio.sleep(0.2)
    results = [await _throughput(js, shape)]
    if "append" in workloads:
        results.append(await _latency(js, shape))
    await client.close()
    return results


async def _throughput(js: "object", shape: Shape) -> Result:
    rng = random.Random(shape.seed)
    done = 0
    latencies: list[float] = []
    started = time.perf_counter()
    deadline = started + shape.seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < deadline:
            sent = time.perf_counter()
            subject = f"bench.{rng.randrange(shape.keys):016d}"
            await js.publish(subject, shape.value(done))  # type: ignore[attr-defined]
            latencies.append(time.perf_counter() - sent)
            done += 1

    await asyncio.gather(*(worker() for _ in range(_WINDOW)))
    return result(
        NAME, f"publish ({_WINDOW} in flight)", _DURABILITY,
        records=done, seconds=time.perf_counter() - started, latencies_s=latencies,
    )  # fmt: skip


async def _latency(js: "object", shape: Shape) -> Result:
    rng = random.Random(shape.seed + 1)
    latencies: list[float] = []
    started = time.perf_counter()
    count = int(shape.rate * shape.seconds)

    async def one(number: int, due: float) -> None:
        subject = f"bench.{rng.randrange(shape.keys):016d}"
        await js.publish(subject, shape.value(number))  # type: ignore[attr-defined]
        latencies.append(time.perf_counter() - due)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            due = started + number / shape.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(number, due))
    return result(
        NAME, f"publish at {shape.rate:g}/s", _DURABILITY,
        records=count, seconds=time.perf_counter() - started, latencies_s=latencies,
    )  # fmt: skip
