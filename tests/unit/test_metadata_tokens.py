"""Tokens in the metadata: who may lock the door, bounds, repetitions."""

from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.protocol import limits
from lognode.client.protocol.levels import SCRAM_FROM
from lognode.client.protocol.scopes import Scope, parse_scope
from lognode.partitions.metadata import Metadata
from lognode.partitions.tokens import first_token

DAY_MS = 24 * 3_600 * 1_000
NOW_MS = 1_000 * DAY_MS


class Cluster(Controller):
    """A controller's log with one node."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes(1)

    def create(self, name: str = "app", *scopes: str, **fields: Any) -> dict[str, Any]:
        token = tokens.draw()
        told = {
            "id": tokens.id_of(token),
            "digest": tokens.digest_of(token),
            "principal": name,
            "scopes": [parse_scope(text).to_wire() for text in scopes or ("all",)],
            "at_ms": NOW_MS,
        }
        return self.do("create_token", **{**told, **fields})


def id_of(answer: dict[str, Any]) -> str:
    found: str = answer["ok"]["id"]
    return found


def test_the_first_token_turns_authorisation_on_and_rules_for_ever() -> None:
    cluster = Cluster()
    for scopes, fields in (
        (["read"], {}),
        (["all acme/*"], {}),
        (["all"], {"expires_ms": NOW_MS + 1}),
    ):
        assert cluster.create("app", *scopes, **fields)["error"]["code"] == "CONFLICT"
        assert not cluster.metadata.has_auth
    assert "ok" in cluster.create("admin", "read", "admin")
    assert cluster.metadata.has_auth
    assert "ok" in cluster.create("app", "read")


def test_the_last_token_that_rules_stays() -> None:
    cluster = Cluster()
    first = id_of(cluster.create("admin"))
    app = id_of(cluster.create("app", "read"))
    assert cluster.do("revoke_token", id=first)["error"]["code"] == "CONFLICT"
    mortal = id_of(cluster.create("admin", expires_ms=NOW_MS + DAY_MS))
    assert cluster.do("revoke_token", id=first)["error"]["code"] == "CONFLICT"
    second = id_of(cluster.create("admin"))
    assert "ok" in cluster.do("revoke_token", id=first)
    assert cluster.do("revoke_token", id=second)["error"]["code"] == "CONFLICT"
    for gone in (app, mortal):
        assert "ok" in cluster.do("revoke_token", id=gone)
        assert cluster.do("revoke_token", id=gone)["error"]["code"] == "NOT_FOUND"
    assert set(cluster.metadata.tokens) == {second}


def test_creating_a_token_twice_is_creating_it_once() -> None:
    cluster = Cluster()
    token = tokens.draw()
    told = {"id": tokens.id_of(token), "digest": tokens.digest_of(token)}
    assert "ok" in cluster.create("admin", **told)
    assert "ok" in cluster.create("admin", **told, at_ms=NOW_MS + 5)
    assert len(cluster.metadata.tokens) == 1
    for other in ({"principal": "eve"}, {"digest": bytes(32)}, {"quota_class": "gold"}):
        assert cluster.create("admin", **{**told, **other})["error"]["code"] == "CONFLICT"


def test_a_cluster_is_founded_with_its_first_token() -> None:
    controller = Controller()
    token = tokens.draw()
    first = {**first_token(tokens.id_of(token), tokens.digest_of(token)), "at_ms": NOW_MS}
    bad = {**first, "scopes": [Scope(frozenset({"read"})).to_wire()]}
    assert "error" in controller.do("found", cluster="c", node=1, token=bad)
    assert controller.metadata.cluster_id == ""
    assert "ok" in controller.do("found", cluster="c", node=1, token=first)
    assert controller.metadata.has_auth
    assert "ok" in controller.do("found", cluster="c", node=1, token=first)
    (record,) = controller.metadata.tokens.values()
    assert (record.principal, record.rules_for_ever) == ("admin", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "short"}, {"id": None}, {"id": "G" * 16}, {"digest": None}, {"digest": bytes(31)},
        {"digest": "text"}, {"certificate": "client app"}, {"certificate": 7},
        {"principal": "1app"}, {"principal": ""}, {"principal": "a b"}, {"principal": "x" * 65},
        {"principal": "node 1"}, {"principal": "127.0.0.1"}, {"scopes": []}, {"scopes": None},
        {"scopes": [["read"]]}, {"scopes": [[["fly"], "*", b"*"]]}, {"scopes": {"read": 1}},
        {"expires_ms": NOW_MS}, {"expires_ms": -1}, {"expires_ms": "x"},
        {"quota_class": "x" * 65}, {"quota_class": "a\nb"},
        {"scram": bytes(191)}, {"scram": "x" * 192},
        {"scram": bytes(192), "digest": None, "certificate": "client app"},
    ],
)  # fmt: skip
def test_a_bad_token_is_refused(fields: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.create("admin")
    assert cluster.create("app", "read", **fields)["error"]["code"] == "INVALID_ARGUMENT", fields


def test_keys_for_scram_need_their_level_and_stay_with_the_token() -> None:
    cluster = Cluster()
    cluster.create("admin")
    keys = bytes(range(192))
    refused = cluster.create("early", "read", scram=keys)["error"]
    assert refused["code"] == "UNSUPPORTED"
    assert "SCRAM needs level 6. Run `lognode cluster finalize`" in refused["message"]
    cluster.metadata.feature_level = SCRAM_FROM
    before = cluster.create("plain", "read")["ok"]
    assert "scram" not in before
    made = cluster.create("app", "read", scram=keys)["ok"]
    assert made["scram"] is True
    read = Metadata.from_image(cluster.metadata.image())
    assert read.tokens == cluster.metadata.tokens
    assert read.tokens[made["id"]].scram == keys
    assert read.tokens[made["id"]].to_row()["scram"] is True
    assert "scram" not in read.tokens[before["id"]].to_image(), "as earlier versions write it"
    assert keys[:9].hex() not in repr(read.tokens[made["id"]])
    assert str(keys[:9])[2:-1] not in repr(read.tokens[made["id"]])


def test_a_certificate_has_one_record() -> None:
    cluster = Cluster()
    cluster.create("admin")
    by_name = {"digest": None, "certificate": "client app"}
    assert "ok" in cluster.create("app", "read", **by_name)
    assert cluster.create("app", "append", **by_name)["error"]["code"] == "CONFLICT"


def test_expired_tokens_are_kept_for_a_day_and_then_make_room() -> None:
    cluster = Cluster()
    admin = id_of(cluster.create("admin"))
    app = id_of(cluster.create("app", "read", expires_ms=NOW_MS + 10))
    soon = id_of(cluster.create("b", "read", at_ms=NOW_MS + DAY_MS))
    assert {admin, app, soon} == set(cluster.metadata.tokens)
    late = id_of(cluster.create("c", "read", at_ms=NOW_MS + DAY_MS + 10))
    assert {admin, soon, late} == set(cluster.metadata.tokens)


def test_tokens_are_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.create("admin")
    monkeypatch.setattr(limits, "tokens_max", 3)
    assert "ok" in cluster.create("a", "read")
    assert "ok" in cluster.create("b", "read")
    refused = cluster.create("c", "read")["error"]
    assert (refused["code"], refused["fields"]["limit"]) == ("LIMIT_EXCEEDED", "tokens_max")
    monkeypatch.setattr(limits, "tokens_max", 100)
    monkeypatch.setattr(limits, "tokens_bytes_max", 2_000)
    long = [f"read {'x' * 100} {'k' * 100}"] * limits.token_scopes_max
    refused = cluster.create("c", *long)["error"]
    assert (refused["code"], refused["fields"]["limit"]) == ("LIMIT_EXCEEDED", "tokens_bytes_max")


def test_an_image_of_a_version_without_tokens_is_read() -> None:
    cluster = Cluster()
    image = cluster.metadata.image()
    assert not {"tokens_version", "tokens"} & set(image)
    read = Metadata.from_image(image)
    assert (read.has_auth, read.tokens) == (False, {})


def test_a_record_does_not_show_its_digest() -> None:
    cluster = Cluster()
    cluster.create("admin")
    (record,) = cluster.metadata.tokens.values()
    assert record.digest.hex() not in repr(record)
    assert repr(record.digest) not in repr(record)
    assert "digest" not in record.to_row()
