"""The door for Kafka clients: takes a request, asks the cluster as its client, returns the answer.

The requests of a connection are answered in their order. `begin` takes the next request, and
returns what finishes it: appends are under way together, everything else is finished before the
next request is taken, as a broker of Kafka does.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from ...client.cluster import Cluster
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.errors import LognodeError
from . import answers, api, codes, grouping, requests
from .answers import Fetched, Topic
from .api import Head, head_of
from .codes import code_of
from .coordinator import Coordinator
from .describing import Describing
from .fetching import Fetching
from .grouping import Grouping
from .many import decoded, encoded
from .producing import Producing
from .room import Room
from .topics import Topics
from .wire import Malformed, Reader

_ANSWERS_MAX: Final = 64 * limits.MIB
"""Bytes of records in answers that clients have not taken yet; a host has half of them."""

Send = Callable[[bytes], Awaitable[None]]
Finish = Callable[[Send], Awaitable[None]]
log = logging.getLogger("lognode.kafka")


class KafkaDoor:
    """Serves the requests of all connections. `address` is that of a node, for the door's client;
    `node_id` and `brokers` as in `Describing`."""

    def __init__(
        self, *, address: str, node_id: int, brokers: Callable[[], Mapping[int, str]]
    ) -> None:
        self._cluster = Cluster((split_address(address, "advertise"),))
        self._topics = Topics(self._cluster)
        self._producing = Producing(self._cluster, self._topics)
        room = Room(_ANSWERS_MAX, _ANSWERS_MAX // 2)
        self._fetching = Fetching(self._cluster, self._topics, room)
        self._describing = Describing(self._cluster, self._topics, node_id=node_id, brokers=brokers)
        self._coordinator = Coordinator(
            self._cluster, self._topics, node_id=node_id, brokers=brokers
        )
        self._grouping = Grouping(self._coordinator)
        self._node_id = node_id

    async def begin(self, data: bytes, host: str) -> tuple[Finish, bool]:
        """Take a request of a client on this host. Return what finishes the request, and whether
        the next request may be taken before that. Raises Malformed."""
        head = head_of(Reader(data))
        if head.api == api.PRODUCE:
            return await self._produce(data, head, host), True
        if head.api in grouping.APIS:
            return _waits(head, await self._grouping.begin(data, head, host)), False
        return await self._other(data, head, host), False

    async def _produce(self, data: bytes, head: Head, host: str) -> Finish:
        request = await decoded(data, requests.produce)
        requests.check_no_repeats([(each.topic, each.partition) for each in request.batches])
        settled = await self._producing.begin(request, host)

        async def finish(send: Send) -> None:
            rows = await settled()
            if request.acks:
                body = await encoded(len(rows), answers.produce, rows, head.version)
                await send(_answer(head, body))
            elif any(row.error for row in rows):
                # The only way to tell a client that waits for no answer, as Kafka does.
                raise Malformed("an append without acknowledgement has failed")

        return finish

    async def _other(self, data: bytes, head: Head, host: str) -> Finish:
        version = head.version
        if head.api == api.FETCH:
            return self._fetch(await decoded(data, requests.fetch), head, host)
        if head.api == api.API_VERSIONS:
            return _sends(_answer(head, api.versions(version)))
        if head.api == api.METADATA:
            body = await self._metadata(await decoded(data, requests.metadata), version)
        elif head.api == api.LIST_OFFSETS:
            offsets = await self._fetching.offsets(await decoded(data, requests.list_offsets))
            body = await encoded(len(offsets), answers.list_offsets, offsets, version)
        elif head.api == api.INIT_PRODUCER_ID:
            transactional = await decoded(data, requests.init_producer_id)
            told = await self._producing.new_id(transactional=transactional)
            body = answers.init_producer_id(*told)
        elif head.api == api.CREATE_TOPICS:
            created = await self._describing.create(await decoded(data, requests.create_topics))
            body = answers.create_topics(created, version)
        elif head.api == api.DELETE_TOPICS:
            names, _ = await decoded(data, requests.delete_topics)
            body = answers.delete_topics(await self._describing.delete(names), version)
        else:
            wanted = await decoded(data, requests.describe_configs)
            found = await self._describing.settings(wanted)
            body = answers.describe_configs(found, version)
        return _sends(_answer(head, body))

    def _fetch(self, request: requests.Fetch, head: Head, host: str) -> Finish:
        async def finish(send: Send) -> None:
            if request.session_id:
                error = codes.FETCH_SESSION_ID_NOT_FOUND
                await send(_answer(head, answers.fetch((), head.version, error)))
                return

            async def send_rows(rows: Sequence[Fetched]) -> None:
                body = await encoded(len(rows), answers.fetch, rows, head.version)
                await send(_answer(head, body))

            await self._fetching.fetch(request, send_rows, host)

        return finish

    async def _metadata(self, names: list[str] | None, version: int) -> bytes:
        try:
            cluster = await self._describing.cluster_id()
            topics = await self._describing.topics(names)
        except LognodeError as error:
            log.info("metadata are not available", extra={"fields": {"error": str(error)}})
            cluster = ""
            topics = [Topic(name, code_of(error)) for name in names or ()]
        brokers = self._describing.brokers()
        count = len(topics) + sum(len(topic.partitions) for topic in topics)
        told = brokers, cluster, self._node_id, topics, version
        return await encoded(count, answers.metadata, *told)

    async def close(self) -> None:
        """Close the client; returns within about a second."""
        await self._coordinator.close()
        await self._topics.close()
        self._producing.close()
        await self._cluster.close()


def _answer(head: Head, body: bytes) -> bytes:
    """Return the answer with its length and the number of its request."""
    return (
        (len(body) + 4).to_bytes(4, "big") + head.correlation.to_bytes(4, "big", signed=True) + body
    )


def _sends(answer: bytes) -> Finish:
    async def finish(send: Send) -> None:
        await send(answer)

    return finish


def _waits(head: Head, answer: grouping.Answer) -> Finish:
    """Requests of groups may wait long, and hold no room for requests meanwhile."""

    async def finish(send: Send) -> None:
        await send(_answer(head, await answer()))

    return finish
