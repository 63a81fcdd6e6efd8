"""A proxy that loses answers: it passes a request on, waits for its answer, and ends the connection
instead of passing the answer on."""

import contextlib
import socket
import threading
from collections.abc import Callable

from middle import Middle

from lognode.client.protocol import Operation, frame, frames

_ANSWERS = (frames.OK, frames.ERROR)


class LosesAnswers(Middle):
    """Passes everything on until `lose` is called."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.servers = ""
        """What clients are given: the address of this proxy, with the token."""
        self.requests = 0
        """Requests of the chosen operation that passed."""
        self.lost = 0
        self._operation: Operation | None = None
        self._left = 0
        self._then: Callable[[], object] = int

    def lose(self, operation: Operation, then: Callable[[], object] = int) -> None:
        """Lose the next answer to the operation. `then` runs between that and the repetition."""
        self.requests = self.lost = 0
        self._operation, self._left, self._then = operation, 1, then

    def _relay(self, dialler: socket.socket, listener: socket.socket, seen: bytearray) -> None:
        """The ids of the operation's requests are those of this connection."""
        ids: set[int] = set()
        with self._lock:
            self._open |= {dialler, listener}
        there = threading.Thread(target=self._requests, args=(dialler, listener, ids), daemon=True)
        there.start()
        self._answers(listener, dialler, ids)
        there.join()
        with self._lock:
            self._open -= {dialler, listener}

    def _requests(self, source: socket.socket, sink: socket.socket, ids: set[int]) -> None:
        decoder = frame.Decoder()
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                for each in decoder.feed(data):
                    is_chosen = self._operation is not None and isinstance(each, frame.Frame)
                    if is_chosen and each.kind == self._operation.number:
                        self.requests += 1
                        ids.add(each.request_id)
                sink.sendall(data)
        _end(source, sink)

    def _answers(self, source: socket.socket, sink: socket.socket, ids: set[int]) -> None:
        decoder = frame.Decoder()
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                found = [each for each in decoder.feed(data) if isinstance(each, frame.Frame)]
                if self._left and any(
                    each.kind in _ANSWERS and each.request_id in ids for each in found
                ):
                    self._left -= 1
                    self.lost += 1
                    self._then()
                    break
                sink.sendall(data)
        _end(source, sink)


def _end(*ends: socket.socket) -> None:
    for each in ends:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
