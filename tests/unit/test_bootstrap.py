"""Who founds a cluster when several empty nodes are started together, and who waits for what."""

import asyncio
import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, InvalidArgument, Unavailable
from lognode.node.config import Config
from lognode.node.joining.bootstrap import Found, Heard, Join, Wait, decide, members_of
from lognode.node.serving.cluster_service import ClusterService
from lognode.partitions.metadata import Metadata

ALL = frozenset({"a:1", "b:1", "c:1"})
EMPTY = Heard(members=ALL)
OF_C1 = Heard(cluster="c1")
ABOUT_TO = Heard(members=ALL, joins="c1")


@pytest.mark.parametrize(
    ("me", "joins", "heard", "step"),
    [
        ("a:1", None, {"b:1": EMPTY, "c:1": EMPTY}, Found()),
        ("b:1", None, {"a:1": EMPTY, "c:1": EMPTY}, "a:1 founds"),
        ("a:1", None, {"b:1": EMPTY}, "no answer from c:1"),
        ("a:1", None, {}, "no answer from b:1, c:1"),
        # The founder's disk is lost, or not mounted: the others have not forgotten it.
        ("a:1", None, {"b:1": OF_C1, "c:1": EMPTY}, Join("c1", ("b:1",))),
        ("a:1", None, {"c:1": OF_C1}, Join("c1", ("c:1",))),
        ("c:1", None, {"a:1": OF_C1, "b:1": OF_C1}, Join("c1", ("a:1", "b:1"))),
        # It was taken in by a founder that is lost, and may not have stored that it was.
        ("a:1", None, {"b:1": EMPTY, "c:1": ABOUT_TO}, "c:1 was about to join cluster c1"),
        ("a:1", "c1", {"b:1": EMPTY, "c:1": EMPTY}, "a:1 was about to join cluster c1, but no"),
        ("a:1", "c1", {"b:1": OF_C1}, Join("c1", ("b:1",))),
        (
            "a:1", None, {"b:1": EMPTY, "c:1": Heard(members=frozenset({"a:1", "c:1"}))},
            "c:1 has another --join: a:1, c:1",
        ),
    ],
)  # fmt: skip
def test_x24_nobody_founds_a_second_cluster(
    me: str, joins: str | None, heard: dict[str, Heard], step: Any
) -> None:
    decided = decide(me, ALL, joins, heard)
    if isinstance(step, str):
        assert isinstance(decided, Wait)
        assert step in decided.reason
    else:
        assert decided == step


def test_nodes_of_several_clusters_are_joined_by_nobody() -> None:
    with pytest.raises(Conflict, match=r"several clusters \(b:1: c1; c:1: c2\)"):
        decide("a:1", ALL, None, {"b:1": OF_C1, "c:1": Heard(cluster="c2")})


def test_one_node_that_expects_itself_founds() -> None:
    assert decide("a:1", frozenset({"a:1"}), None, {}) == Found()


@pytest.mark.parametrize(
    ("join", "expect", "told"),
    [
        (("a:1", "b:1", "c:1"), 3, None),
        (("b:1", "c:1"), 3, None),  # its own address may be left out
        ((), 1, None),
        (
            (),
            3,
            "--bootstrap-expect is 3, but --join and this node's own address make 1 addresses: a:1",
        ),
        (
            ("b:1", "c:1"),
            2,
            "2, but --join and this node's own address make 3 addresses: a:1, b:1, c:1",
        ),
    ],
)
def test_as_many_addresses_as_nodes(join: tuple[str, ...], expect: int, told: str | None) -> None:
    config = replace(Config(), listen="a:1", join=join, bootstrap_expect=expect)
    if told is None:
        assert members_of(config) == frozenset({"a:1", *join})
    else:
        with pytest.raises(InvalidArgument, match=re.escape(told)):
            members_of(config)


def test_nobody_joins_before_the_founder_has_registered() -> None:
    """It got the founder's id, and the founder was refused as a copy of it and ended."""
    view: Any = SimpleNamespace(metadata=Metadata())
    unused: Any = None
    recoveries: Any = SimpleNamespace(report=None)
    service = ClusterService(
        node_id=lambda: 1, host=unused, view=view, connection=lambda _: None, status=unused,
        rng=random.Random(1), handover=unused, recoveries=recoveries, room=unused,
        images=unused, wall_ms=lambda: 0, alive=set,
    )  # fmt: skip
    with pytest.raises(Unavailable, match="is being founded"):
        asyncio.run(service.join({"incarnation": 7}))
