"""A server of Spark Connect in a process of its own, as `start-connect-server.sh` starts one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from lognode.client.ports import free_ports

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S = 120


@contextmanager
def connect_server(place: Path, *, before: Sequence[str] = ()) -> Iterator[str]:
    """Yield the address. `before`: a program that starts the server, as `unshare --mount`.

    The server writes what it says to `server.log` in the place.
    """
    home = Path(pyspark.__file__).parent
    place.mkdir(parents=True, exist_ok=True)
    port = free_ports(1)[0]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2", "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }  # fmt: skip
    given = [each for pair in settings.items() for each in ("--conf", "=".join(pair))]
    command = [*before, str(home / "bin" / "spark-submit"), "--master", "local[2]",
               "--class", _CLASS, *given, "spark-internal"]  # fmt: skip
    others = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    with (place / "server.log").open("wb") as said:
        server = subprocess.Popen(
            command, stdout=said, stderr=said, start_new_session=True, cwd=place,
            env={**others, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                 "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
    try:
        _wait(server, port, place)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, place: Path) -> None:
    """Wait until the server accepts connections."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError((place / "server.log").read_text()[-4_000:])
