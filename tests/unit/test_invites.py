"""Invitations of new nodes: their text, and what the metadata makes of them (X4)."""

import os
from pathlib import Path
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import invitation, limits, tokens
from lognode.client.errors import InvalidArgument
from lognode.client.invitation import Invitation, parse, read_invitation
from lognode.client.private_files import write_private

CLUSTER, CA = "0123456789abcdef" * 2, "fedcba9876543210" * 4
HOUR_MS = 3_600_000
KEY = "a" * 64


@pytest.fixture
def one() -> Controller:
    """A cluster of one node, which has a key."""
    controller = Controller()
    controller.do("found", cluster="c", node=1)
    assert "ok" in controller.register(1, node=1, key=KEY)
    return controller


def invited(controller: Controller, *, at_ms: int = 0, lasts_ms: int = HOUR_MS) -> str:
    """The token of a new invitation."""
    token = tokens.draw()
    told = controller.do(
        "create_invite", id=tokens.id_of(token), digest=tokens.digest_of(token),
        at_ms=at_ms, expires_ms=at_ms + lasts_ms,
    )  # fmt: skip
    assert told == {"ok": {"id": tokens.id_of(token)}}
    return token


def join(
    controller: Controller, incarnation: int, token: str | None = None, *, at_ms: int = 5,
    key: str = "b" * 64, **fields: Any,
) -> dict[str, Any]:  # fmt: skip
    shown = {} if token is None else {
        "invite": tokens.id_of(token), "digest": tokens.digest_of(token)
    }  # fmt: skip
    answer: dict[str, Any] = controller.do(
        "register", **{"incarnation": incarnation, "boot": 0, "node": None, "address": "h:1",
                       "key": key, "at_ms": at_ms, **shown, **fields},
    )  # fmt: skip
    return answer


def refused(answer: dict[str, Any], why: str) -> None:
    assert answer["error"]["code"] == "UNAUTHORIZED"
    assert why in answer["error"]["message"]


def test_the_text_survives_and_tells_nobody_its_secret(tmp_path: Path) -> None:
    made = Invitation(tokens.draw(), CLUSTER, CA)
    assert parse(made.text() + "\n") == made
    assert parse(Invitation(made.token, CLUSTER, invitation.NO_CA).text()).ca == "none"
    secret = made.token.partition(".")[2]
    assert secret not in repr(made)
    for bad in ("", "x", made.token, made.text()[:-1], made.text().upper(), f"{made.text()}.0"):
        with pytest.raises(InvalidArgument, match=r"ID\.SECRET\.CLUSTER\.CA") as caught:
            parse(bad)
        assert secret not in caught.value.message
    file = tmp_path / "invitation"
    write_private(file, made.text().encode())
    assert read_invitation(file) == made
    os.chmod(file, 0o644)
    with pytest.raises(InvalidArgument, match="invitation"):
        read_invitation(file)


def test_X4_a_new_node_with_a_key_needs_an_invitation(one: Controller) -> None:
    """A certificate of the CA was enough, whoever wanted the node."""
    refused(join(one, 7), "lognode node invite")
    assert join(one, 7, invited(one))["ok"]["node"] == 2
    assert join(one, 8, key="")["ok"]["node"] == 3, "without TLS the secret is what proves a node"


def test_X4_an_invitation_is_used_once_and_a_lost_answer_costs_nothing(one: Controller) -> None:
    token = invited(one)
    assert join(one, 7, token)["ok"]["node"] == 2
    assert join(one, 7, token)["ok"]["node"] == 2, "the same node, whose answer was lost"
    refused(join(one, 8, token), "it was used, taken back, or is of another cluster")
    assert not one.metadata.invites
    assert len(one.metadata.nodes) == 2


def test_X4_an_invitation_that_is_refused_is_not_used_up(one: Controller) -> None:
    token, other = invited(one), tokens.draw()
    wrong = tokens.id_of(token) + other[16:]
    refused(join(one, 7, wrong), "does not have that secret")
    refused(join(one, 7, token, at_ms=HOUR_MS), "has expired")
    assert "error" in join(one, 7, token, address=5)
    assert join(one, 7, token, at_ms=HOUR_MS - 1)["ok"]["node"] == 2


def test_an_invitation_may_be_taken_back(one: Controller) -> None:
    token = invited(one)
    assert one.do("revoke_invite", id=tokens.id_of(token)) == {"ok": {}}
    error = one.do("revoke_invite", id=tokens.id_of(token))["error"]
    assert (error["code"], "lognode node invites" in error["message"]) == ("NOT_FOUND", True)
    refused(join(one, 7, token), "taken back")


def test_invitations_are_bounded_and_those_that_expired_go(
    one: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "invites_max", 2)
    first = invited(one)
    again = {"id": tokens.id_of(first), "digest": tokens.digest_of(first)}
    invited(one, lasts_ms=2 * HOUR_MS)
    assert one.do("create_invite", **again, at_ms=5, expires_ms=HOUR_MS) == {
        "ok": {"id": again["id"]}
    }
    third = {"id": "9" * 16, "digest": bytes(32), "at_ms": 5, "expires_ms": HOUR_MS}
    assert one.do("create_invite", **third)["error"]["code"] == "LIMIT_EXCEEDED"
    assert "ok" in one.do("create_invite", **{**third, "at_ms": HOUR_MS, "expires_ms": 3 * HOUR_MS})
    assert again["id"] not in one.metadata.invites
    other = {**third, "digest": b"d" * 32, "expires_ms": 3 * HOUR_MS}
    assert one.do("create_invite", **other)["error"]["code"] == "CONFLICT"


@pytest.mark.parametrize("lasts_ms", [-1, 0, limits.invite_expiry_ms_max + 1])
def test_an_invitation_lasts_up_to_seven_days(one: Controller, lasts_ms: int) -> None:
    told = {"id": "9" * 16, "digest": bytes(32), "at_ms": HOUR_MS}
    error = one.do("create_invite", **told, expires_ms=HOUR_MS + lasts_ms)["error"]
    assert (error["code"], "up to 7 days" in error["message"]) == ("INVALID_ARGUMENT", True)


def test_those_who_found_a_cluster_together_need_none() -> None:
    controller = Controller()
    controller.do("found", cluster="c", node=1, founders=3)
    assert "ok" in controller.register(1, node=1, key=KEY)
    assert [join(controller, number)["ok"]["node"] for number in (7, 8)] == [2, 3]
    refused(join(controller, 9, key="c" * 64), "lognode node invite")


def test_a_machine_that_lost_its_disk_joins_again_by_its_key(one: Controller) -> None:
    assert join(one, 7, key=KEY)["ok"]["node"] == 2
    token = invited(one)
    assert join(one, 8, token, key="c" * 64)["ok"]["node"] == 3
    one.do("node_state", node=3, state="DEAD")
    assert "ok" in one.do("remove_node", node=3, dead=True)
    refused(join(one, 9, key="c" * 64), "lognode node invite")


def test_what_a_version_before_has_committed_is_applied_as_it_was(one: Controller) -> None:
    """Its log would be replayed to another state, or not at all."""
    before = {"incarnation": 7, "boot": 0, "node": None, "address": "h:1", "key": "b" * 64}
    assert one.do("register", **before)["ok"]["node"] == 2
