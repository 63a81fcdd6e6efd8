"""Kafka's own programs for Java: console, benchmarks, groups, Connect and Streams.

Connect runs distributed, with the file connectors: the lines of a file go through a topic into
another file, also after the worker was killed and started again. Streams counts words, all and
within windows, without exactly-once.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from lognode import testing

from .brokers import maven, run
from .suites import Outcome, Suite

VERSION: Final = "4.3.1"
_ARTIFACTS: Final = ("kafka-tools", "connect-runtime", "connect-file", "kafka-streams")
_LIMIT_S: Final = 300
_WORDS: Final = Path(__file__).with_name("WordCount.java")
_SENTENCES: Final = 200
_CONNECTORS: Final = "org.apache.kafka.connect.file.FileStream"


def _prepare(work: Path, _: Path | None) -> None:
    if not (work / "maven" / "jars").exists():
        kafka = [f"org.apache.kafka:{name}:{VERSION}" for name in _ARTIFACTS]
        maven(work, *kafka, "org.slf4j:slf4j-simple:1.7.36")


class _Programs:
    """Runs programs of Kafka against brokers."""

    def __init__(self, work: Path, addresses: str) -> None:
        self.work = work
        self.addresses = addresses

    def command(self, *told: object) -> list[str]:
        return ["java", "-Xmx512m", "-cp", str(self.work / "maven" / "jars" / "*"), *map(str, told)]

    def tool(self, name: str, *told: object, given: str | None = None) -> str:
        """Run a tool; return what it prints. Raises AssertionError when the tool fails."""
        command = self.command(f"org.apache.kafka.tools.{name}", *told)
        done = run(command, self.work, given=given, limit_s=_LIMIT_S)
        assert done.returncode == 0, f"{name}: {done.stdout[-500:]} {done.stderr[-500:]}"
        return done.stdout

    @contextlib.contextmanager
    def background(self, log: Path, *told: object) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program until the end of the block, which ends the program by SIGKILL."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                self.command(*told), stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, cwd=self.work,
            )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _console(programs: _Programs) -> None:
    at = ("--bootstrap-server", programs.addresses)
    programs.tool("TopicCommand", *at, "--create", "--topic", "console", "--partitions", 3)
    lines = [f"{n}" for n in range(100)]
    programs.tool("ConsoleProducer", *at, "--topic", "console", given="\n".join(lines) + "\n")
    found = programs.tool(
        "consumer.ConsoleConsumer", *at, "--topic", "console", "--group", "console",
        "--from-beginning", "--max-messages", 100,
    )  # fmt: skip
    assert sorted(found.split()) == sorted(lines), found
    group = programs.tool(
        "consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", "console"
    )
    rows = [line.split() for line in group.splitlines() if line.startswith("console")]
    assert len(rows) == 3, group
    assert all(row[5] == "0" for row in rows), group


def _benchmarks(programs: _Programs) -> None:
    at = ("--bootstrap-server", programs.addresses)
    told = programs.tool(
        "ProducerPerformance", "--topic", "load", "--num-records", 20_000, "--record-size", 200,
        "--throughput", -1, *at,
    )  # fmt: skip
    assert "20000 records sent" in told, told
    told = programs.tool("ConsumerPerformance", *at, "--topic", "load", "--num-records", 20_000)
    assert "20000" in told.splitlines()[-1], told


def _streams(programs: _Programs) -> None:
    at = ("--bootstrap-server", programs.addresses)
    given = "".join(f"the quick fox {n % 10}\n" for n in range(_SENTENCES))
    programs.tool("ConsoleProducer", *at, "--topic", "sentences", given=given)
    log = programs.work / "streams.log"
    state = programs.work / "streams"
    shutil.rmtree(state, ignore_errors=True)  # of an earlier run
    with programs.background(log, _WORDS, programs.addresses, state):

        def counts(topic: str) -> bool:
            found: dict[str, str] = {}
            told = programs.tool(
                "consumer.ConsoleConsumer", *at, "--topic", topic, "--from-beginning",
                "--timeout-ms", 5_000, "--formatter-property", "print.key=true",
            )  # fmt: skip
            for line in told.splitlines():
                word, _, count = line.partition("\t")
                found[word] = count
            each = {word: str(_SENTENCES) for word in ("the", "quick", "fox")}
            return found == each | {f"{n}": str(_SENTENCES // 10) for n in range(10)}

        for topic in ("counts", "windowed"):
            testing.eventually(
                partial(counts, topic), timeout_s=_LIMIT_S, what=f"every word is in {topic}"
            )


def _rest(url: str, body: Any = None) -> Any:
    """Ask a worker of Connect. Raises OSError while the worker does not serve."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def _serves(url: str) -> bool:
    try:
        return isinstance(_rest(url), list)
    except (OSError, ValueError):
        return False


def _connector(name: str, **settings: str) -> dict[str, Any]:
    return {"name": name, "config": {"tasks.max": "1", **settings}}


def _connect(programs: _Programs) -> None:
    work = programs.work
    (port,) = testing.free_ports(1)
    come, out, log = work / "lines.txt", work / "copied.txt", work / "connect.log"
    out.unlink(missing_ok=True)  # of an earlier run
    settings = work / "connect.properties"
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings.write_text(
        f"bootstrap.servers={programs.addresses}\ngroup.id=connect\n"
        f"key.converter={converter}\nvalue.converter={converter}\n"
        "offset.storage.topic=connect-offsets\nconfig.storage.topic=connect-configs\n"
        "status.storage.topic=connect-status\noffset.flush.interval.ms=500\n"
        f"listeners=http://127.0.0.1:{port}\n"
    )
    url = f"http://127.0.0.1:{port}/connectors"
    worker = ("org.apache.kafka.connect.cli.ConnectDistributed", settings)

    def copied(lines: Sequence[str]) -> Callable[[], bool]:
        return lambda: out.exists() and set(out.read_text().split()) == set(lines)

    come.write_text("one\ntwo\nthree\n")
    with programs.background(log, *worker):
        testing.eventually(lambda: _serves(url), timeout_s=_LIMIT_S, what="Connect serves")
        source = {"connector.class": f"{_CONNECTORS}SourceConnector", "file": str(come)}
        _rest(url, _connector("from-file", topic="lines", **source))
        sink = {"connector.class": f"{_CONNECTORS}SinkConnector", "file": str(out)}
        _rest(url, _connector("to-file", topics="lines", **sink))
        testing.eventually(
            copied(["one", "two", "three"]), timeout_s=_LIMIT_S, what="the lines are copied"
        )
    with come.open("a") as file:
        file.write("four\n")
    with programs.background(log, *worker):
        testing.eventually(
            copied(["one", "two", "three", "four"]), timeout_s=_LIMIT_S,
            what="the connectors go on after a restart",
        )  # fmt: skip


_PARTS: Final = {
    "console": _console, "benchmarks": _benchmarks, "streams": _streams, "connect": _connect
}  # fmt: skip


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    outcome = Outcome([], {}, [])
    programs = _Programs(work, addresses)
    for name, part in _PARTS.items():
        if name in left_out:
            continue
        began = time.monotonic()
        try:
            part(programs)
        except (AssertionError, OSError) as error:
            outcome.failed[name] = f"{error}, after {time.monotonic() - began:.0f} s"
        else:
            outcome.passed.append(name)
    return outcome


SUITE: Final = Suite(VERSION, _prepare, _run, {})
