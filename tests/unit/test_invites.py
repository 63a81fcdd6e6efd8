"""Invitations of new nodes: their text, and what the metadata makes of them (X4)."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import invitation, tokens
from lognode.client.invitation import Invitation, parse, read_invitation
from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.private_files import write_private
from lognode.node.access.invite_service import InviteService
from lognode.partitions import commands, proposals
from lognode.partitions.invites import KEY_IN_USE
from lognode.partitions.metadata import Metadata
from lognode.partitions.received_rows import is_row

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
        at_ms=at_ms, expires_ms=at_ms + lasts_ms, by="client ann",
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
    assert secret not in f"{made!r} {made} {[made]}"
    for bad in ("", "x", made.token, "a b", f"{made.text()}.0"):
        with pytest.raises(InvalidArgument, match=r"ID\.SECRET\.CLUSTER\.CA\.CHECKSUM") as caught:
            parse(bad)
        assert secret not in caught.value.message
    file = tmp_path / "invitation"
    write_private(file, made.text().encode())
    assert read_invitation(file) == made
    os.chmod(file, 0o644)
    with pytest.raises(InvalidArgument, match="invitation"):
        read_invitation(file)


def test_a_typing_error_is_found_before_anybody_is_asked() -> None:
    """Only the cluster found the error, and called the invitation unknown."""
    made = Invitation(tokens.draw(), CLUSTER, CA)
    text = made.text()
    wrong = [text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
             for at in range(len(text)) if text[at] != "."]  # fmt: skip
    wrong += [text[:at] + text[at + 1 :] for at in range(len(text)) if text[at] != "."]
    wrong += [text[:at] + text[at + 1] + text[at] + text[at + 2 :]
              for at in range(len(text) - 1)
              if "." not in text[at : at + 2] and text[at] != text[at + 1]]  # fmt: skip
    wrong += [text.upper(), f"{text}0", f"\ud800{text}"]
    for bad in wrong:
        with pytest.raises(InvalidArgument, match=r"characters were changed or lost") as caught:
            parse(bad)
        assert made.token.partition(".")[2][:40] not in caught.value.message
    for at in (place for place in range(len(text)) if text[place] == "."):
        with pytest.raises(InvalidArgument, match="copy the whole line"):
            parse(text[:at] + text[at + 1 :])


def test_X4_a_new_node_with_a_key_needs_an_invitation(one: Controller) -> None:
    """A certificate of the CA was enough for any node."""
    refused(join(one, 7), "lognode node invite")
    assert join(one, 7, invited(one))["ok"]["node"] == 2
    assert join(one, 8, key="")["ok"]["node"] == 3, "without TLS the secret is what proves a node"


def test_X4_an_invitation_is_used_once_and_a_lost_answer_costs_nothing(one: Controller) -> None:
    token = invited(one)
    assert join(one, 7, token)["ok"]["node"] == 2
    assert join(one, 7, token)["ok"]["node"] == 2, "the same node, whose answer was lost"
    for key in ("d" * 64, ""):
        refused(
            join(one, 8, token, key=key),
            "a node has used the invitation, an operator revoked it, or it is of another cluster",
        )
    refused(join(one, 7, token, key="c" * 64), "registered with another TLS key")
    unused = invited(one)
    for other in (None, unused, tokens.draw()):
        refused(join(one, 7, other), f"as node 2 with invitation {tokens.id_of(token)}")
    assert list(one.metadata.invites) == [tokens.id_of(unused)]
    one.do("revoke_invite", id=tokens.id_of(unused))
    assert join(one, 7, token, boot=1, node=2)["ok"]["node"] == 2
    assert one.metadata.nodes[2].invite == tokens.id_of(token)
    loaded = Metadata.from_image(one.metadata.image())
    assert (loaded.nodes[1].invite, loaded.nodes[2].invite) == ("", tokens.id_of(token))
    assert not one.metadata.invites
    assert len(one.metadata.nodes) == 2


def test_X4_an_invitation_that_is_refused_is_not_used_up(one: Controller) -> None:
    token, other = invited(one), tokens.draw()
    wrong = tokens.id_of(token) + other[16:]
    refused(join(one, 7, wrong), "the secret does not belong")
    refused(join(one, 7, token, at_ms=HOUR_MS), "has expired")
    assert "error" in join(one, 7, token, address=5)
    assert join(one, 7, token, at_ms=HOUR_MS - 1)["ok"]["node"] == 2


def test_the_maker_of_an_invitation_is_recorded(one: Controller) -> None:
    """Images of a version that did not keep the principal still load."""
    token = invited(one)
    assert [each.by for each in one.metadata.invites.values()] == ["client ann"]
    assert repr(tokens.digest_of(token)) not in repr(one.metadata.invites)
    image = one.metadata.image()
    image["invites"] = [row[:4] for row in image["invites"]]
    assert [each.by for each in Metadata.from_image(image).invites.values()] == [""]
    row = ["0" * 16, bytes(32), 0, 1]
    assert is_row("invites", row)
    assert is_row("invites", [*row, "client ann"])
    assert not is_row("invites", [*row, 7])


def test_a_strange_name_of_a_principal_makes_no_invitation_fail() -> None:
    commanded: list[dict[str, Any]] = []

    async def command(body: dict[str, Any]) -> dict[str, Any]:
        commanded.append(proposals.checked(body, {}))
        return {}

    service = InviteService(
        command=command, refresh=lambda: asyncio.sleep(0), metadata=Metadata, ca=lambda: "none"
    )
    name = "name a\x00\n\ud800" + "\U0001f600" * 300
    body = {"id": "0" * 16, "digest": bytes(32), "expires_ms": 1, "by": name}
    asyncio.run(service.create(body))
    assert commanded[0]["by"].startswith("name a???\U0001f600")


def test_an_invitation_may_be_taken_back(one: Controller) -> None:
    token = invited(one)
    assert one.do("revoke_invite", id=tokens.id_of(token)) == {"ok": {}}
    error = one.do("revoke_invite", id=tokens.id_of(token))["error"]
    assert (error["code"], "lognode node invites" in error["message"]) == ("NOT_FOUND", True)
    refused(join(one, 7, token), "an operator revoked it")


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
    assert (error["code"], "at most 7 days" in error["message"]) == ("INVALID_ARGUMENT", True)


def founded(at_ms: int | None) -> Controller:
    """A cluster that three nodes found together."""
    controller = Controller()
    controller.do("found", cluster="c", node=1, founders=3, at_ms=at_ms)
    assert "ok" in controller.register(1, node=1, key=KEY)
    return controller


def test_nodes_that_found_a_cluster_together_need_no_invitation() -> None:
    controller = founded(at_ms=HOUR_MS)
    late = HOUR_MS + HOUR_MS - 1
    assert [join(controller, n, key=f"{n}" * 64, at_ms=late)["ok"]["node"] for n in (7, 8)] == [
        2,
        3,
    ]
    refused(join(controller, 9, key="c" * 64, at_ms=late), "lognode node invite")


def test_the_places_of_founders_end_an_hour_after_the_founding() -> None:
    """A place that nobody took admitted the holder of any certificate, for ever."""
    controller = founded(at_ms=HOUR_MS)
    loaded = Metadata.from_image(controller.metadata.image())
    assert (loaded.founded_ms, loaded.founders) == (HOUR_MS, 3)
    refused(join(controller, 7, at_ms=2 * HOUR_MS), "lognode node invite")
    token = invited(controller, at_ms=2 * HOUR_MS)
    assert join(controller, 7, token, at_ms=2 * HOUR_MS)["ok"]["node"] == 2
    assert commands.dated({"op": commands.FOUND}, 5)["at_ms"] == 5


def test_an_image_without_the_time_of_the_founding_loads() -> None:
    """The version before kept no time. A replay of its log admits whom that version admitted."""
    controller = founded(at_ms=None)
    image = controller.metadata.image()
    del image["founded_ms"]
    assert Metadata.from_image(image).founded_ms == 0
    assert "founded_ms" not in controller.metadata.head
    assert join(controller, 7, at_ms=9 * HOUR_MS)["ok"]["node"] == 2


def test_a_machine_that_lost_its_disk_joins_again_by_its_key(one: Controller) -> None:
    key = "c" * 64
    assert join(one, 7, invited(one), key=key)["ok"]["node"] == 2
    one.do("node_state", node=2, state="DEAD")
    assert join(one, 8, key=key)["ok"]["node"] == 3
    one.do("node_state", node=3, state="DEAD")
    assert join(one, 9, key=key)["ok"]["node"] == 4, "it has lost the next disk, too"
    assert "ok" in one.do("remove_node", node=2, dead=True)
    one.do("node_state", node=4, state="DEAD")
    assert join(one, 10, key=key)["ok"]["node"] == 5, "a node that was removed is not a live one"
    for number in (3, 4, 5):
        one.do("node_state", node=number, state="DEAD")
        assert "ok" in one.do("remove_node", node=number, dead=True)
    refused(join(one, 11, key=key), "a new node needs an invitation")


def test_a_machine_that_lost_its_disk_may_still_show_the_invitation_of_its_old_node(
    one: Controller,
) -> None:
    """Its flags name the file at each start; without that invitation it would have been let in."""
    token = invited(one)
    assert join(one, 7, token)["ok"]["node"] == 2
    refused(join(one, 8, token), "node 2 has the same TLS key and is ACTIVE")
    one.do("node_state", node=2, state="DEAD")
    refused(join(one, 8, token, key="c" * 64), "a node has used the invitation")
    refused(
        join(one, 8, tokens.draw()),
        "a node has used the invitation, an operator revoked it, or it is of another cluster",
    )
    for _ in range(2):
        assert join(one, 8, token)["ok"]["node"] == 3
    for number in (2, 3):
        one.do("node_state", node=number, state="DEAD")
        assert "ok" in one.do("remove_node", node=number, dead=True)
    refused(join(one, 9, token), "a new node needs an invitation")


@pytest.mark.parametrize("state", ["JOINING", "ACTIVE", "DRAINING"])
def test_a_copy_of_the_key_of_a_live_node_needs_an_invitation(one: Controller, state: str) -> None:
    """A program with a copy of any node's key could add nodes without end."""
    key = "c" * 64
    assert join(one, 7, invited(one), key=key)["ok"]["node"] == 2
    one.do("node_state", node=2, state="DEAD")
    assert join(one, 8, key=key)["ok"]["node"] == 3
    drains = state == "DRAINING"
    assert "ok" in (one.do("drain_node", node=3) if drains else
                    one.do("node_state", node=3, state=state))  # fmt: skip
    answer = join(one, 9, key=key)
    refused(answer, f"node 3 has the same TLS key and is {state}")
    assert answer["error"]["fields"]["reason"] == KEY_IN_USE
    assert join(one, 9, invited(one), key=key)["ok"]["node"] == 4


def test_commands_of_an_older_version_keep_their_effect(one: Controller) -> None:
    """Its log would be replayed to another state, or not at all."""
    before = {"incarnation": 7, "boot": 0, "node": None, "address": "h:1", "key": "b" * 64}
    assert one.do("register", **before)["ok"]["node"] == 2
