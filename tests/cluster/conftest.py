"""Clusters of real processes for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lognode import testing


@pytest.fixture
def three(tmp_path: Path) -> Iterator[testing.LocalCluster]:
    """Three nodes, every range and the controller on all of them."""
    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def one(tmp_path: Path) -> Iterator[testing.LocalCluster]:
    """One node alone."""
    with testing.cluster(tmp_path, 1) as cluster:
        testing.wait_healthy(cluster)
        yield cluster
