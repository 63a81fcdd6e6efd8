"""A man in the middle: a proxy that reads what passes, changes it, or ends TLS itself.

It passes bytes on until it is told otherwise, between a dialler and one listener.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from lognode.node.certificates.ca import Issued

Alter = Callable[[bytes], bytes]


class Middle:
    """Listens on loopback; `address` is where. A context manager.

    `show`: end the dialler's TLS with this certificate, speak TLS with the listener by the same
    one, and relay what is inside. `alter`: change what passes, in either direction.
    """

    def __init__(self, upstream: str) -> None:
        host, port = upstream.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.show: Issued | None = None
        self.alter: Alter = bytes
        self.accepted = 0
        self.wire = bytearray()
        """All that passed, as it was on the wire; of what was ended here, nothing."""
        self.plain = bytearray()
        """All that was read inside TLS that was ended here."""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> "Middle":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections that are open now."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                dialler, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(dialler,), daemon=True).start()

    def _serve(self, dialler: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(dialler)
            listener = stack.enter_context(socket.create_connection(self._upstream, 10))
            listener.settimeout(None)
            show, seen = self.show, self.wire
            if show is not None:
                seen = self.plain
                dialler = stack.enter_context(_ends(show).wrap_socket(dialler, True))
                listener = stack.enter_context(_begins(show).wrap_socket(listener))
            self._relay(dialler, listener, seen)

    def _relay(self, dialler: socket.socket, listener: socket.socket, seen: bytearray) -> None:
        with self._lock:
            self._open |= {dialler, listener}
        ends = [
            threading.Thread(target=self._pass, args=(one, other, seen), daemon=True)
            for one, other in ((dialler, listener), (listener, dialler))
        ]
        for each in ends:
            each.start()
        for each in ends:
            each.join()
        with self._lock:
            self._open -= {dialler, listener}

    def _pass(self, source: socket.socket, sink: socket.socket, seen: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                seen += data
                sink.sendall(self.alter(data))
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _ends(show: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(show.cert, show.key)
    return context


def _begins(show: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(show.cert, show.key)
    return context


class Flips:
    """Flips one bit in every so many bytes that pass."""

    def __init__(self, every_bytes: int) -> None:
        self._every = every_bytes
        self._passed = 0
        self.flipped = 0
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> bytes:
        with self._lock:
            first, self._passed = self._passed, self._passed + len(data)
            at = self._every - 1 - first % self._every
            if at >= len(data):
                return data
            self.flipped += 1
            changed = bytearray(data)
            changed[at] ^= 1 << self.flipped % 8
            return bytes(changed)


def shown_by(address: str) -> bytes:
    """The certificate that a listener shows, in DER. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def copied(issued: Issued, cert: Path, key: Path) -> None:
    """Put a certificate and its key in the place of others, each file whole."""
    for source, target in ((issued.cert, cert), (issued.key, key)):
        fresh = target.with_name(target.name + ".new")
        fresh.touch(0o600)
        fresh.write_bytes(source.read_bytes())
        fresh.replace(target)
