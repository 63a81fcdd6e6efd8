"""franz-go's tests of its client, from the Go module proxy.

One check of the test of groups is changed before the run: offsets of a partition must rise, not
begin at 0 and follow each other without a gap.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .brokers import must, run
from .suites import Outcome, Suite

VERSION: Final = "1.22.3"
_LIMIT_S: Final = 900
_RECORDS: Final = "20000"
_ROW: Final = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+)", re.MULTILINE)
_CHANGES: Final = (
    ("if ok && r.Offset != current+1 {", "if ok && r.Offset <= current {"),
    ("} else if !ok && r.Offset != 0 {", "} else if !ok && r.Offset < 0 {"),
)

LEFT_OUT: Final = {
    "TestAddRemovePartitions": "expects that the first record has offset 0",
    "TestConsumeMaxDecompressBatchBytes": "sends a batch of 3 MiB; a batch has at most 1 MiB",
    "TestConsumeRegex": "expects the topic __consumer_offsets",
    "TestIssueFetchLargerThanBrokerMaxReadBytes": "sends a record of 5 MiB; at most 1 MiB",
    "TestPooling": "expects that fetched batches are compressed as the producer sent them",
    "TestTxnEtl": "needs transactions",
}


def _prepare(work: Path, source: Path | None) -> None:
    copy = work / "franz-go"
    if copy.exists():
        return
    if source is None:
        home = work / "go"
        module = f"github.com/twmb/franz-go@v{VERSION}"
        must(["go", "mod", "download", "-modcacherw", module], work, GOPATH=str(home))
        source = home / "pkg" / "mod" / "github.com" / "twmb" / f"franz-go@v{VERSION}"
    shutil.copytree(source, copy)
    test = copy / "pkg" / "kgo" / "group_test.go"
    text = test.read_text()
    for old, new in _CHANGES:
        if text.count(old) != 1:
            raise SystemExit(f"{test} has no single line {old!r}; give franz-go {VERSION}")
        text = text.replace(old, new)
    test.write_text(text)


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    copy, log = work / "franz-go", work / "franz-go.log"
    binary = work / "kgo.test"
    go = {"GOPATH": str(work / "go"), "GOFLAGS": "-mod=mod"}
    must(["go", "test", "-c", "-o", binary, "./pkg/kgo"], copy, **go)
    skipped = "|".join(f"^{name}$" for name in left_out) or "^$"
    done = run(
        [binary, "-test.v", "-test.skip", skipped, "-test.timeout", f"{_LIMIT_S}s"],
        copy / "pkg" / "kgo", log=log, limit_s=_LIMIT_S + 30, KGO_SEEDS=addresses,
        KGO_TEST_RF="3", KGO_TEST_RECORDS=_RECORDS, KGO_LOG_LEVEL="none",
    )  # fmt: skip
    outcome = Outcome([], {}, [])
    text = log.read_text(errors="replace")
    for told, name in _ROW.findall(text):
        if told == "FAIL":
            outcome.failed[name] = f"see {log}"
        else:
            (outcome.passed if told == "PASS" else outcome.skipped).append(name)
    if done.returncode and not outcome.failed:
        outcome.failed["kgo"] = f"exit code {done.returncode}, see {log}"
    return outcome


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT)
