"""The feature level in a data directory: programs that do not know it end at their start."""

from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, Unsupported
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.node.directory import meta_keys
from lognode.node.directory.feature_level import check_level, note, refused
from lognode.node.joining.membership import check_not_refused
from lognode.statemachine.meta import LmdbMeta


@pytest.fixture
def meta(tmp_path: Path) -> Any:
    store = LmdbMeta(tmp_path / "meta.mdb")
    yield store
    store.close()


def test_a_directory_without_a_level_starts_with_every_version(meta: LmdbMeta) -> None:
    check_not_refused(meta)
    assert refused(meta.get) is None


def test_an_earlier_version_finds_a_refusal_and_this_one_does_not(meta: LmdbMeta) -> None:
    note(meta, 2)
    # What versions from before feature levels read, and how they say it.
    told = (
        f"this data directory was refused by its cluster: {meta.get('refused')}; give the node an "
        "empty directory and --join"
    )
    assert "the cluster is at feature level 2" in told
    assert "start the version that ran here last, and nothing is lost" in told
    check_not_refused(meta)


def test_a_version_that_does_not_know_the_level_does_not_start(meta: LmdbMeta) -> None:
    note(meta, LEVEL_MAX + 1)
    with pytest.raises(Unsupported, match="does not start: the cluster is at feature "
                       f"level {LEVEL_MAX + 1}, and this version of lognode knows levels 1 to "
                       f"{LEVEL_MAX}: start a later"):  # fmt: skip
        check_not_refused(meta)
    with pytest.raises(Unsupported):
        check_level(LEVEL_MAX + 1)


def test_x2_24_a_refusal_by_the_cluster_stays(meta: LmdbMeta) -> None:
    meta.commit({meta_keys.REFUSED: "node 2 was removed"})
    note(meta, 2)
    with pytest.raises(Conflict, match="node 2 was removed; give the node an empty directory"):
        check_not_refused(meta)
    meta.commit({meta_keys.REFUSED: None})
    note(meta, 2)
    check_not_refused(meta)


def test_a_refusal_after_the_level_is_heeded(meta: LmdbMeta) -> None:
    note(meta, 2)
    meta.commit({meta_keys.REFUSED: "it is an old copy"})
    note(meta, 2)
    with pytest.raises(Conflict, match="it is an old copy"):
        check_not_refused(meta)


def test_a_directory_follows_to_a_higher_level(meta: LmdbMeta) -> None:
    note(meta, 1)
    check_not_refused(meta)
    note(meta, 2)
    check_not_refused(meta)
    assert meta.get(meta_keys.LEVEL) == 2
