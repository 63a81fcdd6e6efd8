"""Listening sockets that accept a bounded number of connections.

asyncio's own server accepts every connection, a hundred at a time, and closes excess connections
two turns of the loop later; when descriptors run out it has taken the last one. An `Entrance`
counts every socket from its accept to its close, and accepts none above its bound: newcomers wait
in the kernel's queue until another socket is closed. So the number of descriptors that a listener
takes is exact. Newcomers also wait while an entrance has used its part of the loop's time, which
bounds the cost of peers that connect and leave all the time.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from .handshake_turns import Pace, arrivals_share, handshakes_share, turn_s

_BACKLOG: Final = 1_024
"""Connections that the kernel keeps for the next accept; it may allow fewer (somaxconn)."""
_ACCEPTS_A_TURN: Final = 16
"""After this many accepts, other work has its turn of the loop."""
_TLS_S: Final = 0.001
"""An estimate of the processor time of asyncio's TLS handshake, which cannot be measured here."""
_REST_S: Final = 1.0
_CLOSE_S: Final = 1.0

Factory = Callable[[], asyncio.BaseProtocol | None]


class Entrance:
    """A listening socket with bounds. All calls run on the loop's thread.

    `factory` makes the protocol of an accepted connection; None refuses the connection, which is
    closed at once. The owner of the protocols calls `gone` when one of them has lost its
    connection. `on_lack` gets the error of a failed accept, which mostly means that the process or
    the machine has no more descriptors; the entrance then rests for a second. With `tls` a protocol
    gets its transport after the TLS handshake, which may take `handshake_s`.
    """

    def __init__(
        self,
        factory: Factory,
        *,
        sockets_max: int,
        on_lack: Callable[[OSError], None] = lambda _: None,
        tls: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> None:
        self._factory = factory
        self._sockets_max = sockets_max
        self._on_lack = on_lack
        self._tls = tls
        self._handshake_s = None if tls is None else handshake_s
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self.ended = 0
        """Connections accepted and closed since the beginning."""
        self._held: dict[asyncio.BaseProtocol, socket.socket | None] = {}
        """Each protocol, with its socket until the protocol has a transport."""
        self._making: set[asyncio.Task[Any]] = set()
        self._accepting = False
        self._closed = False
        self._pace = Pace(arrivals_share if tls is None else handshakes_share)
        self._extra_s = 0.0 if tls is None else _TLS_S
        self._rest: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> None:
        """Listen at every address of the host. Raises OSError when one of them is not available."""
        infos = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for at, (family, *_, address) in enumerate(dict.fromkeys(infos), 1):
                try:
                    opened = socket.create_server(address, family=family, backlog=_BACKLOG)
                except OSError as error:
                    if error.errno == errno.EAFNOSUPPORT and (self._listening or at < len(infos)):
                        continue  # a machine without IPv6
                    raise
                opened.setblocking(False)
                self._listening.append(opened)
        except OSError:
            for opened in self._listening:
                opened.close()
            raise
        self._accept_on()

    @property
    def port(self) -> int:
        """The port of the first address, 0 when closed."""
        return int(self._listening[0].getsockname()[1]) if self._listening else 0

    @property
    def sockets(self) -> int:
        """Connections that are accepted and not closed yet."""
        return len(self._held)

    def gone(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that the connection of the protocol is closed. The call is idempotent."""
        if self._held.pop(protocol, self) is self:
            return
        self.ended += 1
        if self._rest is None:
            self._accept_on()

    def shut(self, protocol: asyncio.BaseProtocol) -> None:
        """End a connection without a transport; otherwise its owner aborts the transport."""
        opened = self._held.get(protocol)
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Stop listening. On return every accepted connection is known to its protocol, or
        closed."""
        self._closed = True
        self._accept_off()
        if self._rest is not None:
            self._rest.cancel()
        for opened in self._listening:
            opened.close()
        self._listening.clear()
        for protocol in list(self._held):
            self.shut(protocol)
        if self._making:
            await asyncio.wait(self._making, timeout=_CLOSE_S)

    def _accept_on(self) -> None:
        if self._accepting or self._closed or len(self._held) >= self._sockets_max:
            return
        self._accepting = True
        for opened in self._listening:
            self._loop.add_reader(opened.fileno(), self._accept, opened)

    def _accept_off(self) -> None:
        if self._accepting:
            self._accepting = False
            for opened in self._listening:
                self._loop.remove_reader(opened.fileno())

    def spent(self, seconds: float) -> None:
        """Count the time that accepting or closing connections has taken."""
        self._pace.spent(seconds)

    def _accept(self, listening: socket.socket) -> None:
        if not self._pace.has_time:
            self._keep_pace()
            return
        began = self._pace.clock()
        came = self._accept_some(listening, began + turn_s)
        self._pace.spent(self._pace.clock() - began + came * self._extra_s)
        self._keep_pace()

    def _keep_pace(self) -> None:
        """Pause accepting while the entrance has used its part of the time."""
        wait_s = self._pace.wait_s
        if wait_s and self._rest is None and not self._closed:
            self._accept_off()
            self._rest = self._loop.call_later(wait_s, self._rested)

    def _accept_some(self, listening: socket.socket, until: float) -> int:
        """Accept waiting connections until `until`; return their number."""
        for came in range(_ACCEPTS_A_TURN):
            if len(self._held) >= self._sockets_max:
                self._accept_off()
                return came
            if came and self._pace.clock() > until:
                return came
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return came
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._take_rest(error)
                return came
            protocol = self._factory()
            if protocol is None:
                accepted.close()
                continue
            self._held[protocol] = accepted
            self._begin(protocol, accepted)
        return _ACCEPTS_A_TURN

    def _begin(self, protocol: asyncio.BaseProtocol, accepted: socket.socket) -> None:
        """Give the protocol a transport, in the next turn of the loop or later."""
        self._held[protocol] = accepted
        making = self._loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
        )
        task = self._loop.create_task(making)
        self._making.add(task)
        task.add_done_callback(partial(self._made, protocol))

    def _made(self, protocol: asyncio.BaseProtocol, task: "asyncio.Task[Any]") -> None:
        self._making.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        opened = self._held.get(protocol)
        if task.cancelled() and opened is not None:  # maybe nobody has had the socket yet
            opened.close()
        if error is not None:  # the socket is closed; the protocol does not know it yet
            # The traceback and asyncio's TLS of the connection refer to each other: 300 KiB would
            # stay until the next garbage collection.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            protocol.connection_lost(error if isinstance(error, Exception) else None)
            self.gone(protocol)
        elif protocol in self._held:
            self._held[protocol] = None

    def _take_rest(self, error: OSError) -> None:
        self._accept_off()
        self._rest = self._loop.call_later(_REST_S, self._rested)
        self._on_lack(error)

    def _rested(self) -> None:
        self._rest = None
        self._keep_pace()
        if self._rest is None:
            self._accept_on()
