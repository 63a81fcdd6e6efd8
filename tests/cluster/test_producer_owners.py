"""S8, S9: a producer id is a capability of the principal that opened it, on three real nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.connection import Connection, dial
from lognode.client.protocol import limits
from lognode.client.protocol.appends import (
    APPEND,
    FENCE,
    LEASE_RELEASE,
    LEASE_TAKE,
    PRODUCER_CLOSE,
    PRODUCER_NUMBER,
)  # fmt: skip
from lognode.client.protocol.cluster import METADATA, PRODUCER_OPEN
from lognode.client.protocol.errors import Unavailable, from_wire
from lognode.client.protocol.reads import COUNT_ENTRIES
from lognode.client.protocol.records import encode_batch

pytestmark = pytest.mark.cluster

Body = dict[str, Any]
KEY = b"k"


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3, auth=True) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("orders")
        testing.wait_healthy(cluster)
        yield cluster


def token(cluster: testing.LocalCluster, principal: str) -> str:
    with lognode.Client(cluster.servers, timeout=20) as client:
        made: str = client.admin.create_token(principal, ["read,append orders"])["token"]
        return made


class Session:
    """A client of the range's leader that sends what it likes."""

    def __init__(self, connection: Connection, group: Body) -> None:
        self.connection = connection
        self.group = group
        self.grant: bytes | None = None

    async def ask(self, operation: Any, **body: Any) -> Body:
        """Ask again while the node says so: it may not know the key of the grants yet."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 10
        while True:
            try:
                answer: Body = await self.connection.request(operation, body, deadline=deadline)
            except Unavailable:
                if self.connection.lost is not None or loop.time() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                return answer

    async def append(self, producer: int, number: int, grant: bytes | None) -> Body:
        """The result of one record. Raises what refused it."""
        batch = encode_batch(
            [KEY], [b"%d" % number], producer=producer, epoch=1, low=number, numbers=number
        )
        answer = await self.ask(APPEND, **self.group, batches=[batch], grant=grant)
        (result,) = answer["results"]
        if result["status"] == "error":
            raise from_wire(result["error"])
        return dict(result)

    async def count(self) -> int:
        return int((await self.ask(COUNT_ENTRIES, **self.group, key=KEY))["count"])


@asynccontextmanager
async def session(cluster: testing.LocalCluster, secret: str) -> AsyncIterator[Session]:
    host, _, port = cluster.nodes[0].address.rpartition(":")
    first = Session(await dial(host, int(port), token=secret), {})
    answer = await first.ask(METADATA, log="orders")
    (range_,) = answer["ranges"]
    address = next(n["address"] for n in answer["nodes"] if n["id"] == range_["leader"])
    first.connection.close()
    host, _, port = address.rpartition(":")
    connection = await dial(host, int(port), token=secret)
    try:
        yield Session(connection, {"range": range_["id"], "generation": range_["generation"]})
    finally:
        connection.close()


def test_S8_nobody_else_appends_closes_or_fences_a_producer(cluster: testing.LocalCluster) -> None:
    """A stranger closed another's producer, so that a retry was applied twice."""

    async def main() -> None:
        ann, bob = token(cluster, "ann"), token(cluster, "bob")
        async with session(cluster, ann) as own, session(cluster, bob) as other:
            opened = await own.ask(PRODUCER_OPEN)
            producer, grant = opened["id"], opened["grant"]
            await own.append(producer, 1, grant)
            before = await own.count()
            its_own = await other.ask(PRODUCER_OPEN)
            attacks: list[Callable[[bytes | None], Awaitable[Any]]] = [
                lambda shown: other.append(producer, 2, shown),
                lambda shown: other.ask(FENCE, **own.group, id=producer, epoch=9, grant=shown),
                lambda shown: other.ask(
                    PRODUCER_NUMBER, **own.group, producer=producer, number=1, grant=shown
                ),
            ]
            for attack in attacks:
                for shown in (None, its_own["grant"], grant):
                    with pytest.raises(lognode.Unauthorized, match="grant"):
                        await attack(shown)
            other.connection.send(
                PRODUCER_CLOSE, {**own.group, "id": producer, "grant": its_own["grant"]}
            )
            with pytest.raises(lognode.LognodeError):  # nobody is answered: the connection ends
                await other.count()
            # A retry of the owner is still known for one, and the owner goes on.
            assert list((await own.append(producer, 1, grant))["duplicates"]) == [0]
            assert await own.count() == before
            await own.append(producer, 2, grant)
            assert await own.count() == before + 1
        async with session(cluster, token(cluster, "ann")) as again:  # a new token of the same
            assert list((await again.append(producer, 2, grant))["duplicates"]) == [0]

    asyncio.run(main())


def test_X6_one_principal_cannot_take_all_leases_of_a_range(cluster: testing.LocalCluster) -> None:
    """One reader took all 64 for a week, and nobody else could read a snapshot."""

    async def main() -> None:
        ann, bob = token(cluster, "ann"), token(cluster, "bob")
        async with session(cluster, ann) as greedy, session(cluster, bob) as other:

            async def take(by: Session, name: str) -> object:
                fields = {**by.group, "lease": name, "through": 0, "lease_ms": 60_000}
                try:
                    return await by.ask(LEASE_TAKE, **fields)
                except lognode.LognodeError as error:
                    return error

            names = [f"ann-{n}" for n in range(64)]
            found = await asyncio.gather(*(take(greedy, name) for name in names))
            taken = [n for n, each in zip(names, found, strict=True) if type(each) is dict]
            assert len(taken) == limits.leases_per_principal_max
            refusals = [each for each in found if isinstance(each, lognode.LimitExceeded)]
            assert len(refusals) == 64 - len(taken)
            assert refusals[0].fields["limit"] == "leases_per_principal_max"
            assert type(await take(greedy, taken[0])) is dict  # its own, again
            assert type(await take(other, "bob")) is dict
            await greedy.ask(LEASE_RELEASE, **greedy.group, lease=taken[0])
            assert type(await take(greedy, "another")) is dict
            assert type(await take(greedy, "one too many")) is lognode.LimitExceeded

    asyncio.run(main())


def test_S9_a_name_fences_nobody_but_its_owner(cluster: testing.LocalCluster) -> None:
    ann, bob = token(cluster, "ann"), token(cluster, "bob")
    where = cluster.servers.partition("?")[0]
    with (
        lognode.Client(where, token=ann, timeout=20) as own,
        lognode.Client(where, token=bob, timeout=20) as other,
        lognode.Client(cluster.servers, timeout=20) as admin,
    ):
        producer = own.log("orders").producer(name="import")
        producer.submit("named", b"1", number=1).result()
        with pytest.raises(lognode.Unauthorized, match="'import' belongs to ann"):
            other.log("orders").producer(name="import").open()
        producer.submit("named", b"3", number=2).result()
        with own.log("orders").producer(name="import") as newer:
            newer.submit("named", b"4", number=3).result()
            with pytest.raises(lognode.Fenced):
                producer.submit("named", b"5", number=4).result()
        assert [each.value for each in own.log("orders").scan("named")] == [b"1", b"3", b"4"]
        (row,) = [row for row in admin.admin.producers() if row["name"] == "import"]
        assert row["owner"] == "ann"


def test_S8_appends_go_on_after_a_restart_of_all_nodes(cluster: testing.LocalCluster) -> None:
    """Every node checks grants that other nodes gave before the restart."""
    ann = token(cluster, "ann")
    where = cluster.servers.partition("?")[0]
    with lognode.Client(where, token=ann, timeout=60) as client:
        with client.log("orders").producer() as producer:
            producer.submit("restart", b"1").result()
            for node in cluster.nodes:
                node.kill()
                node.start()
                node.wait_ready()
            producer.submit("restart", b"2").result()
        assert [each.value for each in client.log("orders").scan("restart")] == [b"1", b"2"]
