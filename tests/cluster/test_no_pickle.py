"""Hole 19: nothing that a node does loads a pickle, whatever PySyncObj could do with one.

Every Python process of a cluster runs with `pickle_trap`, which ends a process that loads one.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

TRAP = Path(__file__).resolve().parents[1] / "support" / "pickle_trap"
CODE = 86
"""How a process ends that loads a pickle."""
PREPARE = "import pickle, io, _pickle; data = pickle.dumps([1]); kept = _pickle.loads\n"
WAYS = {
    "loads": "pickle.loads(data)",
    "load": "pickle.load(io.BytesIO(data))",
    "loads in Python": "pickle._loads(data)",
    "load in Python": "pickle._load(io.BytesIO(data))",
    "Unpickler": "pickle.Unpickler(io.BytesIO(data))",
    "an Unpickler of one's own": (
        "class U(pickle.Unpickler):\n  def __init__(self): super().__init__(io.BytesIO(data))\nU()"
    ),
    "Unpickler in Python": "pickle._Unpickler(io.BytesIO(data))",
    "loads in C": "_pickle.loads(data)",
    "Unpickler in C": "_pickle.Unpickler(io.BytesIO(data))",
    "the library's loads": "import pysyncobj.pickle as p; p.loads(data)",
    "the library's load": "import pysyncobj.pickle as p; p.load(io.BytesIO(data))",
    "multiprocessing": "import multiprocessing.reduction as r; r.ForkingPickler.loads(data)",
    "a copy of a module": "import copyreg, shelve; shelve.Unpickler(io.BytesIO(data))",
    "a process of the process": (
        "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', "
        "'import pickle; pickle.loads(pickle.dumps(1))']))"
    ),
}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder into which the processes started from here on write what they do."""
    folder = tmp_path / "trap"
    folder.mkdir()
    monkeypatch.setenv("LOGNODE_PICKLE_TRAP", str(folder))
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(TRAP), before))))
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_hole_19_the_trap_ends_a_process_that_loads_a_pickle(way: str, trap: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + WAYS[way]], capture_output=True, text=True, check=False
    )
    assert done.returncode == CODE, done.stderr
    (told,) = trap.glob("unpickled-*")
    assert "sitecustomize.py" in told.read_text()


def test_hole_19_the_trap_hears_a_function_that_was_kept_from_before(trap: Path) -> None:
    """A library that looked `_pickle.loads` up before the trap was set is still heard as soon as
    its pickle names a class."""
    source = (
        "import sys, _pickle; kept = _pickle.loads\n"
        f"sys.path.insert(0, {str(TRAP)!r})\n"
        "import pickle, sitecustomize, datetime\n"
        "assert kept(pickle.dumps([1])) == [1]\n"
        "kept(pickle.dumps(datetime.date(2026, 1, 1)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == CODE, done.stderr


def test_hole_19_a_node_that_loads_a_pickle_is_found(tmp_path: Path, trap: Path) -> None:
    """In a real node, on the loop's thread, with the library's own function."""
    program = (
        "import sys\n"
        "from lognode.node import main\n"
        "from lognode.node.control import heartbeat\n"
        "from pysyncobj import pickle\n"
        "note = heartbeat.Heartbeat._note_own\n"
        "def noted(self):\n"
        "    if self._view.metadata.logs: pickle.loads(pickle.dumps([1]))\n"
        "    return note(self)\n"
        "heartbeat.Heartbeat._note_own = noted\n"
        "sys.exit(main.main())\n"
    )
    with testing.cluster(tmp_path, 1, start=False) as cluster:
        (node,) = cluster.nodes
        node.program = ("-c", program)
        cluster.start()
        # The node may end before it answers.
        with (
            lognode.Client(cluster.servers, timeout=5) as client,
            contextlib.suppress(lognode.Timeout, lognode.Unavailable),
        ):
            client.create_log("orders")
        assert node.wait_end() == CODE
    (told,) = trap.glob("unpickled-*")
    assert told.name == f"unpickled-{node.pid}"
    assert "in noted" in told.read_text()


def test_hole_19_no_pickle_is_loaded_under_load_restart_base_split_merge_and_move(
    tmp_path: Path, trap: Path
) -> None:
    flags = ("--wal-file-bytes", str(1 << 20), "--balance", "off", "--repair-after", "0")
    with (
        testing.cluster(tmp_path, 3, flags=flags) as cluster,
        lognode.Client(cluster.servers, timeout=60) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("load")
        testing.wait_healthy(cluster)
        seed = random.SystemRandom().randrange(1 << 32)
        with Load(cluster.servers, "load", seed, Size(value_bytes=200)) as load:
            load.go_on(200)
            away = cluster.nodes[testing.leader_of(client, "load") - 1]
            away.kill()
            fill = client.create_log("fill")
            bulk = [(b"%d" % at, os.urandom(10_000)) for at in range(100)]
            for _ in range(16):
                fill.append_many(bulk)
            load.go_on(100)
            away.start()
            away.wait_ready()
            testing.eventually(
                lambda: "base installed" in away.log_path.read_text("utf-8"), what="a base",
                timeout_s=60,
            )  # fmt: skip
            testing.wait_healthy(cluster)
            load.go_on(50)
            client.admin.split("load", at=b"own\xff")
            load.go_on(50)
            client.admin.split("fill", at=b"5")
            client.admin.merge("load", at=b"own\xff")
            client.admin.transfer(0, to_node=away.number)
            load.go_on(50)
            new = cluster.add()
            new.start()
            new.wait_ready()
            (first, *_) = [each for each in client.status()["ranges"] if each["log"] == "fill"]
            client.admin.move(first["id"], from_node=away.number, to_node=new.number)
            new.signal(signal.SIGKILL)
            new.wait_end()
            load.go_on(50)
            new.start()
            new.wait_ready()
            assert len(list(fill.snapshot().read())) == len(bulk) * 16
            load.go_on(100)
        testing.wait_healthy(cluster)
        check(same_on(cluster.servers, "load", (1, 2, 3)), load.told)
        pids = {node.pid for node in cluster.nodes}
    unpickled = [path.read_text() for path in trap.glob("unpickled-*")]
    assert not unpickled, unpickled[0]
    assert [node.exit_code for node in cluster.nodes] == [0] * 4
    armed = {int(path.name.removeprefix("armed-")): path.read_text() for path in
             trap.glob("armed-*")}  # fmt: skip
    assert pids <= armed.keys(), "every node had the trap"
    assert any("builder" in argv for argv in armed.values()), "and so had what nodes start"
