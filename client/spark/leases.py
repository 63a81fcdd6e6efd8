"""The leases of snapshots, as the planner of a query sees them. No pyspark.

The planner is a short-lived process, so another process renews the lease: the renewer, of which
each driver has one. The first planner of a driver starts the renewer. Planners find the renewer by
a Unix socket in a folder that only their user may enter, named after the driver.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..protocol.errors import LimitExceeded, Unsupported
from ..vector import Vector
from .driver import Process, driver
from .options import ReadOptions
from .planning import Mark
from .session import Session

start_timeout_s: Final = 30.0
answer_timeout_s: Final = 15.0
"""How long a planner waits for an answer, besides the timeout of a renewal that is under way."""
answer_bytes_max: Final = 64 << 20
_INSTEAD: Final = "Give the option snapshotLease, which takes a lease of a fixed time"


class Held(NamedTuple):
    """A snapshot that a lease holds. Without a lease, the vector's lease is empty."""

    vector: Vector
    is_own: bool
    """Whether the lease was taken for queries of this driver, and ends with the driver."""
    is_shared: bool = False
    """Whether another query of this driver reads the same snapshot."""
    mark: str | None = None
    """What the log had applied when the lease was taken, if nothing else came in between."""


def taken(session: Session, options: ReadOptions) -> Held:
    """Take a snapshot for a query, or share that of another query, if the log has not changed.

    Raises LimitExceeded when a range has too many leases, and none of them is an older one of this
    driver; Unsupported when the renewer does not start.
    """
    if not options.renews:
        return Held(session.snapshot(options.lease_s), is_own=True)
    before = session.marks()
    shared = _ask(options, {"do": "share", "mark": _digest(before)})
    if shared is not None:
        return Held(shared, is_own=True, is_shared=True, mark=_digest(before))
    while True:
        try:
            vector = session.snapshot(options.renewed_s)
            break
        except LimitExceeded:
            if _ask(options, {"do": "give way"}) is None:
                raise
    after = session.marks()
    is_alone = all(mark.applied is not None for mark in before) and after == [
        mark._replace(applied=(mark.applied or 0) + 1) for mark in before
    ]
    return Held(vector, is_own=True, mark=_digest(after) if is_alone else None)


def keep(options: ReadOptions, held: Held) -> None:
    """Have the lease renewed for as long as the driver lives, unless its time is fixed; an own
    lease is released then."""
    if options.renews and held.vector.lease:
        lease_s = options.renewed_s if held.is_own else options.lease_s
        asked = {"do": "keep", "lease_s": lease_s, "is_own": held.is_own, "mark": held.mark}
        _ask(options, {**asked, "vector": held.vector.to_json()})


def give_back(session: Session, held: Held) -> None:
    """Release the lease of a query that failed, unless others need the lease."""
    if held.is_own and not held.is_shared:
        session.release(held.vector)


def _digest(marks: Sequence[Mark]) -> str:
    return hashlib.sha256(repr(marks).encode()).hexdigest()


def _ask(options: ReadOptions, more: dict[str, Any]) -> Vector | None:
    """Return the snapshot that the renewer answers, if there is one."""
    asked = {"servers": options.servers, "log": options.log, "timeout_s": options.timeout_s, **more}
    try:
        with _renewer() as connection, connection.makefile("rwb") as stream:
            connection.settimeout(options.timeout_s + answer_timeout_s)
            stream.write(json.dumps(asked).encode() + b"\n")
            stream.flush()
            found = json.loads(stream.readline(answer_bytes_max))["vector"]
            return None if found is None else Vector.from_json(found)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise Unsupported(
            f"the process that renews leases does not work: {error}. {_INSTEAD}"
        ) from None


@contextlib.contextmanager
def _renewer() -> Iterator[socket.socket]:
    """Connect to the renewer of this driver, which is started if it does not run."""
    of = driver()
    place = folder() / f"{of.pid}-{of.started}"
    connection = _connected(place)
    if connection is None:
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # planners of one driver may run side by side
            connection = _connected(place) or _started(place, of)
    with connection:
        yield connection


def folder() -> Path:
    """Return the folder of the sockets. Raises OSError when others may enter it."""
    place = Path(tempfile.gettempdir()) / f"lognode-spark-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o077:
        raise OSError(f"{place} is not a folder of this user alone; remove {place}")
    return place


def _connected(place: Path) -> socket.socket | None:
    """Return a connection to the renewer, or None when no renewer listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(place))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _started(place: Path, of: Process) -> socket.socket:
    """Start the renewer, which goes on without its parent once it listens, and connect to it."""
    place.unlink(missing_ok=True)
    paths = [os.path.abspath(path) for path in sys.path if path]
    made = subprocess.run(
        [sys.executable, "-m", "lognode.client.spark.renewer", str(place), str(of.pid), of.started],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False, text=True,
        timeout=start_timeout_s,
    )  # fmt: skip
    connection = None if made.returncode else _connected(place)
    if connection is None:
        said = made.stderr.strip().splitlines() or [f"exit code {made.returncode}"]
        raise OSError(f"the start failed: {said[-1]}")
    return connection
