"""Quotas of what there may be at a time: connections, follows, logs and names of producers."""

from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol.chunks import Chunk, Chunks
from lognode.client.protocol.errors import InvalidArgument, Overloaded
from lognode.client.protocol.quotas import OF_CLASSES, OF_TENANTS
from lognode.node.audit.usage_trail import UsageTrail
from lognode.node.quota.gate import count_answer
from lognode.node.quota.quotas import READ_BYTES, READ_RECORDS, Quotas
from lognode.partitions.quota import changed

KEY = b"0123456789abcdef"


def test_classes_and_tenants_have_limits_of_their_own_kinds() -> None:
    assert changed({}, "gold", dict.fromkeys(OF_CLASSES, 3)) == dict.fromkeys(OF_CLASSES, 3)
    assert changed({}, "acme/", dict.fromkeys(OF_TENANTS, 3)) == dict.fromkeys(OF_TENANTS, 3)
    for name, kind in (("gold", "logs"), ("acme/", "connections"), ("acme/", "producers")):
        with pytest.raises(InvalidArgument, match=f"a quota of '{name}' cannot limit {kind}"):
            changed({}, name, {kind: 3})


def test_a_principal_has_as_many_connections_as_its_class_allows() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"gold": {"connections": 2}})
    ann, bob = (quotas.principal(name, "gold") for name in ("ann", "bob"))
    for count in (1, 2):
        ann.check("connections", count)
        bob.check("connections", count)
    with pytest.raises(Overloaded, match="ann would have 3 connections") as caught:
        ann.check("connections", 3)
    assert caught.value.fields["quota"] == "connections"
    assert caught.value.fields["retry_after"] > 0
    quotas.learn({})
    ann.check("connections", 3)


def test_entries_count_as_read_in_every_form_in_which_they_travel() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"gold": {"read_records": 1_000}})
    chunk = Chunk.of([b"k"] * 3, [1, 2, 3], [1, 1, 1], [b"v"] * 3, {}, [])
    bodies: list[dict[str, Any]] = [
        {"seqs": [1, 2, 3, 4, 5, 6]}, {"page": {"seqs": [1, 2, 3, 4, 5, 6]}},
        {"chunks": Chunks([chunk, chunk])},
    ]  # fmt: skip
    for number, body in enumerate(bodies):
        reader = quotas.principal(f"reader {number}", "gold")
        payer = quotas.payer(reader, None)
        count_answer(payer, 100, body)
        assert (payer.used[READ_RECORDS], payer.used[READ_BYTES]) == (6, 100)


def test_follows_count_for_the_principal_and_the_tenant_until_they_end() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn({"gold": {"follows": 2}, "acme/": {"follows": 3}})
    acme = quotas.tenant("acme/")
    ann, bob, eve = (
        quotas.payer(quotas.principal(name, quota), acme)
        for name, quota in (("ann", "gold"), ("bob", "gold"), ("eve", "default"))
    )
    with ann.follows(), ann.follows():
        with pytest.raises(Overloaded, match="principal ann would have 3 follows"), ann.follows():
            raise AssertionError
        with (
            bob.follows(),
            pytest.raises(Overloaded, match="tenant acme/ would have 4"),
            eve.follows(),
        ):
            raise AssertionError
        with eve.follows():
            assert acme.follows == 3
    assert (ann.principal.follows, acme.follows) == (0, 0)


def test_a_tenant_has_as_many_logs_as_its_quota_allows() -> None:
    controller = Controller().nodes(1)
    controller.do("set_quota", name="acme/", limits={"logs": 2})
    for name in ("acme/a", "other/a", "acme/b", "a"):
        assert "ok" in controller.do("create_log", name=name)
    error = controller.do("create_log", name="acme/c")["error"]
    assert error["code"] == "LIMIT_EXCEEDED"
    assert "tenant acme/ would have 3 logs, and its quota allows 2" in error["message"]
    assert "ok" in controller.do("create_log", name="acme/a", exist_ok=True)
    assert "ok" in controller.do("create_log", name="acmeter")
    controller.do("delete_log", name="acme/a")
    assert "ok" in controller.do("create_log", name="acme/c")


def test_a_principal_has_as_many_names_of_producers_as_its_class_allows() -> None:
    controller = Controller().nodes(1)

    def opened(name: str, owner: str) -> dict[str, Any]:
        answer: dict[str, Any] = controller.do(
            "open_named", name=name, owner=owner, at_ms=5, key=KEY, allowed=2
        )
        return answer

    for name in ("a", "b"):
        assert "ok" in opened(name, "ann")
    error = opened("c", "ann")["error"]
    assert (error["code"], error["fields"]["limit"]) == ("LIMIT_EXCEEDED", "quota of producers")
    assert "ok" in opened("a", "ann"), "a name that is known takes no more room"
    assert "ok" in opened("c", "bob")


def test_X7_the_usage_log_has_what_changed_since_the_node_started() -> None:
    quotas = Quotas(lambda: 0.0)
    told: list[tuple[bytes, dict[str, Any]]] = []
    trail = UsageTrail(3, 7, quotas, lambda: 5_000, lambda key, row: told.append((key, row)))
    payer = quotas.payer(quotas.principal("ann", "default"), quotas.tenant("acme/"))
    for name in ("idle/", ""):
        quotas.tenant(name)
    trail.write()
    assert told == []
    payer.use(2, 100.4)
    trail.write()
    trail.write()
    ((key, row),) = told
    assert (key, row["tenant"], row["node"], row["boot"]) == (b"acme", "acme/", 3, 7)
    assert (row["since_ms"], row["read_bytes"], row["requests"]) == (5_000, 100, 0)
    payer.use(2, 50)
    trail.write()
    assert told[-1][1]["read_bytes"] == 150, "since the start, and not since the last record"
