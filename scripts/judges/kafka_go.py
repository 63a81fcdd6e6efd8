"""kafka-go's tests of its client, from the Go module proxy.

The tests have the address of a broker in their text, which is replaced before the run.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .brokers import must
from .go_suites import copied, judged
from .suites import Outcome, Suite

VERSION: Final = "0.4.51"
_LIMIT_S: Final = 900
_ADDRESS: Final = "localhost:9092"

LEFT_OUT: Final[Mapping[str, str]] = {}


def _prepare(work: Path, source: Path | None) -> None:
    copy = copied(work, "github.com/segmentio/kafka-go", VERSION, source)
    if copy is not None:
        must(["go", "mod", "tidy"], copy, GOPATH=str(work / "go"))


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    host, _, port = addresses.partition(":")
    folder = work / "with-address"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work / "kafka-go", folder)
    for test in folder.glob("*_test.go"):
        text = test.read_text()
        for old, new in (
            (f'"{_ADDRESS}"', f'"{addresses}"'),
            ('"localhost"', f'"{host}"'),
            ("Port: 9092", f"Port: {port}"),
            ("Port != 9092", f"Port != {port}"),
        ):
            text = text.replace(old, new)
        test.write_text(text)
    # Version 2.1: the tests choose what they expect by it. `nettest` fails with Kafka, too.
    return judged(
        work, folder, left_out, limit_s=_LIMIT_S, KAFKA_VERSION="2.1.0", KAFKA_SKIP_NETTEST="1"
    )


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT, partitions=1, nodes=1)
