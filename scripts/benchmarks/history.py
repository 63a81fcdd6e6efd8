"""`scripts/bench history`: a long history in a tier, and a small part of it on local disks.

Three nodes with a tier in a directory get a log of many ages, whose ranges keep together
`--local-gib` on each disk. When everything is uploaded and old files have left the disks, hot keys
(of the last age) and cold keys (of the first half of the ages) are polled at a rate. Then the log
is restored from the tier into clusters of one node and of five, each with a tier of its own. The
number of entries and the sum of their hashes must be those of the first cluster, which reads its
history from the tier for that.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import lognode
from lognode.node.local.dev import LocalCluster, LocalNode

from . import harness
from .history_load import AGES, LOG, Digest, digest, fill, keys_of_an_age, poll, splits

_GIB: Final = 1 << 30
_SETTLED_S: Final = 1_800.0
"""How long uploads and deletions may take after the fill."""
_RATE_BYTES_S: Final = 256 << 20
_QUICK_FLAGS: Final = ("--wal-file-bytes", str(1 << 18))
"""So that a short run has segments."""
_TARGET_FLAGS: Final = ("--tier-grace", "60")
"""Files that merges replace would double what the tier of a restored cluster takes."""
_SLACK: Final = 96 << 20
"""What a range may have on a disk above its bound: a file that is new."""


def main(arguments: Sequence[str]) -> int:
    """Run, print the table, write the JSON. Raises CorruptData at the first difference."""
    parser = harness.parser("history", __doc__)
    parser.add_argument("--gib", type=float, help="GiB of values (default 20)")
    parser.add_argument("--local-gib", type=float, help="GiB on each disk (default 2)")
    parser.add_argument("--value-bytes", type=int, default=1_024)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--rate", type=float, default=50.0, help="polls a second (default 50)")
    parser.add_argument("--seconds", type=float, help="seconds of each kind of poll (default 60)")
    parser.add_argument("--into", default="1,5", help="nodes of the clusters that get the log")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    around = harness.environment()
    with tempfile.TemporaryDirectory(dir=options.data) as made:
        run = _Run(Path(made), options)
        with harness.cluster(options.data, run.flags("tier")) as source:
            run.fill(source)
            run.settle(source)
            run.polls(source)
            for nodes in map(int, options.into.split(",")):
                flags = (*run.flags(f"tier-{nodes}"), *_TARGET_FLAGS)
                with harness.cluster(options.data, flags, nodes) as target:
                    run.restore(target)
            run.compare(source)
    harness.show(options, around, run.rows, ages=AGES, ranges=options.ranges)
    return 0


class _Run:
    """The steps, and a row of figures for each."""

    def __init__(self, made: Path, options: Any) -> None:
        quick = options.quick
        self.rows: list[dict[str, Any]] = []
        self.tier = made / "tier"
        self._restored: tuple[Digest, list[int]] | None = None
        """The digest of the first restore, and the last seq of each range."""
        self._made = made
        self._options = options
        self._seconds = options.seconds or (2.0 if quick else 60.0)
        self._records = round(
            (options.gib or (0.1 if quick else 20.0)) * _GIB / options.value_bytes
        )
        self._starts = splits(options.ranges, self._records)
        local = (options.local_gib or (0.01 if quick else 2.0)) * _GIB
        self._bound = max(1 << 20, int(local) // options.ranges)

    def flags(self, tier: str) -> tuple[str, ...]:
        """Return the flags of nodes with this tier."""
        return ("--tier", str(self._made / tier), "--tier-bytes-per-s", str(_RATE_BYTES_S),
                *(_QUICK_FLAGS if self._options.quick else ()))  # fmt: skip

    def _note(self, step: str, **figures: Any) -> None:
        """Add a row, and say the row on standard error: a run takes long."""
        self.rows.append({"step": step, **figures})
        sys.stderr.write(f"{self.rows[-1]}\n")

    def fill(self, source: LocalCluster) -> None:
        """Create the log and append its history."""
        options = self._options
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log(
                LOG, split_at=self._starts, split_bytes=None, split_rate=None,
                local_retention_bytes=self._bound,
            )  # fmt: skip
        began = time.monotonic()
        asyncio.run(fill(source.servers, self._records, options.value_bytes, options.seed))
        seconds = time.monotonic() - began
        self._note("fill", seconds=round(seconds, 1), entries=self._records,
                   **{"MB/s": round(self._records * options.value_bytes / 1e6 / seconds, 1)},
                   )  # fmt: skip

    def settle(self, source: LocalCluster) -> None:
        """Wait until nothing waits for the tier, and old files have left the disks."""
        began = time.monotonic()
        most = self._options.ranges * (self._bound + _SLACK)

        def is_settled() -> bool:
            rows = [node.status()["tier"] for node in source.nodes]
            local = max(map(_local_bytes, source.nodes))
            return not any(row["waiting_files"] for row in rows) and local <= most

        _await(is_settled)
        sizes = {f"node {node.number} MB": round(_local_bytes(node) / 1e6) for node in source.nodes}
        tier = sum(path.stat().st_size for path in self.tier.rglob("*") if path.is_file())
        self._note("settle", seconds=round(time.monotonic() - began, 1), **sizes,
                   **{"tier MB": round(tier / 1e6)})  # fmt: skip

    def polls(self, source: LocalCluster) -> None:
        """Poll hot keys, then cold keys, then the same cold keys again."""
        ages = {"hot": [AGES - 1], "cold": list(range(AGES // 2)), "cold again": [0]}
        keys = keys_of_an_age(self._records)
        for name, some in ages.items():
            before = _requests(source)
            report = asyncio.run(
                poll(source.servers, keys, some, self._options.rate, self._seconds)
            )
            after = _requests(source)
            calls = report["calls"]
            self._note(
                f"polls, {name}", polls=calls, entries=report["records"],
                **{f"{at} ms": report["latency_ms"][at] for at in ("p50", "p99", "max")},
                **{"requests a poll": round((after[0] - before[0]) / calls, 2),
                   "KiB a poll": round((after[1] - before[1]) / calls / 1024, 1)},
            )  # fmt: skip

    def restore(self, target: LocalCluster) -> None:
        """Restore into an empty cluster. Raises CorruptData if an earlier restore gave another
        digest."""
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "tier", "restore", str(self.tier),
             "--directory", str(self._made), "--server", target.servers, "--yes",
             "--timeout", "4h"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.monotonic() - began
        found, ends = asyncio.run(digest(target.servers, self._starts, None))
        if not found.entries:
            raise lognode.CorruptData("the tier gave no entry")
        size = found.entries * self._options.value_bytes / 1e6
        self._note(f"restore into {len(target.nodes)}", seconds=round(seconds, 1),
                   entries=found.entries, hash=f"{found.sum:032x}",
                   **{"MB/s": round(size / seconds, 1)},
                   **{"local MB": round(max(map(_local_bytes, target.nodes)) / 1e6)},
                   )  # fmt: skip
        if self._restored is None:
            self._restored = found, ends
        check(f"the cluster with {len(target.nodes)} nodes", found, self._restored[0])

    def compare(self, source: LocalCluster) -> None:
        """Read what was restored from the first cluster, most of it from the tier, and compare."""
        assert self._restored is not None
        wanted, ends = self._restored
        began, before = time.monotonic(), _requests(source)
        found, _ = asyncio.run(digest(source.servers, self._starts, ends))
        check("the first cluster", found, wanted)
        seconds, after = time.monotonic() - began, _requests(source)
        size = found.entries * self._options.value_bytes / 1e6
        self._note("read back", seconds=round(seconds, 1), entries=found.entries,
                   hash=f"{found.sum:032x}", requests=after[0] - before[0],
                   **{"MB/s": round(size / seconds, 1)})  # fmt: skip


def check(where: str, found: Digest, wanted: Digest) -> None:
    """Raise CorruptData unless a digest is the wanted one."""
    if found != wanted:
        raise lognode.CorruptData(f"{where}: {found}; the first restore gave {wanted}")


def _local_bytes(node: LocalNode) -> int:
    """Return the bytes of segments on the disk of a node."""
    return sum(path.stat().st_size for path in _files(node.data / "files", "*.seg"))


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.exists()]


def _requests(source: LocalCluster) -> tuple[int, int]:
    """Return the requests of all nodes for reads from the tier, and the bytes of the answers."""
    rows = [node.status()["tier"] for node in source.nodes]
    return sum(row["requests"] for row in rows), sum(row["fetched_bytes"] for row in rows)


def _await(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SETTLED_S
    while not holds():
        if time.monotonic() > deadline:
            raise lognode.Unavailable(f"the tier was behind for {_SETTLED_S:.0f} s after the fill")
        time.sleep(0.5)
