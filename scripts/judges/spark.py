"""Spark's source and sink for Kafka: a batch, and a stream that is killed and goes on.

The program writes a thousand records with the sink, copies the records with a stream to a second
topic in batches of fifty, loses the driver by SIGKILL in the middle, starts the stream again, and
reads the second topic as a batch. Spark's sink delivers at least once, so repeated records are
allowed, and missing records are not.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .brokers import maven, run
from .suites import Outcome, Suite

VERSION: Final = "4.2.0"
_RECORDS: Final = 1_000
_LIMIT_S: Final = 600
_JOB: Final = Path(__file__).with_name("spark_job.py")


def _prepare(work: Path, _: Path | None) -> None:
    if not (work / "maven" / "jars").exists():
        maven(work, f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}")


def _command(work: Path, addresses: str, what: str) -> list[str]:
    names = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    jars = [jar for jar in (work / "maven" / "jars").iterdir() if jar.name.startswith(names)]
    told = ",".join(map(str, jars))
    return [sys.executable, str(_JOB), addresses, told, str(work / "checkpoint"), what]


def _until(process: "subprocess.Popen[bytes]", holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


def _stream(work: Path, addresses: str, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen(
            _command(work, addresses, "stream"), stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip


def _batches(log: Path) -> int:
    """Return how many batches a stream has finished."""
    lines = log.read_text(errors="replace").splitlines()
    return max((int(line.split()[1]) for line in lines if line.startswith("BATCH ")), default=0)


def _run(work: Path, addresses: str, _: Mapping[str, str]) -> Outcome:
    outcome = Outcome([], {}, [])

    def note(name: str, told: str, log: Path) -> None:
        if told:
            outcome.failed[name] = f"{told}; see {log}"
        else:
            outcome.passed.append(name)

    logs = [work / f"spark-{name}.log" for name in ("write", "first", "second", "read")]
    done = run(_command(work, addresses, "write"), work, log=logs[0], SPARK_LOCAL_IP="127.0.0.1")
    note("sink, batch", f"exit code {done.returncode}" if done.returncode else "", logs[0])
    first = _stream(work, addresses, logs[1])
    reached = _until(first, lambda: _batches(logs[1]) >= 3)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    note("source and sink, stream", "" if reached else "no batches", logs[1])
    second = _stream(work, addresses, logs[2])
    ended = _until(second, lambda: "DONE" in logs[2].read_text(errors="replace"))
    os.killpg(second.pid, signal.SIGKILL)
    second.wait()
    note("the stream goes on", "" if ended else "the stream did not reach the end", logs[2])
    run(_command(work, addresses, "read"), work, log=logs[3], SPARK_LOCAL_IP="127.0.0.1")
    found = [
        line.split() for line in logs[3].read_text(errors="replace").splitlines()
        if line.startswith("READ ")
    ]  # fmt: skip
    told = "" if found and int(found[0][2]) == _RECORDS else f"the batch found {found}"
    note("source, batch: each record is there", told, logs[3])
    return outcome


SUITE: Final = Suite(VERSION, _prepare, _run, {})
