"""The operations over HTTP of the console on real nodes: pages, orders, rights, groups, reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_asking import Answer, asked

import lognode
from lognode import testing
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path, 1, auth=True) as found:
        with client_of(found) as client:
            orders = client.create_log("acme/orders", split_at=[b"m", b"t", b"\xff"])
            orders.append_many([(f"{key}{n}", b"v" * 100) for key in "anz" for n in range(50)])
            client.create_log("other")
            for name in ("a", "b"):
                with orders.consume(name) as consumer:
                    batch = next(iter(consumer))
                    batch.ack() if name == "a" else batch.reject("broken")
        testing.wait_healthy(found)
        yield found


def client_of(cluster: LocalCluster) -> lognode.Client:
    return lognode.Client(cluster.servers)


def ask(
    cluster: LocalCluster, path: str, body: Any = None, *, token: str | None = None,
    method: str | None = None,
) -> Answer:  # fmt: skip
    headers = {"Authorization": f"Bearer {token or cluster.token}"}
    return asked(
        cluster.nodes[0].http, method or ("GET" if body is None else "POST"), path, body,
        headers=headers,
    )  # fmt: skip


def restricted(cluster: LocalCluster, *scopes: str) -> str:
    """A token of these rights."""
    with client_of(cluster) as client:
        made: str = client.admin.create_token("someone", list(scopes))["token"]
        return made


def test_the_overview_has_the_verdict_and_sums(cluster: LocalCluster) -> None:
    found = ask(cluster, "/v1/status/overview").json
    assert (found["ok"], found["reasons"]) == (True, [])
    assert (found["nodes"], found["nodes_active"]) == (1, 1)
    assert found["ranges"] == sum(found["states"].values()) >= 6
    assert found["leaderless"] == 0
    assert found["cluster"]["answered_by"] == 1


def test_nodes_have_the_load_that_they_lead(cluster: LocalCluster) -> None:
    (node,) = ask(cluster, "/v1/status/nodes").json["nodes"]
    ranges = ask(cluster, "/v1/status/ranges").json
    assert (node["id"], node["state"], node["controller"]) == (1, "ACTIVE", "leader")
    assert node["leads"] == ranges["total"]


def test_pages_of_ranges_have_each_range_once_in_order(cluster: LocalCluster) -> None:
    path = "/v1/status/ranges?log=acme%2Forders"
    whole = ask(cluster, path).json
    assert [row["start"] for row in whole["ranges"]] == ["", "m", "t", {"b64": "/w=="}]
    assert (whole["total"], whole["next"]) == (4, None)
    for sort in ("key", "appends", "reads", "size", "changed"):
        found, offset = [], 0
        while offset is not None:
            page = ask(cluster, f"{path}&limit=3&offset={offset}&sort={sort}").json
            found += [row["id"] for row in page["ranges"]]
            offset = page["next"]
        assert sorted(found) == sorted(row["id"] for row in whole["ranges"])
    assert [row["id"] for row in ask(cluster, f"{path}&sort=size").json["ranges"]] == [
        row["id"] for row in sorted(whole["ranges"], key=lambda row: (-row["bytes"], row["id"]))
    ]
    assert ask(cluster, "/v1/status/ranges?sort=colour").status == 400
    assert ask(cluster, "/v1/status/ranges?log=none").json["total"] == 0


def test_a_token_sees_the_ranges_and_groups_of_its_logs_alone(cluster: LocalCluster) -> None:
    token = restricted(cluster, "describe other")
    found = ask(cluster, "/v1/status/ranges", token=token).json
    assert {row["log"] for row in found["ranges"]} == {"other"}
    assert "start" not in found["ranges"][0]
    assert ask(cluster, "/v1/status/groups", token=token).json["groups"] == []
    overview = ask(cluster, "/v1/status/overview", token=token).json
    assert overview["ranges"] == 1
    for part in ("storage", "settings", "connections"):
        assert ask(cluster, f"/v1/status/{part}", token=token).status == 403
    nobody = asked(cluster.nodes[0].http, "GET", "/v1/status/overview")
    assert nobody.status == 401


def test_groups_come_in_pages_with_exact_lag(cluster: LocalCluster) -> None:
    with client_of(cluster) as client:
        for n in range(20):
            client.create_log(f"few-{n:02}", exist_ok=True)
        with client.log("few-19").consume("last") as consumer:
            consumer.open()
    names, after, pages = [], "", 0
    while after is not None:
        page = ask(cluster, f"/v1/status/groups?limit=1&after={after}").json
        names += [(row["log"], row["name"]) for row in page["groups"]]
        after, pages = page["next"], pages + 1
    assert names == [("acme/orders", "a"), ("acme/orders", "b"), ("few-19", "last")]
    assert pages > 1
    only = ask(cluster, "/v1/status/groups?log=few-19").json
    assert [row["name"] for row in only["groups"]] == ["last"]
    assert ask(cluster, "/v1/status/groups?log=none").status == 404
    lag = ask(cluster, "/v1/logs/acme%2Forders/groups/a/lag").json
    assert (lag["entries"], lag["parked"]) == (149, 0)
    assert ask(cluster, "/v1/logs/acme%2Forders/groups/none/lag").status == 404


def test_a_parked_key_is_retried_or_skipped_by_those_who_may(cluster: LocalCluster) -> None:
    path = "/v1/logs/acme%2Forders/groups/b"
    with client_of(cluster) as client:
        group = client.log("acme/orders").group("b")
        (key,) = [row.key.decode() for row in group.parked()]
    parked = ask(cluster, f"{path}/parked").json
    assert (parked["count"], parked["parked"][0]["key"]) == (1, key)
    assert parked["parked"][0]["error"] == "broken"
    reader = restricted(cluster, "describe,read acme/orders")
    assert ask(cluster, f"{path}/retry", {"key": key}, token=reader).status == 403
    assert ask(cluster, f"{path}/retry", {"key": "never"}).status == 409
    assert ask(cluster, f"{path}/retry", {"key": key}).status == 204
    assert ask(cluster, f"{path}/parked").json == {"parked": [], "count": 0}
    skipped = ask(cluster, f"{path}/skip", {"key": key, "why": "tested"})
    assert (skipped.status, skipped.json["through"]) == (200, parked["parked"][0]["position"])
    assert ask(cluster, f"{path}/skip", {"key": key, "through": 1}).status == 400


def test_hot_keys_are_those_of_the_status(cluster: LocalCluster) -> None:
    found = ask(cluster, "/v1/status/hot-keys").json
    assert found["total"] == len(found["hot_keys"])


def test_a_node_reports_its_storage_settings_and_connections(cluster: LocalCluster) -> None:
    storage = ask(cluster, "/v1/status/storage?limit=2").json
    assert storage["node"] == 1
    assert (len(storage["replicas"]), storage["next"]) == (2, 2)
    assert storage["facts"]["disk_free_bytes"] > 0
    assert storage["facts"]["wal_files"] >= 1
    rest = ask(cluster, "/v1/status/storage?offset=2&limit=500&node=1").json
    assert len(rest["replicas"]) == rest["total"] - 2
    settings = {row["name"]: row for row in ask(cluster, "/v1/status/settings").json["settings"]}
    assert settings["auth"] == {"name": "auth", "value": "on", "source": "flag --auth"}
    assert settings["balance"]["source"] == "default"
    with client_of(cluster) as client:
        client.health()
        rows = ask(cluster, "/v1/status/connections").json["connections"]
    assert {row["principal"] for row in rows} >= {"admin"}
    assert all(row["address"].startswith("127.0.0.1:") for row in rows)
    assert ask(cluster, "/v1/status/storage?node=9").status == 404
