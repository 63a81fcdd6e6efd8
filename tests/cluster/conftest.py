"""Clusters of real processes for the tests of this folder."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_raw import kafka_cluster, started

import lognode
from lognode import testing


@pytest.fixture(scope="module")
def shared_three(module_path: Path) -> Iterator[testing.LocalCluster]:
    """Three nodes for all tests of a file: growing to three takes longer than most of them.

    Ranges stay with their leaders, since tests look who that is and then do something to it.
    """
    flags = ("--balance", "off")
    with testing.cluster(module_path, 3, flags=flags) as cluster:
        yield cluster


@pytest.fixture
def three(shared_three: testing.LocalCluster) -> testing.LocalCluster:
    """Three nodes that all run, every range and the controller on each of them.

    Shared with the other tests of the file: each takes a log of its own.
    """
    for node in shared_three.nodes:
        node.start()
    for node in shared_three.nodes:
        node.wait_ready()
    testing.wait_healthy(shared_three)
    return shared_three


@pytest.fixture(scope="module")
def kafka(module_path: Path) -> Iterator[testing.LocalCluster]:
    """Three nodes that serve Kafka clients, for all tests of a file."""
    with kafka_cluster(module_path) as cluster:
        yield cluster


@pytest.fixture
def client(kafka: testing.LocalCluster) -> Iterator[lognode.Client]:
    """A client of the nodes that serve Kafka clients, which all run.

    Files with another cluster have a fixture of this name of their own.
    """
    started(kafka)
    with lognode.Client(kafka.servers) as client:
        yield client


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with mounted(tmp_path / "small", "48m") as place:
        yield place


@pytest.fixture
def disk_of_200_mb(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MB."""
    with mounted(tmp_path / "small", "200000000") as place:
        yield place


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A file system of that size, in memory."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a tmpfs needs root")
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "lognode-test", str(place)],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
