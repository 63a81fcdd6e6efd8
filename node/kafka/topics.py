"""The topics of the door: logs with Kafka partitions, each with its sender and its news.

A topic is made when a request names it and the log exists, so names that do not exist cost nothing.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from ...client.cluster import Cluster, LogRoutes
from ...client.protocol import log_names
from ...client.protocol.errors import InvalidArgument, LogNotFound
from ...client.sender import Sender
from . import codes
from .partition_news import PartitionNews
from .refused import Refused

GROUPS_LOG: Final = "_kafka_groups"
"""The log with the committed offsets of consumer groups. Kafka clients do not see it as a topic."""
_CLOSE_S = 1.0
_LAST_KEY: Final = b"\xff\xff"
"""A key in the last range of a log: the node then describes this range alone."""


class Topic:
    """A log with Kafka partitions."""

    def __init__(self, cluster: Cluster, routes: LogRoutes, partitions: int) -> None:
        self._cluster = cluster
        self.routes = routes
        self.log_id = routes.log_id
        self.partitions = partitions
        self.news = PartitionNews(cluster, routes)
        self._sender: Sender | None = None

    def check(self, partition: int) -> None:
        """Raise Refused for a partition that the topic does not have."""
        if not 0 <= partition < self.partitions:
            raise Refused(
                codes.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {self.routes.name!r} has {self.partitions} partitions, not {partition}",
            )

    async def sender(self, count: int, deadline: float) -> Sender:
        """Return the sender of the node's appends to this log, once it has room for `count` more
        records. Raises Timeout, Unavailable, LogNotFound."""
        if self._sender is None or self._sender.window.fatal is not None:
            self._sender = Sender(self._cluster, self.routes, raw=True)
        sender = self._sender
        await sender.routed(deadline)
        if not sender.window.has_room(count=count):
            await sender.window.room(deadline, count=count)
        return sender

    async def close(self) -> None:
        """End the requests that wait, and deliver what was taken for at most a second."""
        await self.news.close()
        if self._sender is not None:
            await self._sender.close(_CLOSE_S)


class Topics:
    """The topics that requests have named."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: dict[str, Topic] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> Collection[str]:
        """The names of the topics."""
        return self._topics.keys()

    async def known(self, name: str, deadline: float) -> Topic:
        """Return the topic. Raises LogNotFound, Unavailable, Timeout."""
        if name == GROUPS_LOG:
            raise LogNotFound(f"log {name!r} is not a topic", log=name)
        return await self._known(name, deadline)

    async def as_of_now(self, name: str, deadline: float) -> Topic:
        """Do what `known` does, with the newest metadata of this node: somebody else may have
        deleted the topic and created it again."""
        if name in self._topics:
            await self._cluster.refresh(name, deadline, key=_LAST_KEY)
        return await self.known(name, deadline)

    async def of_groups(self, deadline: float) -> Topic:
        """Return the log of consumer groups. Raises LogNotFound, Unavailable, Timeout."""
        return await self._known(GROUPS_LOG, deadline)

    async def _known(self, name: str, deadline: float) -> Topic:
        if name not in self._topics:
            try:
                log_names.check(name)
            except InvalidArgument as error:
                raise LogNotFound(f"no log has such a name: {error.message}", log=name) from None
            await self._cluster.refresh(name, deadline, key=b"")
        else:
            await self._cluster.routed(self._topics[name].routes, deadline)
        routes, topic = self._cluster.log(name), self._topics.get(name)
        if topic is not None and topic.log_id == routes.log_id:
            return topic
        self.forget(name)
        if routes.partitions is None:
            raise LogNotFound(f"log {name!r} has no Kafka partitions", log=name)
        found = self._topics[name] = Topic(self._cluster, routes, routes.partitions)
        return found

    def forget(self, name: str) -> None:
        """Forget a topic whose log is gone."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            task = asyncio.create_task(topic.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def gone(self, name: str) -> None:
        """Forget a topic and the routes of its log, of which a node said that it does not exist.
        Names that never were a topic leave nothing to forget."""
        if name in self._topics:
            self.forget(name)
            self._cluster.forget(name)

    async def close(self) -> None:
        """Close all topics; returns within about a second."""
        for name in list(self._topics):
            self.forget(name)
        await asyncio.gather(*self._closing, return_exceptions=True)
