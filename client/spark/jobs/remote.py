"""Sessions of Spark Connect: Spark runs in a server, and this process has no Java."""

import importlib.util
import os
import socket
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from lognode.client.protocol.errors import InvalidArgument, Unavailable, Unsupported

port: Final = 15002
"""The port of a server whose address has no port."""
_SCHEME: Final = "sc"
_ENVIRONMENT: Final = "SPARK_REMOTE"
"""Set by a user, or by spark-submit --remote."""
_LIBRARIES: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")


def is_remote(spark: SparkSession) -> bool:
    """Return whether the session is one of Spark Connect."""
    return ".connect." in type(spark).__module__


def address(given: str | None, master: str | None) -> str | None:
    """Return the address of the server: `--remote`, or that of the environment without `--master`;
    None: no Spark Connect. Raises InvalidArgument."""
    if given and master:
        raise InvalidArgument(
            "--remote and --master are given; a job runs on a server of Spark Connect or on a "
            "master. Give one of them",
            what="remote",
        )
    found = given or (None if master else os.environ.get(_ENVIRONMENT))
    if not found:
        return None
    _host(found)
    return found


def check(remote: str, timeout_s: float) -> None:
    """Raise Unsupported without the libraries of Spark Connect, and Unavailable unless the server
    accepts connections: Spark itself would try for minutes."""
    missing = [name for name in _LIBRARIES if not _is_installed(name)]
    if missing:
        raise Unsupported(
            f"Spark Connect needs the library {missing[0]}, which is not installed. Run pip "
            "install 'lognode[connect]'"
        )
    try:
        socket.create_connection(_host(remote), timeout=timeout_s).close()
    except OSError as error:
        raise Unavailable(
            f"no server of Spark Connect answers at {remote.partition('/;')[0]}: {error}. Check "
            "--remote and the server"
        ) from None


def session(remote: str) -> SparkSession:
    """Return a new session of the server."""
    builder: Any = SparkSession.builder
    made: SparkSession = builder.remote(remote).create()
    return made


def _host(remote: str) -> tuple[str, int]:
    """Return host and port of the address. Raises InvalidArgument."""
    try:
        parts = urlsplit(remote)
        if parts.scheme == _SCHEME and parts.hostname:
            return parts.hostname, parts.port or port
    except ValueError:
        pass
    raise InvalidArgument(
        f"{remote.partition('/;')[0]!r} is not the address of a server of Spark Connect; give "
        "sc://HOST:PORT",
        what="remote",
    )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package
        return False
