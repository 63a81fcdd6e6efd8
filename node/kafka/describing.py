"""Describe, create and delete topics.

Every node serves every partition, as a client of the cluster. Metadata name the leader of the
partition's range as its leader all the same: there an append and a fetch need no further hop. A
client that asks another node, because the lead has moved, is served there, and learns of the new
leader with its next metadata.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from ...client.cluster import Cluster, described
from ...client.protocol import Operation, key_partitions, limits, log_names
from ...client.protocol.address import split_address
from ...client.protocol.cleanups import CLEANUPS
from ...client.protocol.cluster import CREATE_LOG, DELETE_LOG
from ...client.protocol.errors import InvalidArgument, LognodeError, LogNotFound, Unsupported
from ...partitions import policy
from ..runtime.slices import in_slices
from . import codes
from .answers import Broker, Done, Partition, Setting, Settings
from .answers import Topic as TopicRow
from .codes import code_of
from .requests import CreateTopics, NewTopic, Resource
from .topics import GROUPS_LOG, Topics

_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 16
"""Topics that are looked up at the same time."""
_DEFAULT: Final = -1
TOPIC: Final = 2
_BROKER: Final = 4
_UNLIMITED: Final = "-1"
_REPLICAS: Final = 3
CLEANUP: Final = "cleanup.policy"
RETENTION: Final = "retention.ms"
_NAME: Final = re.compile("[a-zA-Z0-9._-]{1,249}")
"""The names that Kafka allows, but for `.` and `..`; a log of another name may exist, though."""
_TIME: Final = re.compile("-1|[0-9]{1,19}")
"""A retention in milliseconds, or -1 for none."""
_IGNORED: Final = frozenset({
    "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
    "min.insync.replicas", "preallocate", "retention.bytes", "segment.bytes",
    "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
})  # fmt: skip
"""Settings of Kafka that a new topic may give, and that change nothing here."""

Body = dict[str, Any]
Authorise = Callable[[Operation, Body], object]
"""Raises Unauthorized for a request to the cluster that the asker may not make."""


class Describing:
    """Serves requests about topics. `brokers` returns the address for Kafka clients of each node
    that serves them; `node_id` is that of this node. A topic that does not exist gets
    `auto_partitions` partitions when a client names the topic; 0: no topic is created so."""

    def __init__(
        self, cluster: Cluster, topics: Topics, *, node_id: int,
        brokers: Callable[[], Mapping[int, str]], auto_partitions: int,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._topics = topics
        self._brokers = brokers
        self.node_id = node_id
        self.auto_partitions = auto_partitions

    def brokers(self) -> list[Broker]:
        """Return the nodes that serve Kafka clients."""
        found = []
        for node, address in sorted(self._brokers().items()):
            host, port = split_address(address, "kafka")
            found.append(Broker(node, host, port))
        return found

    async def cluster_id(self) -> str:
        """Return the id of the cluster. Raises Unavailable, Timeout."""
        if self._cluster.pool.cluster is None:
            await self._cluster.overview(self._deadline())
        return self._cluster.pool.cluster or ""

    async def topics(self, names: Sequence[str] | None) -> list[TopicRow]:
        """Return topics by name; None: all topics. Raises Unavailable, Timeout."""
        if names is None:
            overview = await self._cluster.overview(self._deadline())
            names = sorted(
                log["name"]
                for log in overview["logs"]
                if log["policy"].get("kafka_partitions") and log["name"] != GROUPS_LOG
            )
        brokers = self._brokers().keys()
        found: list[TopicRow] = []
        wanted = list(dict.fromkeys(names))
        for at in range(0, len(wanted), _AT_ONCE):
            some = wanted[at : at + _AT_ONCE]
            found += await asyncio.gather(*(self._topic(name, brokers) for name in some))
        return found

    async def _topic(self, name: str, brokers: Collection[int]) -> TopicRow:
        try:
            log = await self.described(name)
        except InvalidArgument:
            return TopicRow(name, codes.INVALID_TOPIC)
        except LognodeError as error:
            absent = isinstance(error, LogNotFound) and not _is_topic_name(name)
            return TopicRow(name, codes.INVALID_TOPIC if absent else code_of(error))
        return TopicRow(name, codes.NONE, await in_slices(self._partitions(log, brokers)))

    def _partitions(self, log: Body, brokers: Collection[int]) -> Iterator[Partition]:
        """Yield the partitions of a log in order; those of a range share their list of nodes."""
        count = log["policy"]["kafka_partitions"]
        for known in log["ranges"]:
            members = [node for node in known["members"] if node in brokers]
            leader = known["leader"]
            if leader not in members:
                leader = (members or [self.node_id])[0]
            nodes = members or [leader]
            first = key_partitions.first_of(known["start"])
            for partition in range(first, key_partitions.end_of(known["end"], count)):
                yield Partition(partition, leader, nodes)

    async def described(self, name: str) -> Body:
        """Return a log with partitions, with its ranges. Raises InvalidArgument, LogNotFound,
        Unavailable, Timeout."""
        log_names.check(name)
        if name == GROUPS_LOG:
            raise LogNotFound(f"log {name!r} is not a topic", log=name)
        log = described(await self._cluster.refresh(name, self._deadline()), name)
        if not log["policy"].get("kafka_partitions") or not log["ranges"]:
            raise LogNotFound(f"log {name!r} has no Kafka partitions", log=name)
        return log

    # Changes.

    async def create(self, request: CreateTopics, authorise: Authorise) -> list[Done]:
        """Create topics, one after another, but none that the request names twice."""
        counts = Counter(topic.name for topic in request.topics)
        told = "the request names this topic {} times; name each topic once"
        repeated = [
            Done(name, codes.INVALID_REQUEST, told.format(count))
            for name, count in counts.items() if count > 1
        ]  # fmt: skip
        named_once = (topic for topic in request.topics if counts[topic.name] == 1)
        created = [await self._create(topic, request, authorise) for topic in named_once]
        return repeated + created

    async def _create(self, topic: NewTopic, request: CreateTopics, authorise: Authorise) -> Done:
        refused = _refusal(topic)
        if refused is not None:
            return refused
        try:
            log_names.check_new(topic.name)
        except InvalidArgument as error:
            return Done(topic.name, codes.INVALID_TOPIC, error.message)
        deadline = self._deadline()
        try:
            body = _new_log(topic, ranges=len(self._brokers()) or 1)
            if request.validate_only:
                authorise(CREATE_LOG, body)
                for name in (*policy.ALTERABLE, "replicas"):
                    policy.check_rule(name, body.get(name))
                policy.of_request(body)
                return await self._validated(topic)
            await self._cluster.call_any(CREATE_LOG, body, deadline=deadline)
        except LognodeError as error:
            is_unfit = isinstance(error, (InvalidArgument, Unsupported))
            code = codes.INVALID_CONFIG if is_unfit else code_of(error)
            return Done(topic.name, code, error.message)
        return Done(topic.name)

    async def _validated(self, topic: NewTopic) -> Done:
        try:
            await self._cluster.refresh(topic.name, self._deadline(), key=b"")
        except LogNotFound:
            return Done(topic.name)
        return Done(topic.name, codes.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")

    async def delete(self, names: Sequence[str]) -> list[Done]:
        """Delete topics, one after another."""
        return [await self._delete(name) for name in names]

    async def _delete(self, name: str) -> Done:
        try:
            log = await self.described(name)
            body = {"name": name, "id": log["id"]}
            await self._cluster.call_any(DELETE_LOG, body, deadline=self._deadline())
        except LogNotFound as error:
            self._topics.gone(name)
            # An attempt whose answer was lost may have deleted the log.
            gone = error.outcome == "unknown"
            return Done(name, codes.NONE if gone else codes.UNKNOWN_TOPIC_OR_PARTITION)
        except InvalidArgument:
            return Done(name, codes.INVALID_TOPIC)
        except LognodeError as error:
            return Done(name, code_of(error))
        self._topics.gone(name)
        return Done(name)

    # Settings.

    async def settings(self, resources: Sequence[Resource]) -> list[Settings]:
        """Return the settings of topics and of this node."""
        return [await self._settings(each) for each in resources]

    async def _settings(self, asked: Resource) -> Settings:
        if asked.kind == _BROKER:
            found = _settings_of_node(self.auto_partitions)
        elif asked.kind == TOPIC:
            try:
                found = _settings_of((await self.described(asked.name))["policy"])
            except InvalidArgument as error:
                return Settings(asked.kind, asked.name, codes.INVALID_TOPIC, error.message)
            except LognodeError as error:
                return Settings(asked.kind, asked.name, code_of(error), error.message)
        else:
            told = f"resources of type {asked.kind} have no settings; give 2 or 4"
            return Settings(asked.kind, asked.name, codes.INVALID_REQUEST, told)
        shown = [each for each in found if asked.names is None or each.name in asked.names]
        return Settings(asked.kind, asked.name, settings=shown)

    def _deadline(self) -> float:
        return self._cluster.now() + _TIMEOUT_S


def _is_topic_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def _refusal(topic: NewTopic) -> Done | None:
    """Return why no log can be the topic, or None."""
    if topic.name == GROUPS_LOG:
        told = f"{GROUPS_LOG} is the log of consumer groups; give another name"
        return Done(topic.name, codes.INVALID_TOPIC, told)
    if not _is_topic_name(topic.name):
        told = f"the topic is named {topic.name!r:.100}; give 1 to 249 letters, digits and `. _ -`"
        return Done(topic.name, codes.INVALID_TOPIC, told)
    if topic.assigned:
        told = "the cluster places partitions by itself; give counts in place of assignments"
        return Done(topic.name, codes.INVALID_REPLICA_ASSIGNMENT, told)
    if topic.partitions != _DEFAULT and not 1 <= topic.partitions <= limits.kafka_partitions_max:
        told = f"{topic.partitions} partitions; 1 to {limits.kafka_partitions_max} are allowed"
        return Done(topic.name, codes.INVALID_PARTITIONS, told)
    if topic.replicas != _DEFAULT and not 1 <= topic.replicas <= limits.replicas_max:
        told = f"{topic.replicas} replicas; 1 to {limits.replicas_max} are allowed"
        return Done(topic.name, codes.INVALID_REPLICATION_FACTOR, told)
    for name, value in topic.configs.items():
        wrong = wrong_setting(name, value)
        if wrong is not None:
            return Done(topic.name, codes.INVALID_CONFIG, wrong)
    return None


def wrong_setting(name: str, value: str | None) -> str | None:
    """Return why a topic cannot have this value of a setting, or None. The value None is the
    default."""
    if name in _IGNORED or (name == CLEANUP and (value is None or cleanup_of(value) is not None)):
        return None
    if name == RETENTION and (value is None or _TIME.fullmatch(value)):
        return None
    return f"{name:.100} is {value!r:.100}, which lognode does not know. Leave the setting out"


def cleanup_of(value: str) -> str | None:
    """Return the rule that a policy of Kafka gives, a list; None: there is no such policy."""
    named = ",".join(sorted(elements(value)))
    return named if named in CLEANUPS else None


def elements(value: str) -> set[str]:
    """Return the elements of a setting that is a list."""
    return {each.strip() for each in value.split(",")} - {""}


def retention_ms(value: str | None) -> int | None:
    """Return the retention that a setting gives; None: without end."""
    return None if value in (None, _UNLIMITED) else int(value)


def _new_log(topic: NewTopic, ranges: int) -> Body:
    """Return the request for the log of a topic, with ranges for so many nodes."""
    partitions = 1 if topic.partitions == _DEFAULT else topic.partitions
    return {
        "name": topic.name,
        "kafka_partitions": partitions,
        "ranges": min(partitions, ranges),
        "replicas": _REPLICAS if topic.replicas == _DEFAULT else topic.replicas,
        "cleanup": cleanup_of(topic.configs.get(CLEANUP) or "delete"),
        "retention_ms": retention_ms(topic.configs.get(RETENTION)),
        "creation": os.urandom(limits.creation_bytes),
    }


def _settings_of(policy: Mapping[str, Any]) -> list[Setting]:
    """Return the settings of a topic. Timestamps are those of the log, whatever a producer says."""
    retention, replicas = policy.get("retention_ms"), policy["replicas"]
    return [
        Setting(CLEANUP, policy["cleanup"], is_default=False),
        Setting(RETENTION, _UNLIMITED if retention is None else str(retention), is_default=False),
        Setting("message.timestamp.type", "LogAppendTime", is_default=True),
        Setting("max.message.bytes", str(limits.batch_bytes_max), is_default=True),
        Setting("min.insync.replicas", str(replicas // 2 + 1), is_default=True),
    ]


def _settings_of_node(auto_partitions: int) -> list[Setting]:
    creates = "true" if auto_partitions else "false"
    return [
        Setting("auto.create.topics.enable", creates, is_default=not auto_partitions),
        Setting("default.replication.factor", str(_REPLICAS), is_default=True),
        Setting("log.message.timestamp.type", "LogAppendTime", is_default=True),
        Setting("message.max.bytes", str(limits.batch_bytes_max), is_default=True),
        Setting("num.partitions", str(auto_partitions or 1), is_default=auto_partitions <= 1),
    ]
