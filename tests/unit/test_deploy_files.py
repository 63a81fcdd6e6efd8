"""The files of deploy/: what their own tools say of them, and whether they fit lognode."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from lognode.node import config

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text("utf-8"))
MANIFEST = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "lognode.yaml").read_text("utf-8")))
KINDS = {each["kind"]: each for each in MANIFEST}
PORTS = {"listen": 4600, "peer_listen": 4601, "http": 4680}
STOP_S = 10
"""The time within which a node stops in order (docs/operations.md)."""


def program(name: str) -> str:
    """The path of a program of the machine or of the virtual environment; skips without it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        assert os.environ.get("CI") != "true", f"{name} is missing"
        pytest.skip(f"{name} is not installed")
    return found


def settings(arguments: list[str]) -> config.Config:
    """The settings of a node with these arguments. Raises what the node would raise."""
    given = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        given[name.replace("-", "_")] = value
    assert set(given) <= {name for name, _ in config.described()}, given
    return config.load(given, {})


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8").replace("/opt/lognode/bin", str(Path(sys.executable).parent))
    (tmp_path / unit.name).write_text(text)
    name = unit.name.replace("@", "@n1")
    place = tmp_path / name
    place.write_text(text)
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(place)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if name in line], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_leaves_a_node_its_files_its_time_and_its_own_directory(unit: Path) -> None:
    text = unit.read_text("utf-8")
    found = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert int(found["LimitNOFILE"]) >= 16_384
    assert int(found["TimeoutStopSec"]) > STOP_S
    assert found["WorkingDirectory"] == f"/var/lib/{found['StateDirectory']}"
    assert found["StateDirectoryMode"] == "0700"
    assert "--config /etc/lognode/" in found["ExecStart"]


def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    done = subprocess.run(
        [program("hadolint"), str(DEPLOY / "docker" / "Dockerfile")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_what_the_wheel_is_built_from_and_the_ports() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text("utf-8")
    (ports,) = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)
    assert list(map(int, ports.split())) == list(PORTS.values())
    ignored = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    tool = project["tool"]["setuptools"]
    needed = {
        "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"],
        *(each.removeprefix("lognode.").split(".")[0] for each in tool["packages"][1:]),
        *(f"{each}.py" for each in tool["py-modules"]), *tool["package-data"]["lognode"],
        *(source.split("/")[0] for each in tool["ext-modules"] for source in each["sources"]),
    }  # fmt: skip
    assert not [each for each in needed if not any(fnmatch(each, one) for one in allowed)]


def test_the_compose_file_follows_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(vendored.read_text("utf-8")))


def test_the_services_of_the_compose_file_are_nodes_that_know_each_other() -> None:
    nodes = {name: each for name, each in COMPOSE["services"].items() if name != "certificates"}
    found = {name: settings(each["command"]) for name, each in nodes.items()}
    joins = {each.join for each in found.values()}
    assert len(joins) == 1
    (join,) = joins
    assert sorted(join) == sorted(each.advertised for each in found.values())
    for name, each in nodes.items():
        mine = found[name]
        assert mine.bootstrap_expect == len(nodes)
        assert mine.advertised.split(":")[0] == each["hostname"] == name
        inside = {port.split(":")[-1] for port in each["ports"]}
        assert inside == {mine.listen.split(":")[1], mine.http.split(":")[1]}
        assert all(port.startswith("127.0.0.1:") for port in each["ports"])
        mounted = {volume.split(":")[1] for volume in each["volumes"]}
        assert {str(mine.data), str(mine.tls_cert.parent)} == mounted  # type: ignore[union-attr]
        assert seconds(each["stop_grace_period"]) > STOP_S
        servers = each["environment"]["LOGNODE_SERVER"].removeprefix("lognodes://").split(",")
        assert sorted(servers) == sorted(join)
    volumes = [volume.split(":")[0] for each in nodes.values() for volume in each["volumes"]]
    assert set(volumes) == set(COMPOSE["volumes"])
    assert len(set(volumes) - {"certificates"}) == len(nodes), "each node has a volume of its own"


@pytest.mark.parametrize("document", MANIFEST, ids=lambda each: each["kind"])
def test_each_document_of_the_manifest_follows_the_schema_of_kubernetes(
    document: dict[str, Any],
) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(document, "1.31", strict=True)


def test_the_documents_of_the_manifest_fit_each_other() -> None:
    stateful = KINDS["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    assert KINDS["Service"]["spec"]["selector"] == labels
    assert KINDS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert KINDS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert stateful["serviceName"] == KINDS["Service"]["metadata"]["name"]
    assert KINDS["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert stateful["podManagementPolicy"] == "Parallel", "nodes found the cluster together"
    assert KINDS["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    pod = stateful["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["terminationGracePeriodSeconds"] > STOP_S


def test_the_pods_of_the_manifest_are_nodes_that_know_each_other() -> None:
    stateful = KINDS["StatefulSet"]["spec"]
    (container,) = stateful["template"]["spec"]["containers"]
    found = [
        settings([each.replace("$(POD_NAME)", f"lognode-{n}") for each in container["args"]])
        for n in range(stateful["replicas"])
    ]
    for mine in found:
        assert mine.bootstrap_expect == len(found)
        assert sorted(mine.join) == sorted(each.advertised for each in found)
        assert mine.auth == "on"
        assert mine.tls_client_auth == "optional", "probes show no certificate"
    listened = [found[0].listen, found[0].peer_listened, found[0].http]
    ports = [int(address.rpartition(":")[2]) for address in listened]
    assert ports == [each["containerPort"] for each in container["ports"]] == list(PORTS.values())
    assert ports == [each["port"] for each in KINDS["Service"]["spec"]["ports"]]
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    for path in (found[0].data, found[0].tls_cert, found[0].tls_key, found[0].tls_ca):
        assert any(Path(mount) in Path(str(path)).parents for mount in mounts), path


def test_the_ports_of_the_files_and_the_page_are_the_defaults() -> None:
    default = config.Config()
    listened = (default.listen, default.peer_listened, default.http)
    assert [int(address.rpartition(":")[2]) for address in listened] == list(PORTS.values())
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    table = re.findall(r"^\| (\d+) \| `--([a-z-]+)`", page, re.MULTILINE)
    assert {name.replace("-", "_"): int(port) for port, name in table} == PORTS
