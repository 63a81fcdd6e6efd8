"""How many files and connections a node may have open, and the share of each part of the node.

A process that runs out of descriptors cannot begin a WAL file or add a segment, and must end. So
the node raises its limit at the start and divides it: every part has a share and keeps to it. The
shares together never exceed the limit. Connections beyond their share are refused, long before
descriptors for files run out.
"""

import contextlib
import os
import resource
from typing import Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import Unavailable

_RAISED_MAX: Final = 1 << 20
"""The default limit of Linux for a process; more would only cost memory."""
_PER_PEER: Final = 1 + limits.peer_connections_max
"""The link to a node, and the connections that the node may open to this one."""
_PEER_DOOR_MAX: Final = 64
"""Connections to the port for peers whose handshake is not finished."""
_DIALS: Final = 8
"""Connections over which this node fetches files."""
SLACK: Final = 8
"""Sockets that a listener has accepted while it closes others to make room."""
_SHARES: Final = {
    # The number that the part needs at least, and the most that it can use.
    "process": (96, 96),
    "wal": (16, 64),
    "segments": (64, 512),
    "peers": (80, 1_024),
    "handshakes": (32, limits.handshakes_max),
    "http": (16, limits.http_connections_max),
    "door": (24, limits.http_streams + limits.door_requests_max),
    "dials": (16, limits.door_dials_max),
    "clients": (32, limits.connections_max),
}
_WITH_KAFKA: Final = {
    "clients": (24, limits.connections_max),
    "kafka": (8, limits.kafka_connections_max),
}
"""The shares of a node that serves Kafka clients, where they differ."""
_PEERS_EXTRA: Final = limits.stranger_connections_max + _DIALS + SLACK
_PEERS_MAX: Final = _PER_PEER * limits.nodes_max + _PEERS_EXTRA + _PEER_DOOR_MAX
LEAST: Final = sum(least for least, _ in _SHARES.values())
"""The fewest descriptors with which a node starts."""


class Plan(NamedTuple):
    """The shares of a limit, each a number of descriptors."""

    limit: int
    process: int
    """The interpreter, the log, the meta store, listening sockets, pipes, files in passing."""
    wal: int
    segments: int
    """Segment files: half of them stay open, half are for files that a read still holds."""
    peers: int
    """Links to other nodes and connections from them, unfinished handshakes included."""
    handshakes: int
    """Connections to the port for clients whose handshake is not finished."""
    http: int
    door: int
    """Connections over HTTP that wait for REST or for events."""
    dials: int
    """Connections of REST to the nodes of the cluster."""
    clients: int
    kafka: int = 0
    """Connections of Kafka clients, and of the node for them; none without such clients."""

    @property
    def over_http(self) -> int:
        """All connections over HTTP."""
        return self.http + self.door

    @property
    def door_requests(self) -> int:
        """Requests to REST under way, without event streams."""
        return min(limits.door_requests_max, self.door // 2)

    @property
    def peer_handshakes(self) -> int:
        """Connections to the port for peers whose handshake is not finished."""
        return min(_PEER_DOOR_MAX, self.peers // 4)

    @property
    def from_peers(self) -> int:
        """Connections that other nodes have made, after their handshake."""
        links = self.nodes + _DIALS
        return self.peers - links - self.peer_handshakes - SLACK

    @property
    def nodes(self) -> int:
        """The largest cluster in which every node gets the connections that it may open."""
        return min(
            limits.nodes_max, (self.peers - _PEERS_EXTRA - self.peer_handshakes) // _PER_PEER
        )

    def check_nodes(self, count: int) -> None:
        """Raise Unavailable when a cluster of so many nodes needs a higher limit."""
        if count > self.nodes:
            raise Unavailable(
                f"this process may open {self.limit} files, enough for a cluster of "
                f"{self.nodes} nodes; this cluster has {count} nodes and needs "
                f"{_limit_for(count)} files. {_ADVICE}"
            )


_ADVICE: Final = (
    "Raise the limit: `ulimit -n` in the shell that starts the node, LimitNOFILE= in the "
    "unit of systemd."
)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _RAISED_MAX if hard == unlimited else min(hard, _RAISED_MAX)
    if soft == unlimited or soft >= wanted:
        return _RAISED_MAX if soft == unlimited else soft
    with contextlib.suppress(OSError, ValueError):  # some kernels have a lower limit of their own
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def plan(limit: int, streams: int = limits.http_streams, *, kafka: bool = False) -> Plan:
    """Divide a limit for a node with so many event streams, which serves `kafka` clients or does
    not. Raises Unavailable when the limit is below `LEAST`."""
    if limit < LEAST:
        raise Unavailable(
            f"this process may open {limit} files; a node needs at least {LEAST}, and "
            f"{sum(wanted for _, wanted in _SHARES.values())} for {limits.connections_max} "
            f"clients. {_ADVICE}"
        )
    least_of_door = _SHARES["door"][0]
    most_of_door = max(least_of_door, streams + limits.door_requests_max)
    shares = _SHARES | {"door": (least_of_door, most_of_door)} | (_WITH_KAFKA if kafka else {})
    wishes = sum(wanted - least for least, wanted in shares.values())
    share = min(1.0, (limit - LEAST) / wishes)
    given = {
        name: least + int((wanted - least) * share) for name, (least, wanted) in shares.items()
    }
    given["peers"] = min(_PEERS_MAX, given["peers"] + limit - sum(given.values()))
    return Plan(limit, **given)


def _limit_for(nodes: int) -> int:
    """Return the lowest limit that allows for so many nodes."""
    low, high = LEAST, _RAISED_MAX
    while low < high:
        middle = (low + high) // 2
        if plan(middle).nodes < nodes:
            low = middle + 1
        else:
            high = middle
    return low


def open_now() -> int | None:
    """Return the descriptors that this process has open, or None where the system does not tell."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd")) - 1
    return None
