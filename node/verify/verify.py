"""`lognode verify DIR`: check everything that a stopped node has on disk, and change nothing.

The checks are those of a start, and those that a start leaves to the first read: every checksum.
A fault that a start would repair by itself (a torn tail, an orphan) is reported and passes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...client.protocol.errors import CorruptData, Unsupported
from ...raft.os_disk import OsDisk
from ...raft.wal_recovery import Recovery, read
from ...statemachine.meta import decode_row
from ..directory import meta_keys
from ..directory.data_directory import DataDirectory, locked
from ..directory.feature_level import refused
from ..directory.meta_reader import read_rows
from .verify_bases import check_bases
from .verify_replicas import Known, check_replicas, group_name
from .verify_segments import check_segments

COLUMNS: Final = ("result", "check", "found", "repair")
_TOLD_MAX: Final = 5
_FROM_PEERS: Final = (
    "start the node: damaged replicas take no part, and the node rebuilds them from its peers"
)
_ANEW: Final = (
    "move the directory away and start an empty directory with --join: the node becomes a new node"
)


@dataclass(slots=True)
class Check:
    """One line of the report. `found` counts what was checked; `wrong` lists the failures."""

    name: str
    found: str = ""
    wrong: list[str] = field(default_factory=list)
    repair: str = _FROM_PEERS

    def row(self) -> dict[str, Any]:
        """Return the row to print."""
        told = self.wrong[:_TOLD_MAX]
        if len(self.wrong) > _TOLD_MAX:
            told.append(f"and {len(self.wrong) - _TOLD_MAX} more")
        return {
            "result": "FAIL" if self.wrong else "PASS",
            "check": self.name,
            "found": "; ".join(filter(None, [self.found, *told])),
            "repair": self.repair if self.wrong else "",
            "wrong": self.wrong,
        }


def verify(root: Path, told: Callable[[float, int], None] | None = None) -> list[Check]:
    """Return the result of every check of the directory.

    `told` gets the part of the work that is done, 0 to 1, and the bytes that were looked at.
    Raises DirectoryInUse, InvalidArgument; OSError when the directory itself cannot be read."""
    directory = DataDirectory(root)
    with locked(root):
        known, progress = Known(), _Bytes(directory, told)
        checks = [_check_layout(directory)]
        checks.append(_guarded("meta", lambda check: _check_meta(directory, known, check)))
        checks.append(_guarded("identity", lambda check: _check_identity(known, check)))
        recovery, check = _check_wal(directory)
        progress.looked(_size_of(directory.wal))
        of_logs = _check_logs(recovery)
        of_replicas = _guarded("replicas", lambda c: _check_replicas(known, recovery, c))
        if recovery is None:
            of_logs.repair = of_replicas.repair = check.repair
        checks += [check, of_logs, of_replicas]
        checks.append(_guarded("states", lambda c: _check_states(directory, known, c)))
        checks.append(
            _guarded("segments", lambda c: _check_segments(directory, known, c, progress.looked))
        )
    return checks


class _Bytes:
    """How many bytes of the WAL and of the segments were looked at."""

    def __init__(self, directory: DataDirectory, told: Callable[[float, int], None] | None) -> None:
        self._told = told
        self._whole = _size_of(directory.wal) + _size_of(directory.files)
        self._looked = 0

    def looked(self, count: int) -> None:
        """Count bytes, and tell."""
        self._looked += count
        if self._told is not None:
            self._told(self._looked / max(1, self._whole), self._looked)


def _size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder; 0 for a folder that cannot be read."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except OSError:
        return 0


def _guarded(name: str, fill: Callable[[Check], None]) -> Check:
    """Run a check; an error while it reads is a failure of the check."""
    check = Check(name)
    try:
        fill(check)
    except CorruptData as error:
        check.wrong.append(error.message)
    except OSError as error:
        check.wrong.append(f"{error.filename or 'a file'} cannot be read: {error.strerror}")
    return check


def _check_layout(directory: DataDirectory) -> Check:
    check = Check("layout")
    wanted = {directory.wal: Path.is_dir, directory.files: Path.is_dir,
              directory.meta: Path.is_file}  # fmt: skip
    for path, is_there in wanted.items():
        if not is_there(path):
            check.wrong.append(f"{path.name} is missing")
    if not directory.meta.is_file():
        check.repair = _ANEW
    ours = {path.name for path in wanted} | {"lock", directory.tmp.name, "meta.mdb-lock"}
    strange = sorted(set(os.listdir(directory.root)) - ours)
    check.found = f"{len(wanted) - len(check.wrong)} of {len(wanted)} parts"
    if strange:
        check.found += f", and {len(strange)} files that are not of a node ({strange[0]})"
    return check


def _check_meta(directory: DataDirectory, known: Known, check: Check) -> None:
    check.repair = _ANEW
    count = 0
    try:
        for key, data in read_rows(directory.meta):
            count += 1
            try:
                known.take(key.decode(), decode_row(key, data))
            except (CorruptData, UnicodeDecodeError) as error:
                check.wrong.append(str(error))
    except CorruptData as error:
        check.wrong.append(f"{directory.meta.name}: {error.message}")
    check.wrong += known.check_images()
    check.found = f"{count} rows, {len(known.replicas)} replicas"


def _check_identity(known: Known, check: Check) -> None:
    check.repair = _ANEW
    identity: Any = known.others.get("identity")
    try:
        check.found = (
            f"node {identity['node']} of cluster {identity['cluster']}, boot {identity['boot']}, "
            f"stopped {'in order' if known.others.get(meta_keys.CLEAN) else 'without notice'}"
        )
    except (TypeError, KeyError, AttributeError):
        check.found = "no identity"
        check.wrong.append("the identity row of meta is missing or not valid")
    try:
        refusal = refused(known.others.get)
    except Unsupported as error:
        check.wrong.append(error.message)
    else:
        if refusal:
            check.wrong.append(f"the cluster refuses this directory: {refusal}")


def _check_wal(directory: DataDirectory) -> tuple[Recovery | None, Check]:
    check = Check("wal")
    disk = OsDisk(directory.wal, readonly=True)
    try:
        recovery = read(disk)
    except CorruptData as error:
        check.wrong.append(error.message)
        check.repair = "what the message says"
        return None, check
    except OSError as error:
        check.wrong.append(f"{error.filename or 'wal'} cannot be read: {error.strerror}")
        return None, check
    finally:
        disk.close()
    check.found = (
        f"{len(recovery.files)} files, {len(recovery.spares)} spares, {recovery.batches} rounds"
    )
    if recovery.torn is not None:
        check.found += "; the next start cuts a round that was never synced"
    check.wrong += recovery.damage
    return recovery, check


def _check_logs(recovery: Recovery | None) -> Check:
    """Check the term, the vote and the unbroken entries of each group's log."""
    if recovery is None:
        return Check("logs", "not looked at", ["the WAL cannot be read"])
    entries = sum(len(group.places) for group in recovery.groups.values())
    found = f"{len(recovery.groups)} logs, {entries} entries, {len(recovery.retired)} ended logs"
    return Check("logs", found, [
        f"{group_name(gid)}: {reason}" for gid, reason in sorted(recovery.damaged.items())
    ])  # fmt: skip


def _check_replicas(known: Known, recovery: Recovery | None, check: Check) -> None:
    if recovery is None:
        check.found = f"{len(known.replicas)} replicas"
        check.wrong.append("the WAL cannot be read")
        return
    check.found, wrong = check_replicas(known, recovery)
    check.wrong += wrong


def _check_states(directory: DataDirectory, known: Known, check: Check) -> None:
    check.found, wrong = check_bases(directory.files, known.bases)
    check.wrong += wrong


def _check_segments(
    directory: DataDirectory, known: Known, check: Check, told: Callable[[int], None]
) -> None:
    check.found, wrong = check_segments(directory.files, known.segments(), told, known.far())
    check.wrong += wrong
