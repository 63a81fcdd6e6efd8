"""franz-go's tests of its client, from the Go module proxy.

One check of the test of groups is changed before the run: offsets of a partition must rise, not
begin at 0 and follow each other without a gap.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .go_suites import changed, copied, judged
from .suites import Outcome, Suite

VERSION: Final = "1.22.3"
_LIMIT_S: Final = 900
_RECORDS: Final = "20000"
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
    copy = copied(work, "github.com/twmb/franz-go", VERSION, source)
    if copy is not None:
        changed(copy / "pkg" / "kgo" / "group_test.go", *_CHANGES)


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    return judged(
        work, work / "franz-go" / "pkg" / "kgo", left_out, limit_s=_LIMIT_S, KGO_SEEDS=addresses,
        KGO_TEST_RF="3", KGO_TEST_RECORDS=_RECORDS, KGO_LOG_LEVEL="none",
    )  # fmt: skip


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT)
