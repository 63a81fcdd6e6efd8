"""librdkafka's own tests, built from Debian's source package.

The numbered tests run in processes of their own, three at a time, in full. They take the brokers
for Kafka 2.4, with which the tests of cooperative groups begin. Tests that need no broker, and
tests with known issues of the suite, are not run.
"""

import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from .brokers import must, run
from .suites import Outcome, Suite

VERSION: Final = "2.0.2"
_LIMIT_S: Final = 400
_AT_ONCE: Final = 3
_SOURCES: Final = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
_ROW: Final = re.compile(r"\| *(?:\x1b\[\d+m)? *(\d{4}_\w+) *\| *(PASSED|FAILED|SKIPPED)")

_DENSE: Final = "expects that the offsets of a partition begin at 0 and have no gaps"
_TIMES: Final = "expects the timestamp that the producer gave"
_PARTITIONS: Final = "needs more partitions for a topic; a topic keeps their number"
_SCRIPTS: Final = "needs the scripts of a Kafka installation"
_TRANSACTIONS: Final = "needs transactions"
LEFT_OUT: Final = {
    "0003": "sends a key of 99,000 bytes; a key has at most 478",
    "0015": "waits 7 ms for a seek where 7 s are meant, an error of librdkafka 2.0.2",
    "0026": _DENSE,
    "0029": _DENSE,
    "0044": _PARTITIONS,
    "0052": _SCRIPTS,
    "0054": _DENSE,
    "0055": _TRANSACTIONS,
    "0059": _TIMES,
    "0061": _DENSE,
    "0069": _PARTITIONS,
    "0077": _SCRIPTS,
    "0081": "gives topics with assignments of replicas, and more partitions for a topic",
    "0085": "sends 261 headers in a record; a record has at most 32 names",
    "0092": "changes a topic to a format of records before Kafka 0.11",
    "0101": "needs racks, and fetches from followers",
    "0102": "needs static members",
    "0103": _TRANSACTIONS,
    "0109": _SCRIPTS,
    "0112": _PARTITIONS,
    "0113": "librdkafka 2.0.2 does not end after a part of the test in which a topic is deleted",
    "0115": _SCRIPTS,
    "0119": _SCRIPTS,
    "0129": _TRANSACTIONS,
    "0137": _DENSE,
}


def _prepare(work: Path, source: Path | None) -> None:
    built = work / "librdkafka"
    if (built / "tests" / "test-runner").exists():
        return
    shutil.rmtree(built, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, built)
    else:
        _fetch(work, built)
    must(["./configure", "--disable-debug-symbols"], built)
    must(["make", f"-j{os.cpu_count() or 1}", "libs"], built)
    must(["make", f"-j{os.cpu_count() or 1}", "-C", "tests", "build"], built)


def _fetch(work: Path, built: Path) -> None:
    """Get the sources with a list of sources of their own, which leaves those of the machine."""
    lists, sources = work / "lists", work / "debian.sources"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources.write_text(_SOURCES)
    apt = [
        "apt-get", "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/none",
        "-o", f"Dir::State::lists={lists}",
    ]  # fmt: skip
    must([*apt, "update"], work)
    must([*apt, "source", "--download-only", "librdkafka"], work)
    (packed,) = work.glob("librdkafka_*.orig.tar.gz")
    with tarfile.open(packed) as archive:
        top = archive.getnames()[0].split("/")[0]
        archive.extractall(work, filter="data")
    (work / top).rename(built)


def _numbers(tests: Path) -> list[str]:
    found = re.findall(r"_TEST\((0\d{3})_", (tests / "test.c").read_text())
    return sorted(set(found))


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    tests = work / "librdkafka" / "tests"
    settings = {"metadata.broker.list": addresses, "test.timeout.multiplier": "3"}
    (tests / "test.conf").write_text("".join(f"{key}={told}\n" for key, told in settings.items()))
    outcome = Outcome([], {}, [])

    def log_of(number: str) -> Path:
        return work / f"librdkafka-{number}.log"

    def code_of(number: str) -> int:
        command = ["./test-runner", "-p1", "-L", "-K", "-V", "2.4.0"]
        return run(
            command, tests, log=log_of(number), limit_s=_LIMIT_S, TESTS=number,
            LD_LIBRARY_PATH="../src:../src-cpp",
        ).returncode  # fmt: skip

    numbers = [number for number in _numbers(tests) if number not in left_out]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        codes = list(threads.map(code_of, numbers))
    for number, code in zip(numbers, codes, strict=True):
        if code:
            outcome.failed[number] = f"exit code {code}, see {log_of(number)}"
            continue
        for name, told in _ROW.findall(log_of(number).read_text(errors="replace")):
            (outcome.passed if told == "PASSED" else outcome.skipped).append(name)
    return outcome


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT)
