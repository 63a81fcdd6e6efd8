"""The door for Kafka clients: takes a request, asks the cluster as its client, returns the answer.

The requests of a connection are answered in their order. `begin` takes the next request, and
returns what finishes it: appends are under way together, everything else is finished before the
next request is taken, as a broker of Kafka does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from prometheus_client import Counter

from ...client.cluster import Cluster
from ...client.pool import Token
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import LognodeError, Overloaded
from ..access.access import Accesses
from . import absent, admin, answers, api, codes, grouping, requests
from .answers import Appended, Fetched, Topic
from .api import Head, head_of
from .clients import Brokers, Client, Clients, Shared
from .codes import code_of
from .coordinator import Coordinator
from .grouping import Grouping
from .idempotent import ids_of, open_id
from .large_produce import LargeProduce
from .many import decoded, encoded
from .producing import Compacts, Settled
from .requests import Produce
from .room import FREE, Hold
from .session import HANDSHAKE, Access, Asker, OnRefused, Session
from .topics import Topics
from .wire import Malformed, Reader

_FEW_TOPICS: Final = 16
MANY_TOPICS_COST: Final = 8
"""What an answer about all topics, or about more than a few, counts among those about topics."""

_LARGE_WAIT_S: Final = 30.0
"""How long a large request to append waits for its turn."""

Send = Callable[[bytes], Awaitable[None]]
Finish = Callable[[Send], Awaitable[None]]
log = logging.getLogger("lognode.kafka")


class KafkaDoor:
    """Serves the requests of all connections. `dial` makes a client of the cluster, and `token`
    returns the node's own token for each dial. `accesses` knows who may ask; `producer_key` returns
    the secret of the grants; `most` bounds the clients; `requests` counts by API. `node_id`,
    `brokers` and `auto_partitions` as in `Describing`, `compacts` as in `Producing`.
    """

    def __init__(
        self, dial: Callable[[Token], Cluster], token: Token, accesses: Accesses, *,
        node_id: int, brokers: Brokers, producer_key: Callable[[], bytes],
        most: Callable[[], int], on_refused: OnRefused, requests: Counter, auto_partitions: int,
        compacts: Compacts,
    ) -> None:  # fmt: skip
        self._accesses = accesses
        self._on_refused = on_refused
        self._counted = {number: requests.labels(name) for number, name in api.NAMES.items()}
        self._cluster = dial(token)
        self._topics = Topics(self._cluster)
        self._shared = Shared()
        self._node_id = node_id

        def client(shown: str | None, owner: str) -> Client:
            ids = ids_of(owner, producer_key) if owner else open_id
            return Client(
                dial(shown), ids, self._shared, node_id=node_id, brokers=brokers,
                auto_partitions=auto_partitions, compacts=compacts,
            )  # fmt: skip

        self._clients = Clients(client, most)
        self._coordinator = Coordinator(
            self._cluster, self._topics, node_id=node_id, brokers=brokers
        )
        self._grouping = Grouping(self._coordinator)

    def session(
        self, *, host: str, address: str, certificate: Certificate | None, is_private: bool,
        opened: Callable[[Access], None],
    ) -> Session:  # fmt: skip
        """Return the session of a new connection; `opened` gets what its client may do."""
        return Session(
            self._accesses, self._clients, host=host, address=address, certificate=certificate,
            is_private=is_private, on_refused=self._on_refused, opened=opened,
        )  # fmt: skip

    async def begin(self, data: bytes, session: Session) -> tuple[Finish, bool]:
        """Take a request of a session. Return what finishes the request, and whether the next
        request may be taken before that. Raises Malformed, and the errors of `Session.who`."""
        if session.is_raw:
            bare = await session.raw(data)
            return _sends(len(bare).to_bytes(4, "big") + bare), False
        head = head_of(Reader(data))
        self._counted[head.api].inc()
        if head.api in HANDSHAKE:
            told = await session.shake(data, head)
            return _sends(_answer(head, told.body), is_last=told.is_last), False
        client, asker = await session.who()
        if head.api == api.PRODUCE:
            return await self._produce(data, head, client, session), True
        if head.api == api.FETCH:
            request = await decoded(data, requests.fetch)
            return self._fetch(request, head, client, asker.host), False
        if head.api in grouping.APIS:
            return _waits(head, await self._grouping.begin(data, head, asker)), False
        if head.api == api.METADATA:
            asked = await decoded(data, requests.metadata)
            is_many = asked.topics is None or len(asked.topics) > _FEW_TOPICS
            # A few bytes ask for megabytes: few such answers exist before they have room.
            cost = MANY_TOPICS_COST if is_many else 1
            async with self._shared.metadata.held(cost, session.host):
                body = await self._metadata(asked, head.version, client)
                return await self._holding(_answer(head, body), session), False
        if head.api in admin.APIS:
            body = await client.admin.answer(data, head, asker.access.authorise)
        else:
            body = await self._other(data, head, client, asker)
        return await self._holding(_answer(head, body), session), False

    async def _holding(self, answer: bytes, session: Session) -> Finish:
        """Return what sends an answer. A large answer waits for room before its request gives back
        the room that the request has: answers repeat the names of requests."""
        if len(answer) <= FREE:
            return _sends(answer)
        held = await session.hold(self._shared.answers, len(answer))

        async def finish(send: Send) -> None:
            try:
                await send(answer)
            finally:
                session.let_go(held)

        return finish

    def answers_wait(self) -> bool:
        """Return whether answers wait for memory that other answers have."""
        return self._shared.answers.waiting > 0

    async def _produce(self, data: bytes, head: Head, client: Client, session: Session) -> Finish:
        request = await decoded(data, requests.produce)
        requests.check_no_repeats([(each.topic, each.partition) for each in request.batches])
        names = len(data) - sum(len(each.records) for each in request.batches)
        # The answer repeats the names, which stay in memory until then.
        held = None if names <= FREE else await session.hold(self._shared.answers, names)
        settled = await client.producing.begin(request, session.host)
        return _appended(head, request.acks, settled, held, session)

    async def begin_large(self, request: LargeProduce, session: Session) -> Finish:
        """Take a request that is larger than others may be, until its records are appended. Return
        what sends the answer. Raises Malformed, TimeoutError, and the errors of `Session.who`."""
        head = await request.head()
        self._counted[head.api].inc()
        client, _ = await session.who()
        try:
            async with asyncio.timeout(_LARGE_WAIT_S):
                held = await session.hold(self._shared.large, 1)
        except TimeoutError:
            raise Overloaded(
                "the node takes too many large requests to append now; come back later",
                retry_after=1,
            ) from None

        async def begin(part: Produce) -> Settled:
            return await client.producing.begin(part, session.host)

        acks, rows = await request.appended(begin)

        async def settled() -> list[Appended]:
            return rows

        return _appended(head, acks, settled, held, session)

    async def _other(self, data: bytes, head: Head, client: Client, asker: Asker) -> bytes:
        """Return the body of the answer."""
        version = head.version
        if head.api == api.LIST_OFFSETS:
            offsets = await client.fetching.offsets(await decoded(data, requests.list_offsets))
            body = await encoded(len(offsets), answers.list_offsets, offsets, version)
        elif head.api == api.INIT_PRODUCER_ID:
            transactional = await decoded(data, requests.init_producer_id)
            told = await client.producing.new_id(transactional=transactional)
            body = answers.init_producer_id(*told)
        elif head.api == api.CREATE_TOPICS:
            wanted = await decoded(data, requests.create_topics)
            created = await client.describing.create(wanted, asker.access.authorise)
            body = answers.create_topics(created, version)
        elif head.api == api.DELETE_TOPICS:
            names, _ = await decoded(data, requests.delete_topics)
            body = answers.delete_topics(await client.describing.delete(names), version)
        else:
            resources = await decoded(data, requests.describe_configs)
            found = await client.describing.settings(resources)
            body = answers.describe_configs(found, version)
        return body

    def _fetch(self, request: requests.Fetch, head: Head, client: Client, host: str) -> Finish:
        async def finish(send: Send) -> None:
            if request.is_incremental:
                error = codes.FETCH_SESSION_ID_NOT_FOUND
                await send(_answer(head, answers.fetch((), head.version, error)))
                return

            async def send_rows(rows: Sequence[Fetched]) -> None:
                body = await encoded(len(rows), answers.fetch, rows, head.version)
                await send(_answer(head, body))

            await client.fetching.fetch(request, send_rows, host)

        return finish

    async def _metadata(self, asked: requests.Metadata, version: int, client: Client) -> bytes:
        try:
            cluster = await client.describing.cluster_id()
            topics = await client.describing.topics(asked.topics)
            if asked.may_create and asked.topics:
                topics = await absent.created(topics, client.describing)
        except LognodeError as error:
            log.info("metadata are not available", extra={"fields": {"error": str(error)}})
            cluster = ""
            topics = [Topic(name, code_of(error)) for name in asked.topics or ()]
        brokers = client.describing.brokers()
        count = len(topics) + sum(len(topic.partitions) for topic in topics)
        told = brokers, cluster, self._node_id, topics, version
        return await encoded(count, answers.metadata, *told)

    def numbers(self) -> Mapping[str, int]:
        """Return the number of groups that this node coordinates, of their members, and of topics
        that clients have named."""
        return {**self._coordinator.numbers(), "topics": self._clients.topics()}

    async def close(self) -> None:
        """Close the client; returns within about a second."""
        await self._coordinator.close()
        await self._clients.close()
        self._shared.close()
        await self._topics.close()
        await self._cluster.close()


def _answer(head: Head, body: bytes) -> bytes:
    """Return the answer with its length and the number of its request."""
    return (
        (len(body) + 4).to_bytes(4, "big") + head.correlation.to_bytes(4, "big", signed=True) + body
    )


def _sends(answer: bytes, *, is_last: bool = False) -> Finish:
    async def finish(send: Send) -> None:
        await send(answer)
        if is_last:
            raise Malformed("the client has not authenticated")

    return finish


def _waits(head: Head, answer: grouping.Answer) -> Finish:
    """Requests of groups may wait long, and hold no room for requests meanwhile."""

    async def finish(send: Send) -> None:
        async def send_body(body: bytes) -> None:
            await send(_answer(head, body))

        await answer(send_body)

    return finish


def _appended(
    head: Head, acks: int, settled: Settled, held: Hold | None, session: Session
) -> Finish:
    """Return what finishes a request to append, once the outcomes of its batches are known. `held`:
    what the request holds until then."""

    async def finish(send: Send) -> None:
        try:
            rows = await settled()
            if acks:
                body = await encoded(len(rows), answers.produce, rows, head.version)
                await send(_answer(head, body))
            elif any(row.error for row in rows):
                # The only way to tell a client that waits for no answer, as Kafka does.
                raise Malformed("an append without acknowledgement has failed")
        finally:
            if held is not None:
                session.let_go(held)

    return finish
