"""Nodes that serve Kafka clients, and the processes of a suite."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from lognode import testing


@contextlib.contextmanager
def brokers(
    root: Path, nodes: int, partitions: int, fixed: Sequence[str], advertised: Sequence[str]
) -> Iterator[str]:
    """Start nodes which create topics with so many partitions; yield their addresses.

    `fixed`: these addresses; without any they are free ports. `advertised`: the addresses that the
    nodes give to clients, if not their own.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    flags = ("--balance", "off", "--kafka-auto-create", str(partitions))
    with (
        _reserved(advertised) as reserved,
        testing.cluster(root, nodes, flags=flags, start=False) as cluster,
    ):
        addresses = fixed or [f"127.0.0.1:{port}" for port in testing.free_ports(nodes)]
        for node, address in zip(cluster.nodes, addresses, strict=True):
            node._flags = (*node._flags, "--kafka", address)
        for node, address in zip(cluster.nodes, advertised, strict=False):
            node._flags = (*node._flags, "--kafka-advertise", address)
        cluster.start()
        testing.wait_healthy(cluster)
        reserved.close()
        yield ",".join(addresses)


def _reserved(addresses: Sequence[str]) -> contextlib.ExitStack:
    """Return what keeps nodes from taking these addresses for themselves, until it is closed."""
    held = contextlib.ExitStack()
    for address in addresses:
        host, _, port = address.rpartition(":")
        held.enter_context(socket.create_server((host, int(port))))
    return held


def run(
    command: Sequence[str | Path], where: Path, *, log: Path | None = None,
    given: str | None = None, limit_s: float = 1_800, **environment: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a command to its end; what it prints goes to `log`, or is returned. A command that takes
    too long is ended, and its exit code is 124."""
    told = ["timeout", "--kill-after=10", str(limit_s), *map(str, command)]
    environ = {**os.environ, **environment}
    if log is None:
        return subprocess.run(
            told, cwd=where, env=environ, input=given, capture_output=True, text=True, check=False
        )
    with log.open("w") as file:
        return subprocess.run(
            told, cwd=where, env=environ, input=given, stdout=file, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip


def must(command: Sequence[str | Path], where: Path, **environment: str) -> str:
    """Run a command that prepares a suite; return what it prints. Raises SystemExit when the
    command fails."""
    done = run(command, where, **environment)
    if done.returncode:
        shown = " ".join(map(str, command))
        raise SystemExit(f"{shown} failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return done.stdout


def maven(work: Path, *artifacts: str) -> list[Path]:
    """Return the jars of artifacts (group:name:version) and of what they need."""
    rows = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        rows.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    project = work / "maven"
    project.mkdir(parents=True, exist_ok=True)
    (project / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>lognode</groupId><artifactId>outside</artifactId><version>1</version>"
        f"<dependencies>{''.join(rows)}</dependencies></project>"
    )
    jars = project / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    must(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], project)
    return sorted(jars.iterdir())
