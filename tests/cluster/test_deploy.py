"""The commands of docs/deploy.md as printed, and the files of deploy/ with real nodes.

Paths of the system are those of a folder for each host. Commands that need another machine have
stand-ins: `sudo` and `ssh` run here, `scp` copies between folders, and the test starts the command
of the systemd unit. No container engine runs: the nodes get the arguments of the manifests.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from own_hosts import OwnHosts, own_hosts

from lognode import testing

yaml = pytest.importorskip("yaml")

pytestmark = pytest.mark.cluster
ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "deploy.md").read_text("utf-8")
BIN: Final = Path(sys.executable).parent
NOT_RUN: Final = (
    "sudo useradd ", "sudo python3 -m venv ", "sudo /opt/lognode/bin/pip ", "sudo systemctl ",
    "sudo chown ",
)  # fmt: skip
"""What would change this machine."""
STAND_INS: Final = {
    "sudo": 'exec "$@"',
    "scp": 'to=${@: -1}; host=${to%%:*}; exec cp -p "${@:1:$#-1}" "$HOSTS/${host#root@}${to#*:}"',
    "ssh": 'exec "$2" "$HOSTS/${1#root@}$3"',
}


def blocks(heading: str) -> list[tuple[str, str]]:
    """The titles and texts of the commands below a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r'^```sh title="([^"]*)"\n(.*?)^```$', part, re.M | re.S)


def environment(**more: str) -> dict[str, str]:
    around = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LOGNODE_") and name != "XDG_CONFIG_HOME"
    }
    return {**around, "PATH": f"{BIN}:{around['PATH']}", **more}


class Machine:
    """A folder in the place of a machine's disk."""

    def __init__(self, hosts: OwnHosts, folder: Path, stand_ins: Path, *, user: bool) -> None:
        self.home = folder / "home"
        for name in ("home", "etc/lognode", "etc/systemd/system", "var/lib"):
            (folder / name).mkdir(parents=True)
        self._hosts, self._folder, self._user = hosts, folder, user
        self._environment = environment(
            HOME=str(self.home), HOSTS=str(folder.parent),
            PATH=f"{stand_ins}:{BIN}:{os.environ['PATH']}",
        )  # fmt: skip
        self._exported: list[str] = []
        self.node: subprocess.Popen[bytes] | None = None

    def here(self, text: str) -> str:
        """A text with the paths of this machine."""
        text = text.replace("/opt/lognode/bin", str(BIN))
        if self._user:
            return text
        return re.sub(r"(?<![\w:])(/etc/|/var/lib/)", rf"{self._folder}\1", text)

    def run(self, script: str) -> str:
        """Run the commands of a block, without those of NOT_RUN."""
        joined = re.sub(r"\\\n\s*", "", script)
        lines = [line for line in joined.splitlines() if not line.startswith(NOT_RUN)]
        exported = [line for line in lines if line.startswith("export ")]
        told = self._hosts.run(
            self.here("\n".join([*self._exported, *lines])), self.home, self._environment
        )
        self._exported += exported
        if "systemctl restart lognode\n" in script:
            self.stop()
        if re.search(r"systemctl (?:enable --now|restart) lognode\n", script):
            self.start()
        return told

    def start(self) -> None:
        """Start the node as its unit says."""
        unit = (self._folder / "etc/systemd/system/lognode.service").read_text("utf-8")
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        self.node = self._hosts.begin(f"exec {self.here(command)}", self._folder, self._environment)

    def stop(self) -> None:
        """Stop the node as systemd does."""
        if self.node is not None:
            self.node.terminate()
            assert self.node.wait(30) == 0, (self._folder / "output.txt").read_text("utf-8")


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    for name, text in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@contextlib.contextmanager
def ended(nodes: list[subprocess.Popen[bytes] | None]) -> Iterator[None]:
    """Ends the nodes that are in the list at the end of the block."""
    try:
        yield
    finally:
        for node in nodes:
            if node is not None and node.poll() is None:
                node.kill()
            if node is not None:
                node.wait()


@pytest.mark.by_hand
def test_three_hosts_are_deployed_upgraded_and_replaced_as_printed(
    tmp_path: Path, stand_ins: Path
) -> None:
    names = {f"db{n}.example": f"10.0.0.{n}" for n in range(1, 5)}
    with own_hosts(tmp_path, names) as hosts:
        places = tmp_path / "hosts.d"
        machines = [Machine(hosts, places / name, stand_ins, user=False) for name in names]
        mine = Machine(hosts, places / "mine", stand_ins, user=True)
        for machine in machines:
            unit = ROOT / "deploy" / "systemd" / "lognode.service"
            (machine.home / "lognode.service").write_text(unit.read_text("utf-8"))
        try:
            found(mine, machines[:3])
            upgraded(mine, machines[:3])
            replaced(mine, machines)
        finally:
            with ended([machine.node for machine in machines]):
                pass


def found(mine: Machine, machines: list[Machine]) -> None:
    """Steps 1 to 6."""
    steps = blocks("Three hosts in ten minutes")
    assert [title for title, _ in steps].count("on each host") == 3
    for title, text in steps:
        if title == "on each host":
            for number, machine in enumerate(machines, 1):
                machine.run(text.replace("n=1\n", f"n={number}\n"))
            continue
        assert title == "on your machine"
        told = mine.run(text)
    assert "two shirts" in told


def upgraded(mine: Machine, machines: list[Machine]) -> None:
    """Stop and start each node, as the restart of its unit does."""
    restart, check = blocks("Upgrade")
    assert "systemctl restart lognode" in restart[1]
    for machine in machines:
        machine.run(restart[1])
        mine.run(check[1])


def replaced(mine: Machine, machines: list[Machine]) -> None:
    """A fourth node takes the place of the first."""
    invite, join, leave = blocks("Replace a node")
    machines[3].run(blocks("Three hosts in ten minutes")[0][1])
    mine.run(invite[1])
    machines[3].run(join[1])
    mine.run(leave[1])
    left = machines[0].node
    assert left is not None
    assert left.wait(30) == 1, "the removed node ends by itself"
    assert "two shirts" in mine.run("lognode scan orders anna")
    ((_, zone),) = blocks("Add a zone")
    machines[3].run(zone)
    mine.run("lognode health --nodes 3 --wait 60s")
    nodes = json.loads(mine.run("lognode node list --format json"))
    assert sorted(node["zone"] for node in nodes if node["state"] == "ACTIVE") == [
        "rack2", "rack3", "rack4",
    ]  # fmt: skip


@pytest.mark.by_hand
def test_the_nodes_of_the_compose_file_form_a_cluster(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "deploy/docker/compose.yaml").read_text("utf-8"))["services"]
    certs = tmp_path / "certs"
    certs.mkdir(mode=0o700)
    nodes: list[subprocess.Popen[bytes] | None] = []

    def here(name: str, text: str) -> str:
        return text.replace("$$", "$").replace("/certs", str(certs)).replace(
            "/data", str(tmp_path / name)
        )  # fmt: skip

    names = dict.fromkeys(("n1", "n2", "n3"), "127.0.0.1")
    with own_hosts(tmp_path, names) as hosts, ended(nodes):
        (script,) = services["certificates"]["command"]
        for _ in range(2):  # the service runs at each start of the cluster
            hosts.run(here("", script), tmp_path, environment())
        for name in ("n1", "n2", "n3"):
            arguments = [here(name, each) for each in services[name]["command"]]
            around = {
                key: here(name, value) for key, value in services[name]["environment"].items()
            }
            (tmp_path / f"{name}.d").mkdir()
            nodes.append(hosts.begin(
                f"exec lognode {shlex.join(arguments)}", tmp_path / f"{name}.d",
                environment(**around),
            ))  # fmt: skip
        ((_, text),) = blocks("Docker Compose")
        (up, *commands) = text.splitlines()
        assert up.endswith("up --build --detach --wait")
        for name in ("n1", "n2", "n3"):
            healthy(hosts, tmp_path, services[name], partial(here, name))
        around = {key: here("n1", each) for key, each in services["n1"]["environment"].items()}
        for command in commands:
            begin = "docker compose -f deploy/docker/compose.yaml exec n1 "
            assert command.startswith(begin)
            hosts.run(command.removeprefix(begin), tmp_path, environment(**around))


def healthy(
    hosts: OwnHosts, folder: Path, service: dict[str, Any], here: Callable[[str], str]
) -> None:
    """Probe a service as Compose does, until the probe succeeds."""
    first, *command = service["healthcheck"]["test"]
    assert first == "CMD"
    around = {key: here(value) for key, value in service["environment"].items()}

    def is_healthy() -> bool:
        with contextlib.suppress(AssertionError):
            hosts.run(shlex.join(command), folder, environment(**around))
            return True
        return False

    testing.eventually(is_healthy, timeout_s=60, what=f"{service['hostname']} is healthy")


def test_the_pods_of_the_kubernetes_manifest_form_a_cluster_and_answer_their_probes(
    tmp_path: Path,
) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/lognode.yaml").read_text()))
    (pods,) = [each["spec"] for each in documents if each["kind"] == "StatefulSet"]
    pod = pods["template"]["spec"]
    names = [f"lognode-{n}" for n in range(pods["replicas"])]
    addresses = {f"{name}.lognode": f"10.1.0.{n}" for n, name in enumerate(names, 1)}
    on_mine, with_access = blocks("Kubernetes")
    nodes: list[subprocess.Popen[bytes] | None] = []
    with own_hosts(tmp_path, addresses) as hosts, ended(nodes):
        hosts.run(on_mine[1], tmp_path, environment())
        secret = tmp_path / "secret"
        secret.mkdir()
        for name in re.findall(r"--from-file=(\S+)", with_access[1]):
            (secret / Path(name).name).write_bytes((tmp_path / name).read_bytes())
            (secret / Path(name).name).chmod(0o440)  # as Kubernetes mounts a secret

        def here(name: str, text: str) -> str:
            place = tmp_path / name
            for path in ("/data", "/key"):
                text = re.sub(rf"(?<![\w/]){path}(?=/|$)", f"{place}{path}", text)
            for path in ("/tls", "/secret"):
                text = re.sub(rf"(?<![\w/]){path}(?=/|$)", str(secret), text)
            address = addresses[f"{name}.lognode"]
            return text.replace("$(POD_NAME)", name).replace("0.0.0.0", address)

        for name in names:
            for folder in ("data", "key"):
                (tmp_path / name / folder).mkdir(parents=True)
            (key,) = pod["initContainers"]
            (node,) = pod["containers"]
            hosts.run(
                shlex.join([here(name, each) for each in key["command"]]), tmp_path, environment()
            )
            command = shlex.join(["lognode", *(here(name, each) for each in node["args"])])
            nodes.append(hosts.begin(f"exec {command}", tmp_path / name, environment()))
        for address in addresses.values():
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                answered(hosts, tmp_path, address, node, probe)
        token = tmp_path / "admin.token"
        (path,) = re.findall(r"cat (/data\S+)", with_access[1])
        token.write_text(Path(here("lognode-0", path)).read_text())
        token.chmod(0o600)
        hosts.run(
            "lognode health --nodes 3 --wait 60s", tmp_path,
            environment(
                LOGNODE_SERVER="lognodes://lognode-0.lognode:4600",
                LOGNODE_TLS_CA=str(tmp_path / "kube/ca.crt"), LOGNODE_TOKEN_FILE=str(token),
            ),
        )  # fmt: skip


PROBE: Final = """
import ssl, sys, urllib.request
blind = ssl._create_unverified_context()  # as Kubernetes
with urllib.request.urlopen(sys.argv[1], timeout=2, context=blind) as answer:
    print(answer.status)
"""


def answered(hosts: OwnHosts, folder: Path, address: str, node: dict[str, Any], probe: str) -> None:
    """Ask as a probe asks, until the answer is 200."""
    asked = node[probe]["httpGet"]
    (port,) = [each["containerPort"] for each in node["ports"] if each["name"] == asked["port"]]
    url = f"{asked['scheme'].lower()}://{address}:{port}{asked['path']}"

    def is_answered() -> bool:
        with contextlib.suppress(AssertionError):
            command = shlex.join([sys.executable, "-c", PROBE, url])
            return hosts.run(command, folder, environment()) == "200\n"
        return False

    testing.eventually(is_answered, timeout_s=60, what=f"{probe} of {address}")
