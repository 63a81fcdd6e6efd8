"""The network between machines: who listens where, and the state of each directed link.

A link has a delay, and may be cut. What is sent over a cut link arrives after the heal, like
segments that TCP sends again. A connection attempt over a cut link waits and tries again. A machine
that is off answers nothing, so connections to it stay half-open; a machine that runs again resets
them at the next byte.
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .process import Process, current
from .sockets import Accepted, Listening, SimTransport, connected
from .trace import Trace

if TYPE_CHECKING:
    from .loop import SimLoop

_FIRST_PORT: Final = 32_768
_FIRST_DESCRIPTOR: Final = 1 << 20
_RETRY_S: Final = (1.0, 3.0, 7.0, 15.0, 31.0, 63.0)
"""When a connection attempt is repeated (tcp_syn_retries of Linux), in seconds from its start."""
_LAN_S: Final = (50e-6, 600e-6)


class Link:
    """One direction between two machines."""

    def __init__(self) -> None:
        self.delay_s = _LAN_S
        self.is_cut = False
        self.refuses = False
        """Whether connections that are tried now are refused."""
        self.stuck: list[Callable[[], None]] = []
        """Arrivals that wait for the heal."""


class Network:
    """All links, listeners and connections."""

    def __init__(self, loop: "SimLoop", rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.is_sealed = False
        """Whether connections are inside TLS, so that their bytes are not those of the seed."""
        self.descriptors: dict[int, Listening] = {}
        self.off: set[str] = set()
        """Machines that answer nothing."""
        self.ahead_ms: dict[str, int] = {}
        """By machine, how far its wall clock is ahead."""
        self.free_bytes: dict[str, int] = {}
        """By machine, the free space of its disk, where the disk is almost full."""
        self.places: dict[int, str] = {}
        """The machine of each port, also while no process listens there."""
        self._links: dict[tuple[str, str], Link] = {}
        self._ports: dict[int, Listening] = {}
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._next_port = _FIRST_PORT
        self._open: dict[int, SimTransport] = {}

    # Faults.

    def link(self, source: str, target: str) -> Link:
        """Return the link from one machine to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link()
        return found

    def cut(self, source: str, target: str) -> None:
        """Let nothing arrive any more in this direction, until the heal."""
        self.link(source, target).is_cut = True

    def refuse(self, source: str, target: str) -> None:
        """Reset the connections of both directions, and refuse new ones to the target."""
        self.reset(source, target)
        self.link(source, target).refuses = True

    def heal(self, source: str, target: str) -> None:
        """End the faults of this direction; what was under way arrives."""
        link = self.link(source, target)
        link.is_cut = link.refuses = False
        stuck, link.stuck = link.stuck, []
        for arrive in stuck:
            self._later(self.delay_s(source, target), arrive)

    def heal_all(self) -> None:
        """End the faults of all links."""
        for source, target in self._links:
            self.heal(source, target)

    def slow(self, source: str, target: str, delay_s: tuple[float, float]) -> None:
        """Give the link another delay."""
        self.link(source, target).delay_s = delay_s

    def fast(self, source: str, target: str) -> None:
        """Give the link its usual delay again."""
        self.link(source, target).delay_s = _LAN_S

    def reset(self, one: str, other: str) -> int:
        """Reset the connections between two machines; return their number."""
        ends = [each for each in self._open.values() if (each.place, each.remote) == (one, other)]
        for end in ends:
            self.loop.post(end.process, end.fail, ConnectionResetError(errno.ECONNRESET, "reset"))
            end.peer.arrived_reset()
        return len(ends)

    # Of sockets.

    def delay_s(self, source: str, target: str) -> float:
        """Draw the delay of a packet."""
        low, high = self.link(source, target).delay_s
        return low + (high - low) * self.rng.random()

    def carry(self, source: str, target: str, at: float, arrive: Callable[[], None]) -> None:
        """Call `arrive` at the loop's time `at`, or after the heal when the link is cut then."""
        link = self.link(source, target)

        def came() -> None:
            if link.is_cut:
                link.stuck.append(arrive)
            else:
                arrive()

        self.loop.call_at(at, came, context=self.loop.world.context)

    def _later(self, delay_s: float, arrive: Callable[[], None]) -> None:
        self.loop.call_later(delay_s, arrive, context=self.loop.world.context)

    def listen(self, address: tuple[str, int]) -> Listening:
        """Return a listening socket of the running process. Raises OSError."""
        port = address[1]
        if port in self._ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._next_descriptor += 1
        process = current()
        opened = Listening(self, process, address, self._next_descriptor)
        self._ports[port] = self.descriptors[opened.fileno()] = opened
        self.places[port] = process.place
        process.on_end.append(opened.close)
        return opened

    def unlisten(self, opened: Listening) -> None:
        """Forget a listening socket."""
        self._ports.pop(opened.address[1], None)

    def opened(self, end: SimTransport) -> None:
        """Note an open connection of a process."""
        self._open[end.number] = end

    def gone(self, end: SimTransport) -> None:
        """Forget a connection."""
        self._open.pop(end.number, None)

    def ended(self, process: Process) -> None:
        """Close the sockets of a process that ended, as its kernel does."""
        for end in [each for each in self._open.values() if each.process is process]:
            end.left_by_kernel(says_nothing=process.place in self.off)

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect the running process. Raises OSError."""
        process = current()
        began = self.loop.time()
        target = self.places.get(port, process.place)
        for again_s in _RETRY_S:
            await asyncio.sleep(self.delay_s(process.place, target))
            if not self._is_dark(process.place, target):
                break
            await asyncio.sleep(began + again_s - self.loop.time())
        else:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        opened = self._ports.get(port)
        refuses = self.link(process.place, target).refuses
        if opened is None or refuses or not opened.process.alive:
            await asyncio.sleep(self.delay_s(target, process.place))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        near, far = connected(self, process, opened, (host, self._next_port), (host, port))
        self.trace(process.name, f"connects to {opened.process.name} port {port}")
        opened.queue(Accepted(far))
        await asyncio.sleep(self.delay_s(target, process.place))
        protocol = factory()
        await near.attach(protocol)
        return near, protocol

    def _is_dark(self, source: str, target: str) -> bool:
        dark = self.link(source, target).is_cut or self.link(target, source).is_cut
        return dark or target in self.off


def server_of(network: Network) -> Callable[..., Any]:
    """Return a function with the signature of `socket.create_server`."""

    def create_server(address: tuple[str, int], **_options: Any) -> Listening:
        return network.listen(address)

    return create_server
