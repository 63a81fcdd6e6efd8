"""`scripts/bench backup`: a backup under load, and its restores into one node and into five.

Three nodes hold a log of random values. A writer appends at a rate before and during
`lognode backup create`. Then come `backup verify`, and `backup restore` into an empty cluster of
one node and into one of five. After each restore the log is read, and the number of its entries and
the sum of their hashes must be those of the backup's snapshot in the first cluster; neither the
backup nor the restore computes these. At last a bit of a random object is flipped: `verify` and
`restore` must refuse the object by its name.

Each verb is a process of its own, as a user runs the verb. `MB/s` counts keys and values. The
memory is the largest that a process had resident during the verb.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lognode
from lognode.client.backup.manifest import Manifest
from lognode.client.backup.store import Store, path_of
from lognode.client.objects import places
from lognode.node.local.dev import LocalCluster

from . import harness
from .backup_load import KEYS, LOG, Digest, digest, fill, key
from .processor import resident
from .programs import answer, program, tell

_TARGETS = (1, 5)
_MIB = 1 << 20
_ALONE_S = 20.0
"""How long the writer appends before the backup begins."""
_EVERY_S = 0.1


def main(arguments: Sequence[str]) -> int:
    """Run, print the table, write the JSON. Raises CorruptData at the first difference."""
    parser = harness.parser("backup", __doc__)
    parser.add_argument("--gib", type=float, help="GiB of values (default 5)")
    parser.add_argument("--value-bytes", type=int, default=1_024)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--writer-mb", type=float, default=2.0,
                        help="MB of values a second of the writer (default 2)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    gib = options.gib or (0.02 if options.quick else 5.0)
    records = round(gib * (1 << 30) / options.value_bytes)
    around = harness.environment()
    with tempfile.TemporaryDirectory(dir=options.data) as directory:
        run = _Run(Path(directory) / "store", options.data, options.value_bytes + len(key(0)))
        with harness.cluster(options.data) as source:
            began = time.monotonic()
            asyncio.run(fill(source.servers, options.ranges, records, options.value_bytes,
                             options.seed))  # fmt: skip
            run.note("fill", 3, time.monotonic() - began, records)
            run.create(source, options.writer_mb * 1e6 / options.value_bytes,
                       options.value_bytes, 1.0 if options.quick else _ALONE_S)  # fmt: skip
            run.verify()
            run.look(source)
        if run.wanted.entries < records:
            raise lognode.CorruptData(
                f"the backup has {run.wanted.entries} entries; {records} were acknowledged before"
            )
        for count in _TARGETS:
            run.restore(count)
        run.refuse(random.Random(options.seed))
    harness.show(options, around, run.rows, keys=KEYS, ranges=options.ranges,
                 value_bytes=options.value_bytes)  # fmt: skip
    return 0


class _Run:
    """The steps, and a row of figures for each. `wanted` is the digest of the backup's snapshot in
    the first cluster."""

    def __init__(self, store: Path, data: Path, entry_bytes: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self.wanted = Digest(0, 0)
        self._store = store
        self._data = data
        self._entry_bytes = entry_bytes

    def note(self, step: str, nodes: int, seconds: float, entries: int, **more: Any) -> None:
        """Add a row, and say the row on standard error: a run takes long."""
        self.rows.append({
            "step": step, "nodes": nodes, "entries": entries, "seconds": round(seconds, 1),
            "MB/s": round(entries * self._entry_bytes / 1e6 / seconds, 1), **more,
        })  # fmt: skip
        sys.stderr.write(f"{self.rows[-1]}\n")

    def create(self, source: LocalCluster, rate: float, value_bytes: int, alone_s: float) -> None:
        """Make the backup while the writer appends."""
        with program("backup_load", source.servers, LOG, str(rate), str(value_bytes)) as writer:
            time.sleep(alone_s)
            tell(writer, "")
            self._note_writer("writer alone", answer(writer))
            done = _Verb(source, "create", str(self._store), "--log", LOG)
            assert writer.stdin is not None
            writer.stdin.close()
            self._note_writer("writer during create", answer(writer))
        made = done.report()
        self.note("create", 3, done.seconds, made["entries"], objects=made["objects"],
                  **{"stored MB": round(made["new_bytes"] / 1e6, 1)}, **done.memory)  # fmt: skip

    def _note_writer(self, step: str, report: Mapping[str, Any]) -> None:
        if not report["records"]:
            raise RuntimeError(f"{step}: no append ended")
        self.note(step, 3, report["seconds"], report["records"],
                  **{f"{name} ms": report["latency_ms"][name] for name in ("p50", "p99", "max")},
                  )  # fmt: skip

    def verify(self) -> None:
        """Verify the backup."""
        done = _Verb(None, "verify", str(self._store))
        self.note("verify", 0, done.seconds, done.report()["entries"], **done.memory)

    def look(self, source: LocalCluster) -> None:
        """Compute the digest of the backup's snapshot, from the entries of the first cluster."""
        (log,) = self._manifest().logs
        self.wanted = asyncio.run(digest(source.servers, log.parts))
        if self.wanted.entries != log.entries:
            raise lognode.CorruptData(
                f"the backup has {log.entries} entries; the first cluster has {self.wanted.entries}"
            )

    def restore(self, count: int) -> None:
        """Restore into an empty cluster of this many nodes, and compare all entries."""
        with harness.cluster(self._data, count=count) as target:
            done = _Verb(target, "restore", str(self._store))
            entries = done.report()["entries"]
            (log,) = self._manifest().logs
            found = asyncio.run(digest(target.servers, log.parts))
        if found != self.wanted:
            raise lognode.CorruptData(
                f"{count} nodes have {found}; the first cluster has {self.wanted}"
            )
        self.note("restore", count, done.seconds, entries, verified=found.entries,
                  hash=f"{found.sum % (1 << 64):016x}", **done.memory)  # fmt: skip

    def refuse(self, rng: random.Random) -> None:
        """Flip a bit of an object. Raises CorruptData unless the object is refused by name."""
        (log,) = self._manifest().logs
        name = rng.choice([each.name for part in log.parts for each in part.objects])
        path = self._store / path_of(name)
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        with harness.cluster(self._data, count=1) as target:
            for done in (
                _Verb(None, "verify", str(self._store)),
                _Verb(target, "restore", str(self._store)),
            ):
                if done.code != 1 or f"object {name}" not in done.said:
                    raise lognode.CorruptData(
                        f"object {name} has a flipped bit; {done.action} ended with code "
                        f"{done.code} and said {done.said!r}"
                    )
                self.note(
                    f"{done.action}, a bit flipped", done.nodes, done.seconds, 0, **done.memory
                )

    def _manifest(self) -> Manifest:
        store = Store.opened(places.opened(str(self._store)), None)
        (backup,) = store.backups()
        return Manifest.of(backup, store.manifest(backup))


class _Verb:
    """`lognode backup ACTION` in a process of its own, with its figures."""

    def __init__(self, cluster: LocalCluster | None, action: str, *arguments: str) -> None:
        self.action = action
        self.nodes = 0 if cluster is None else len(cluster.nodes)
        pids = [] if cluster is None else [node.pid for node in cluster.nodes]
        server = () if cluster is None else ("--server", cluster.servers)
        began = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "lognode.node.main", "backup", action, *arguments, *server,
             "--format", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            groups = {"verb": process.pid, **{f"node {at}": pid for at, pid in enumerate(pids)}}
            try:
                with _Peaks(groups) as peaks:
                    self._out, self.said = process.communicate()
            finally:
                process.kill()  # if the benchmark is ended
        self.seconds = time.monotonic() - began
        self.code = process.returncode
        self.memory = {"verb MiB": peaks.mib["verb"]}
        if pids:
            largest = max(value for name, value in peaks.mib.items() if name != "verb")
            self.memory["largest node MiB"] = largest

    def report(self) -> dict[str, Any]:
        """Return what the verb printed. Raises RuntimeError for a verb that failed."""
        if self.code != 0:
            raise RuntimeError(f"lognode backup {self.action}: {self.said.strip()}")
        found: dict[str, Any] = json.loads(self._out)
        return found


class _Peaks:
    """The largest resident memory of processes while the block runs, sampled."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.mib = dict.fromkeys(pids, 0)
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peaks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for name, pid in self._pids.items():
                self.mib[name] = max(self.mib[name], resident([pid]) // _MIB)
            if self._over.wait(_EVERY_S):
                return
