"""The policy of a log: what may be asked for, together, and changed later."""

from typing import Any

import pytest

from lognode.client.protocol.errors import InvalidArgument, Unsupported, from_wire
from lognode.client.protocol.levels import COMPACT_AND_DELETE_FROM, TIER_ONLY_FROM
from lognode.partitions import commands, levels, policy
from lognode.partitions.metadata import Metadata
from lognode.partitions.policy import Policy, altered, of_request

DAY = 24 * 3_600_000


def test_omitted_rules_have_their_defaults() -> None:
    assert of_request({"name": "x"}) == Policy()
    assert not Policy().removes
    assert of_request({"cleanup": "compact"}).tombstones_ms == policy.delete_retention_default_ms
    assert of_request({"cleanup": "compact", "delete_retention_ms": 0}).tombstones_ms == 0


@pytest.mark.parametrize(
    "body",
    [
        {"retention_ms": 1, "retention_bytes": 1, "snapshot_delay_ms": 0},
        {"cleanup": "compact"},
        {"cleanup": "compact", "delete_retention_ms": 5},
        {"cleanup": "delete", "retention_ms": DAY},
        {"cleanup": "compact,delete", "retention_ms": DAY, "retention_bytes": 1},
        {"cleanup": "compact,delete", "delete_retention_ms": 5},
    ],
)
def test_policies_that_remove(body: dict[str, Any]) -> None:
    assert of_request(body).removes


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"cleanup": "never"},
            "cleanup is 'never'; delete or compact or compact,delete is allowed",
        ),
        ({"retention_ms": 0}, "retention_ms is 0; give a whole number of 1 or more"),
        ({"retention_bytes": -1}, "retention_bytes is -1"),
        ({"retention_ms": "7d"}, "retention_ms is '7d'"),
        ({"retention_ms": True}, "retention_ms is True"),
        ({"snapshot_delay_ms": 1.5}, "snapshot_delay_ms is 1.5"),
        ({"replicas": 8}, "8 replicas; 1 to 7"),
        (
            {"cleanup": "compact", "retention_ms": 5},
            "compact and retention_ms is 5: compaction keeps",
        ),
        ({"cleanup": "compact", "retention_bytes": 5}, "retention_bytes would remove it"),
        ({"cleanup": "compact", "snapshot_delay_ms": 0}, "unset one of the two"),
        (
            {"cleanup": "compact,delete", "snapshot_delay_ms": 0},
            "compact,delete and snapshot_delay_ms is 0",
        ),
        (
            {"cleanup": "compact,delete", "local_retention_bytes": 5},
            "compact,delete and local_retention_bytes is 5",
        ),
        ({"cleanup": "delete,compact"}, "cleanup is 'delete,compact'"),
        ({"local_retention_bytes": 0}, "local_retention_bytes is 0; give a whole number of 1"),
        ({"cleanup": "compact", "local_retention_bytes": 5}, "compaction rewrites the oldest"),
        ({"delete_retention_ms": 5}, "and needs cleanup compact"),
        ({"cleanup": ["compact"]}, "cleanup is ['compact']"),
    ],
)
def test_contradictory_rules_are_refused_with_the_reason(
    body: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        of_request(body)
    assert message in refused.value.message


def test_altering_changes_what_is_named_and_nil_takes_a_rule_away() -> None:
    first = Policy(replicas=5, retention_ms=DAY, retention_bytes=9, ranges_min=4)
    assert altered(first, {"retention_ms": None}) == Policy(
        replicas=5, retention_bytes=9, ranges_min=4
    )
    assert altered(first, {"snapshot_delay_ms": 1}).retention_ms == DAY
    compact = {"cleanup": "compact", "retention_ms": None, "retention_bytes": None}
    assert altered(first, compact).cleanup == "compact"
    assert altered(altered(first, compact), {"cleanup": None}).cleanup == "delete"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cleanup": "compact"}, "unset one of the two"),
        ({"replicas": 5}, "the replicas of a log cannot change: create another log"),
        ({"ranges": 5}, "the ranges of a log cannot change"),
        ({"ranges_min": 5}, "the policy 'ranges_min' does not exist; retention_ms, "),
        ({7: 5}, "the policy 7 does not exist"),
        ({}, "no change is given; give one of retention_ms"),
        (None, "a map of names"),
        ([], "a map of names"),
    ],
)
def test_an_immutable_rule_is_named_in_the_error(changes: object, message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        altered(Policy(retention_ms=DAY), changes)
    assert message in refused.value.message


def test_a_policy_without_a_bound_of_local_disks_is_as_earlier_versions_write_it() -> None:
    assert "local_retention_bytes" not in Policy().to_image()
    bounded = of_request({"local_retention_bytes": 7})
    assert bounded.to_body()["local_retention_bytes"] == 7
    assert Policy(**bounded.to_image()) == bounded
    assert altered(bounded, {"local_retention_bytes": None}) == Policy()
    assert not bounded.removes


@pytest.mark.parametrize("level", [TIER_ONLY_FROM - 1, TIER_ONLY_FROM])
def test_files_in_the_tier_only_need_a_feature_level(level: int) -> None:
    levels.check_local_retention(level, {"retention_ms": 1})
    if level >= TIER_ONLY_FROM:
        levels.check_local_retention(level, {"local_retention_bytes": 1})
        return
    for value in (1, None):
        with pytest.raises(Unsupported, match="the cluster is at feature level 3"):
            levels.check_local_retention(level, {"local_retention_bytes": value})


def test_members_of_earlier_versions_answer_a_change_of_a_policy_alike() -> None:
    """A member of an earlier version refuses changes with a name that it does not know. So each
    member must refuse all of the changes before the level is raised."""
    metadata = Metadata()
    found = {"cluster": "c" * 32, "node": 1}
    node = {"node": 1, "incarnation": 1, "boot": 1, "process": 1, "address": "h:1", "peer": "",
            "http": "", "zone": "", "key": ""}  # fmt: skip
    changes = {"retention_ms": 9, "local_retention_bytes": None}
    for index, (op, fields) in enumerate(
        [
            (commands.FOUND, found),
            (commands.REGISTER, node),
            (commands.CREATE_LOG, {"name": "orders", "local_retention_bytes": None}),
            (commands.ALTER_LOG, {"name": "orders", "changes": changes}),
        ],
        2,
    ):
        answer = metadata.apply(index, 1, {"op": op, **fields})
    assert from_wire(answer["error"]).code == Unsupported.code
    assert metadata.log_named("orders").policy.retention_ms is None


@pytest.mark.parametrize("level", [COMPACT_AND_DELETE_FROM - 1, COMPACT_AND_DELETE_FROM])
def test_a_compacted_log_with_a_retention_needs_a_feature_level(level: int) -> None:
    """A member of an earlier version refuses the rule, and would keep other records."""
    metadata = Metadata()
    found = {"cluster": "c" * 32, "node": 1}
    node = {"node": 1, "incarnation": 1, "boot": 1, "process": 1, "address": "h:1", "peer": "",
            "http": "", "zone": "", "key": "", "levels": [1, level]}  # fmt: skip
    rules = {"cleanup": "compact,delete", "retention_ms": 9}
    metadata.apply(2, 1, {"op": commands.FOUND, **found})
    metadata.feature_level = level
    metadata.apply(3, 1, {"op": commands.REGISTER, **node})
    metadata.apply(4, 1, {"op": commands.CREATE_LOG, "name": "old"})
    made = metadata.apply(5, 1, {"op": commands.CREATE_LOG, "name": "new", **rules})
    changed = metadata.apply(6, 1, {"op": commands.ALTER_LOG, "name": "old", "changes": rules})
    if level < COMPACT_AND_DELETE_FROM:
        for answer in (made, changed):
            error = from_wire(answer["error"])
            assert error.code == Unsupported.code
            assert "this cleanup needs level 7. Run `lognode cluster finalize`" in error.message
        assert "new" not in metadata.logs.ids
        assert metadata.log_named("old").policy == Policy()
    else:
        for name in ("old", "new"):
            policy = metadata.log_named(name).policy
            assert policy.compacts
            assert policy.retention_ms == 9
