"""The clients of the cluster that serve the requests of Kafka clients, one for each token.

A request is served by a client of the cluster that shows the token of the request's connection. So
rights, quotas, limits and errors are those of the port for clients, on every node that takes part.
Connections without a token share one client, which may do nothing once the cluster has tokens.

The node itself is a further client, for the log of consumer groups. Its token is in a file, which
is read at each dial: the file may be made, or replaced, while the node runs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ...client.cluster import Cluster
from ...client.pool import Token
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.errors import Overloaded
from ...client.protocol.tls import ClientTls, Tls
from ...client.tokens import read_token
from ..config import Config
from .admin import Admin
from .describing import Describing
from .fetching import Fetching
from .idempotent import Ids
from .producing import Compacts, Memory, Producing
from .room import Room
from .topics import Topics

CLIENTS_MAX: Final = 128
"""The most tokens whose clients a node serves at a time."""
_ANSWERS_MAX: Final = 64 * limits.MIB
"""Bytes of records in answers that clients have not taken yet; a host has half of them."""
_METADATA_AT_ONCE: Final = 64
"""Answers about few topics that are gathered, or wait for room; a host has half of them. An answer
about many topics counts as `door.MANY_TOPICS_COST`."""
_LARGE_AT_ONCE: Final = 16
"""Requests to append above the bound of all others that are taken at a time; a host has half of
them. Each may have 10,000 outcomes, and the names of its topics."""
Brokers = Callable[[], Mapping[int, str]]


def dialler(config: Config) -> Callable[[Token], Cluster]:
    """Return what makes a client of the cluster that shows a token. With TLS, the client shows the
    certificate of the node; the rights of the token count."""
    tls = None
    if config.tls_ca is not None:
        tls = ClientTls(Tls(config.tls_ca, config.tls_cert, config.tls_key))

    def dial(token: Token) -> Cluster:
        return Cluster((split_address(config.advertised, "advertise"),), tls, token)

    return dial


def own_token(config: Config, is_on: Callable[[], bool]) -> Callable[[], Awaitable[str | None]]:
    """Return what reads the token of the node, None while clients need no token. Raises
    InvalidArgument for a file without a token."""

    async def read() -> str | None:
        if config.kafka_token_file is None or not is_on():
            return None
        return await asyncio.to_thread(read_token, config.kafka_token_file)

    return read


class Client:
    """Serves the requests of the connections that show one token."""

    def __init__(
        self, cluster: Cluster, ids: Ids, shared: "Shared", *, node_id: int, brokers: Brokers,
        auto_partitions: int, compacts: Compacts,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self.topics = Topics(cluster)
        self.producing = Producing(cluster, self.topics, ids, shared.memory, compacts=compacts)
        self.fetching = Fetching(cluster, self.topics, shared.answers)
        self.describing = Describing(
            cluster, self.topics, node_id=node_id, brokers=brokers, auto_partitions=auto_partitions
        )
        self.admin = Admin(cluster, self.topics, self.describing)
        self.connections = 0

    async def close(self) -> None:
        """Close the client; returns within about a second."""
        await self.topics.close()
        await self._cluster.close()


class Shared:
    """The memory that all clients of a node share, and the thread that unpacks."""

    def __init__(self) -> None:
        self.answers = Room(_ANSWERS_MAX, _ANSWERS_MAX // 2)
        self.large = Room(_LARGE_AT_ONCE, _LARGE_AT_ONCE // 2)
        self.metadata = Room(_METADATA_AT_ONCE, _METADATA_AT_ONCE // 2)
        self.memory = Memory(ThreadPoolExecutor(1, thread_name_prefix="lognode-kafka"))

    def close(self) -> None:
        """End the thread."""
        self.memory.threads.shutdown(wait=False, cancel_futures=True)


class Clients:
    """The clients by token. `make` makes the client of a token and its owner; `most` returns how
    many clients the node may have, as each may connect to every node."""

    def __init__(self, make: Callable[[str | None, str], Client], most: Callable[[], int]) -> None:
        self._make = make
        self._most = most
        self._held: OrderedDict[str | None, Client] = OrderedDict()
        """The client that was used last at the end."""
        self._closing: set[asyncio.Task[None]] = set()

    def hold(self, token: str | None, owner: str) -> Client:
        """Return the client of a token for one more connection. Raises Overloaded when all others
        are in use."""
        client = self._held.get(token)
        if client is None:
            self._make_room()
            client = self._held[token] = self._make(token, owner)
        self._held.move_to_end(token)
        client.connections += 1
        return client

    def topics(self) -> int:
        """Return the number of topics that the clients have named."""
        return len({name for client in self._held.values() for name in client.topics.names})

    def release(self, client: Client) -> None:
        """Note that a connection does not use the client any more."""
        client.connections -= 1

    def _make_room(self) -> None:
        if len(self._held) < self._most():
            return
        unused = [token for token, client in self._held.items() if not client.connections]
        if not unused:
            raise Overloaded(
                f"the node serves Kafka clients with {len(self._held)} tokens, and no more at a "
                "time. Come back later, or ask another node",
                retry_after=1,
            )
        self._close(self._held.pop(unused[0]))

    def _close(self, client: Client) -> None:
        task = asyncio.create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all clients; returns within about a second."""
        for client in self._held.values():
            self._close(client)
        self._held.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)
