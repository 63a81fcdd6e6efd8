"""The process that renews the leases of one driver, and releases them when the driver ends.

Started by `leases`, never by hand. Planners send requests over a Unix socket, a line of JSON each,
and get a line back. Each log has a thread, so that a cluster that does not answer delays no other.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from ..protocol.errors import LognodeError, NotFound
from ..vector import Vector
from . import driver
from .renewals import Renewal, Renewals
from .session import Session

look_s: Final = 1.0
"""How often the renewer looks whether the driver lives."""
end_timeout_s: Final = 10.0
"""How long the leases are released at the end. The rest ends by time."""
_request_bytes_max: Final = 64 << 20


class _Keep(NamedTuple):
    vector: Vector
    lease_s: float
    is_own: bool
    mark: str | None


class _Share(NamedTuple):
    mark: str
    found: "queue.SimpleQueue[Vector | None]"


class _GiveWay(NamedTuple):
    found: "queue.SimpleQueue[Vector | None]"


class _End(NamedTuple):
    pass


Request = _Keep | _Share | _GiveWay | _End


class LogRenewer(threading.Thread):
    """Renews the leases of one log. Requests go through `asked`."""

    def __init__(self, servers: str, log: str, timeout_s: float) -> None:
        super().__init__(name=f"renewer of {log}", daemon=True)
        self.asked: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._servers = servers
        self._log = log
        self._timeout_s = timeout_s
        self._renewals = Renewals()

    def run(self) -> None:
        """Serve requests and renew leases, until the request to end."""
        while True:
            request: Request | None = None
            with contextlib.suppress(queue.Empty):
                request = self.asked.get(timeout=self._renewals.wait_s(time.monotonic()))
            if isinstance(request, _End):
                self._release(self._renewals.all())
                return
            if request is not None:
                self._serve(request)
            self._renew()

    def _serve(self, request: _Keep | _Share | _GiveWay) -> None:
        now_s = time.monotonic()
        if isinstance(request, _Keep):
            self._release(self._renewals.keep(**request._asdict(), now_s=now_s))
        elif isinstance(request, _Share):
            request.found.put(self._renewals.shared(request.mark, now_s))
        else:
            oldest = self._renewals.give_way()
            if oldest is not None:
                self._release([oldest])
            request.found.put(None if oldest is None else oldest.vector)

    def _renew(self) -> None:
        self._release(self._renewals.over(time.monotonic()))
        due = self._renewals.due(time.monotonic())
        if not due:
            return
        try:
            # A new session each time: the files of the token and for TLS may be new.
            with Session(self._servers, self._log, timeout=self._timeout_s) as session:
                for lease in due:
                    self._renew_one(session, lease)
        except LognodeError:  # about the cluster, so the others would fail too
            for lease in due:
                self._renewals.failed(lease, time.monotonic())

    def _renew_one(self, session: Session, lease: Renewal) -> None:
        began_s = time.monotonic()
        try:
            session.renew(lease.vector, lease.lease_s)
        except NotFound:
            self._renewals.ended(lease)
        else:
            self._renewals.renewed(lease, began_s)

    def _release(self, leases: list[Renewal]) -> None:
        own = [lease for lease in leases if lease.is_own]
        if not own:
            return
        with (
            contextlib.suppress(LognodeError),
            Session(self._servers, self._log, timeout=self._timeout_s) as session,
        ):
            for lease in own:
                session.release(lease.vector)


class Renewer:
    """The renewers of all logs of a driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, str], LogRenewer] = {}

    def serve(self, listener: socket.socket, pid: int, started: str) -> None:
        """Serve planners until the driver ends; then release the leases."""
        listener.settimeout(look_s)
        try:
            while driver.lives(pid, started):
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        finally:
            self._end()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            found = self._found(json.loads(stream.readline(_request_bytes_max)))
            vector = None if found is None else found.to_json()
            stream.write(json.dumps({"vector": vector}).encode() + b"\n")

    def _found(self, asked: dict[str, Any]) -> Vector | None:
        """Return the snapshot that is shared or has given way, if there is one."""
        with self._lock:
            key = asked["servers"], asked["log"]
            log = self._logs.get(key)
            if log is None:
                log = self._logs[key] = LogRenewer(*key, asked["timeout_s"])
                log.start()
        if asked["do"] == "keep":
            vector = Vector.from_json(asked["vector"])
            log.asked.put(_Keep(vector, asked["lease_s"], asked["is_own"], asked["mark"]))
            return None
        found: queue.SimpleQueue[Vector | None] = queue.SimpleQueue()
        log.asked.put(_Share(asked["mark"], found) if asked["do"] == "share" else _GiveWay(found))
        return found.get()

    def _end(self) -> None:
        until = time.monotonic() + end_timeout_s
        with self._lock:
            logs = list(self._logs.values())
        for log in logs:
            log.asked.put(_End())
        for log in logs:
            log.join(max(0.0, until - time.monotonic()))


def _stop(number: int, frame: object) -> NoReturn:
    sys.exit(0)


def main(place: str, pid: str, started: str) -> None:
    """Listen at `place`, and go on in a child process for as long as the driver runs.

    The child has a session of its own: a signal to the group of the planner does not end it.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place)
    listener.listen()
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGTERM, _stop)
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stderr.fileno())
    try:
        Renewer().serve(listener, int(pid), started)
    finally:
        Path(place).unlink(missing_ok=True)
        Path(place).with_suffix(".lock").unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
