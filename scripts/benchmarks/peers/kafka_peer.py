"""Kafka in KRaft mode: three brokers that are controllers too, a topic with three replicas."""

import asyncio
import base64
import contextlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lognode.client.bench.shape import Shape
from lognode.client.ports import free_ports

from .own_tool import OwnTool
from .system import Client, Expired, Members, Record, System, processes, said, wait_listening

KEYS = Path("kafka-keys") / "KeyedRecords.class"
"""The class that gives keys to the records of Kafka's own tool, in the cache."""
_TOPIC = "bench"
_PARTITIONS = 4
_HEAP = "-Xmx512m"
_TOOL_LINE = re.compile(r"^(\d+) records sent, .* ms max latency\.$")
"""A line of ProducerPerformance, which comes every 5 s."""
_TOPIC_SETTINGS = {
    "min.insync.replicas": "2",
    # Minutes of appends at full speed would fill the disk; removing a file costs next to nothing.
    "retention.bytes": str(1 << 30), "segment.bytes": str(512 << 20),
    "file.delete.delay.ms": "1000",
}  # fmt: skip


class Kafka(System):
    """Kafka with its defaults, with acks=all and two replicas in sync required.

    The last GiB of each partition is kept.
    """

    name: ClassVar[str] = "kafka"
    durability = "in the page cache of all in-sync replicas; the kernel writes back"
    batch = 1_000
    has_own_tool = True
    topic: Mapping[str, str] = {**_TOPIC_SETTINGS}

    def missing(self, cache: Path) -> str | None:
        if shutil.which("java") is None:
            return "no java on PATH"
        if not list((cache / "kafka").glob("kafka_2.13-*.jar")):
            return f"no jars in {cache}/kafka: run scripts/bench fetch --cache {cache}"
        if importlib.util.find_spec("confluent_kafka") is None:
            return "the Python package confluent-kafka is not installed"
        return None

    def version(self, cache: Path) -> str:
        (jar,) = (cache / "kafka").glob("kafka_2.13-*.jar")
        java = said("java", "-version")
        return f"Kafka {jar.stem.removeprefix('kafka_2.13-')} on {java}"

    def settings(self) -> str:
        topic = "".join(f"{name}={value}\n" for name, value in self.topic.items())
        return (
            _config("DIR", 1, 1, [2, 3, 4])
            + f"topic: {_PARTITIONS} partitions, replication factor 3\n{topic}"
            + f"producer: acks=all, linger.ms=5, enable.idempotence=true; JVM {_HEAP}\n"
        )

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        ports = free_ports(6)
        brokers, controllers = ports[:3], ports[3:]
        cluster = _cluster_id()
        java = _java(cache)
        commands = []
        for number, port in enumerate(brokers, 1):
            config = directory / f"{number}.properties"
            config.write_text(_config(str(directory), number, port, controllers))
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)],
                check=True, capture_output=True, cwd=directory,
            )  # fmt: skip
            commands.append([*java, "kafka.Kafka", str(config)])
        with processes(commands, directory) as started:
            wait_listening(brokers, started)
            addresses = [f"127.0.0.1:{port}" for port in brokers]
            yield Members(addresses, [process.pid for process in started])

    def client(self) -> Client:
        return _KafkaClient(self.topic)

    async def own_tool(self, addresses: Sequence[str], cache: Path, shape: Shape) -> OwnTool | None:
        client = _KafkaClient(self.topic)
        await client.open(addresses, shape)  # it creates the topic
        await client.close()
        keys = (cache / KEYS).exists()
        properties = [
            f"bootstrap.servers={','.join(addresses)}", "acks=all", "linger.ms=5",
            "batch.size=65536",
            *(["interceptor.classes=KeyedRecords", f"bench.keys={shape.keys}"] if keys else []),
        ]  # fmt: skip
        return OwnTool(
            f"own tool: ProducerPerformance, {'keys' if keys else 'no keys'}",
            [
                *_java(cache), "org.apache.kafka.tools.ProducerPerformance", "--topic", _TOPIC,
                "--num-records", str(1 << 40), "--record-size", str(shape.value_bytes),
                "--throughput", "-1", "--producer-props", *properties,
            ],
            _TOOL_LINE,
        )  # fmt: skip


class KafkaSynced(Kafka):
    """Kafka whose replicas all sync before a record counts as written."""

    name: ClassVar[str] = "kafka-fsync"
    durability = "fsync on all in-sync replicas"
    topic: Mapping[str, str] = {**_TOPIC_SETTINGS, "flush.messages": "1"}


def _cluster_id() -> str:
    """Return an id as Kafka makes it; with a `-` in front, its own tool would take the id for an
    option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def _java(cache: Path) -> list[str]:
    places = f"{(cache / 'kafka').resolve()}/*", str((cache / KEYS).resolve().parent)
    return ["java", _HEAP, "-cp", os.pathsep.join(places)]


def _config(directory: str, number: int, port: int, controllers: Sequence[int]) -> str:
    voters = ",".join(f"{n}@127.0.0.1:{at}" for n, at in enumerate(controllers, 1))
    return (
        "process.roles=broker,controller\n"
        f"node.id={number}\n"
        f"listeners=BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[number - 1]}\n"
        "inter.broker.listener.name=BROKER\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"controller.quorum.voters={voters}\n"
        f"log.dirs={directory}/k{number}\n"
        "offsets.topic.replication.factor=3\n"
        "auto.create.topics.enable=false\n"
        "log.retention.check.interval.ms=10000\n"
    )


class _KafkaClient(Client):
    """librdkafka, driven by a thread that polls its callbacks."""

    def __init__(self, topic: Mapping[str, str]) -> None:
        self._topic = topic
        self._over = threading.Event()
        self._consumer: Any = None
        """The consumer of all reads: with one for each, the end of a consumer waited for ever."""

    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        from confluent_kafka import Producer

        admin_module: Any = importlib.import_module("confluent_kafka.admin")
        self._servers = ",".join(addresses)
        self._loop = asyncio.get_running_loop()
        admin = admin_module.AdminClient({"bootstrap.servers": self._servers})
        for attempt in range(60):
            topic = admin_module.NewTopic(
                _TOPIC, num_partitions=_PARTITIONS, replication_factor=3, config=dict(self._topic)
            )
            try:
                await asyncio.to_thread(admin.create_topics([topic])[_TOPIC].result, 30)
                break
            except Exception:  # not all brokers are registered yet
                if attempt == 59:
                    raise
                await asyncio.sleep(0.5)
        self._producer = Producer({
            "bootstrap.servers": self._servers, "acks": "all", "linger.ms": 5,
            "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000,
        })  # fmt: skip
        self._polling = threading.Thread(target=self._poll, daemon=True)
        self._polling.start()

    async def append(self, records: Sequence[Record]) -> Any:
        done: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        left = len(records)
        first: tuple[int, int] = (0, 0)

        def delivered(error: Any, message: Any) -> None:
            nonlocal left, first
            if error is not None:
                self._loop.call_soon_threadsafe(_fail, done, RuntimeError(str(error)))
                return
            left -= 1
            if left == 0:
                self._loop.call_soon_threadsafe(_settle, done, first)

        def delivered_first(error: Any, message: Any) -> None:
            nonlocal first
            if error is None:
                first = (message.partition(), message.offset())
            delivered(error, message)

        produce = self._producer.produce
        (key, value), *rest = records
        produce(_TOPIC, value, key, on_delivery=delivered_first)
        for key, value in rest:
            produce(_TOPIC, value, key, on_delivery=delivered)
        return await done

    async def read(self, record: Record, found_by: Any) -> bytes | None:
        return await asyncio.to_thread(self._read, *found_by)

    def _read(self, partition: int, offset: int) -> bytes | None:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer({
                "bootstrap.servers": self._servers, "group.id": "bench",
                "enable.auto.commit": False, "auto.offset.reset": "error",
            })  # fmt: skip
        consumer = self._consumer
        place = TopicPartition(_TOPIC, partition, offset)
        consumer.assign([place])
        low, _ = consumer.get_watermark_offsets(place, 30)
        if offset < low:
            raise Expired
        message = consumer.poll(30)
        if message is not None and message.error() is not None:
            if message.error().code() == KafkaError._AUTO_OFFSET_RESET:  # removed meanwhile
                raise Expired
            raise RuntimeError(str(message.error()))
        found: bytes | None = None if message is None else message.value()
        return found

    async def close(self) -> None:
        self._over.set()
        await asyncio.to_thread(self._polling.join)

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(0.1)


def _settle(done: "asyncio.Future[tuple[int, int]]", first: tuple[int, int]) -> None:
    if not done.done():
        done.set_result(first)


def _fail(done: "asyncio.Future[tuple[int, int]]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
