"""Latencies, rates, and the facts printed beside them: the machine, the disk, the versions."""

import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lognode.client.bench import report


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the quantile as `lognode bench` does, of values in any order."""
    return report.quantile(sorted(values), fraction)


def data_directory(text: str) -> Path:
    """Return the directory of `--data`; make it if it is missing. Raises OSError."""
    path = Path(text)
    path.mkdir(parents=True, exist_ok=True)
    return path


def environment() -> dict[str, str | int | float]:
    """Return the environment of the figures.

    It has cores, Python, commit, the cost of one fdatasync of 4 KiB and of one round trip over
    loopback between two processes (medians, ms), and how busy the machine was before.
    """
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "replicas": 3,
        "load": round(os.getloadavg()[0], 2),
        "fdatasync_p50_ms": round(_sync_cost_s() * 1e3, 3),
        "loopback_p50_ms": round(_loopback_cost_s() * 1e3, 3),
    }


def _sync_cost_s() -> float:
    costs = []
    with tempfile.NamedTemporaryFile(dir=".") as file:
        for i in range(200):
            os.pwrite(file.fileno(), b"x" * 4096, i * 4096)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            costs.append(time.perf_counter() - started)
    return quantile(costs, 0.5)


_ECHO = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := s.recv(4096):
        s.sendall(data)
"""


def _loopback_cost_s() -> float:
    costs = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", _ECHO, port]) as echo:
            server.settimeout(30)
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(500):
                    started = time.perf_counter()
                    connection.sendall(b"x" * 200)
                    connection.recv(4096)
                    costs.append(time.perf_counter() - started)
            echo.wait(30)
    return quantile(costs, 0.5)
