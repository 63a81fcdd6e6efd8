"""What killed writers leave in a store of backups: the next run removes it, and nothing of a writer
that lives. The writers are processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lognode.client.backup.claims import Claim, claims
from lognode.client.backup.owners import Owners
from lognode.client.backup.store import Store
from lognode.client.backup.sweep import Removal
from lognode.client.objects.directory import DirectoryStore
from lognode.client.protocol.errors import Conflict

HOLDS = """
import os, sys, time
from pathlib import Path
from lognode.client.backup.claims import Claim
from lognode.client.backup.store import Store
from lognode.client.objects.directory import DirectoryStore
objects = DirectoryStore(Path(sys.argv[1]))
if sys.argv[2] == "claim":
    claim = Claim.taken(Store.opened(objects, None, create=True))
    print(claim.backup, flush=True)
else:
    def never(_):
        print("written", flush=True)
        time.sleep(600)
    Path(sys.argv[1], "folder").mkdir()
    os.fsync = never
    objects.put("folder/object", b"content")
time.sleep(600)
"""


@contextmanager
def holding(place: Path, what: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process that holds a claim, or a file that it has not synced; and what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(place), what], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def opened(place: Path) -> Store:
    return Store.opened(DirectoryStore(place), None, create=True)


def test_a_file_of_a_killed_writer_goes_and_that_of_a_living_writer_stays(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with holding(tmp_path, "file") as (process, said):
        assert said == "written"
        (beside,) = (tmp_path / "folder").iterdir()
        assert beside.name.endswith(".part")
        assert store.clear() == 0
        assert beside.exists()
        end(process)
        assert beside.exists()
    assert store.put("folder/object", b"other")
    assert store.clear() == 1
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["object"]


def test_a_writer_whose_file_is_taken_writes_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    link = os.link

    def late(source: Path, target: Path) -> None:
        if len(taken) < 2:
            taken.append(source)
            source.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    store = DirectoryStore(tmp_path)
    assert store.put("a/b", b"content")
    assert len(set(taken)) == 2
    assert store.get("a/b", 7) == b"content"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("how", ["create", "removal"])
def test_a_claim_of_a_killed_create_goes_at_the_next_run(tmp_path: Path, how: str) -> None:
    store = opened(tmp_path)
    with holding(tmp_path, "claim") as (process, backup):
        if how == "create":
            Claim.taken(opened(tmp_path)).release()
        assert [(each.backup, each.is_stale) for each in claims(store)] == [(backup, False)]
        end(process)
    assert [(each.backup, each.is_stale) for each in claims(store)] == [(backup, True)]
    if how == "create":
        claim = Claim.taken(opened(tmp_path))
        assert [each.backup for each in claims(store)] == [claim.backup]
        claim.release()
    else:
        store.put_object(b"left by the create")
        result = Removal.of_rule(opened(tmp_path), 1, None).run(lambda *_: None)
        assert (result.objects, result.creating) == (1, [])
    assert claims(store) == []
    with pytest.raises(Conflict, match="gave up the backup"):  # a request that arrives late
        opened(tmp_path).put_manifest(backup, b"a manifest")


def test_a_process_is_known_to_have_ended_only_on_its_machine(tmp_path: Path) -> None:
    owners = Owners()
    told: Any = owners.told()
    assert not owners.has_ended(told)
    with holding(tmp_path, "claim") as (process, _):
        own = Told.of(opened(tmp_path))
        assert own["pid"] == process.pid
        assert own["machine"] == told["machine"]
        assert not owners.has_ended(own)
        assert owners.has_ended({**own, "started": told["started"] + "0"}), "the id is used again"
        process.send_signal(signal.SIGSTOP)
        assert not owners.has_ended(own), "a process that stands still may go on"
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
        assert owners.has_ended(own)
        process.wait()
        assert owners.has_ended(own)
        assert not owners.has_ended({**own, "machine": "another"})
        for pid in (0, -1, 1 << 40, "1", None, True):
            assert not owners.has_ended({**own, "pid": pid})
    for other in (None, [], "text", {}, {"pid": 1}):
        assert not owners.has_ended(other)


class Told(Owners):
    """Collects what claims tell."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def has_ended(self, told: Any) -> bool:
        self.seen.append(told)
        return False

    @classmethod
    def of(cls, store: Store) -> Any:
        """What the only claim of the store tells of its process."""
        found = cls()
        claims(store, owners=found)
        (told,) = found.seen
        return told
