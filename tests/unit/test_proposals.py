"""What may be proposed to the metadata; and that what was committed before still applies."""

import contextlib
import random
from typing import Any

import msgpack
import pytest
from sound_commands import REGISTER, SOUND

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument, LognodeError, Unsupported
from lognode.partitions import commands, proposals
from lognode.partitions.generation_commands import REASON_CHARS_MAX
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import NodeRecord
from lognode.partitions.proposals import checked

BIG = (1 << 64) - 1


def test_every_command_is_in_the_table() -> None:
    known = {value for name, value in vars(commands).items() if name.isupper() and name != "NO_OP"}
    known = {value for value in known if isinstance(value, str)}
    known.remove(commands.OPEN_PRODUCER)  # of versions before: applied, and proposed by nobody
    assert known == SOUND.keys() == proposals._RECORDS.keys()


@pytest.mark.parametrize("op", SOUND)
def test_a_sound_command_is_proposed_as_it_is(op: str) -> None:
    command = {"op": op, **SOUND[op]}
    assert checked(command, {}) == command
    assert SOUND[op].keys() - {"op"} == proposals._RECORDS[op].shape.keys()
    assert checked(checked(command, {}), {}) == command, "the edge checks it, and the leader"


@pytest.mark.parametrize("op", SOUND)
def test_each_field_is_of_its_type_and_within_bounds(op: str) -> None:
    faults = list(proposals._RECORDS[op].beyond())
    assert faults
    for why, body in faults:
        if why.startswith("reason: ") and type(body["reason"]) is str:
            assert len(checked({**body, "op": op}, {})["reason"]) <= REASON_CHARS_MAX
            continue
        with pytest.raises(InvalidArgument) as caught:
            checked({**body, "op": op}, {})
        assert len(caught.value.message) < 600, why
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("op", SOUND)
@pytest.mark.parametrize("seed", range(20))
def test_every_accepted_command_can_be_packed_and_applied(op: str, seed: int) -> None:
    """A command in the log is applied by every member at each start."""
    body = proposals._RECORDS[op].sample(random.Random(seed))
    with contextlib.suppress(LognodeError):
        command = checked({**body, "op": op}, {})
        metadata = Metadata()
        for number, first in enumerate((commands.FOUND, commands.REGISTER), 1):
            metadata.apply(number, 1, {"op": first, **SOUND[first], "node": 1})
        decoded = commands.decode(commands.encode(command))
        assert decoded is not None
        metadata.apply(9, 1, decoded)
        msgpack.packb(metadata.image())


def test_a_reason_is_cut_and_made_readable() -> None:
    body = {"op": commands.MERGE, "log": "orders", "at": b"m"}
    assert checked({**body, "reason": "a\0b\ud800" + "x" * 5_000}, {})["reason"].startswith("a?b?x")
    assert len(checked({**body, "reason": "x" * 5_000}, {})["reason"]) == REASON_CHARS_MAX


def test_a_field_that_nobody_knows_is_not_committed() -> None:
    """A newer node may send one; and a peer any number of them, of any size."""
    command = {"op": commands.SEALING, "operation": 1, "junk": b"x" * 1_000_000, 5: 6}
    assert checked(command, {}) == {"op": commands.SEALING, "operation": 1}


@pytest.mark.parametrize("op", [None, 5, [1], {}, "no such command", "x" * 1_000_000])
def test_a_malformed_command_is_refused(op: Any) -> None:
    with pytest.raises(Unsupported) as caught:
        checked({"op": op}, {})
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "address", ["a..b:4600", "x" * 64 + ":1", "h", "h:\u0663", "", None, "h\0:1", "\u00e9:1"]
)
def test_an_address_that_nobody_can_dial_is_not_registered(address: str | None) -> None:
    for name in ("address", "http") if address else ("address",):
        with pytest.raises(InvalidArgument, match=name):
            checked({**REGISTER, name: address}, {})


def test_a_node_without_http_or_zone_is_registered() -> None:
    short = {name: value for name, value in REGISTER.items() if name not in ("http", "zone")}
    assert checked(short, {}) == {**REGISTER, "http": "", "zone": ""}
    assert checked(checked(short, {}), {}) == {**REGISTER, "http": "", "zone": ""}
    assert checked({**REGISTER, "http": None, "zone": None}, {}) == {
        **REGISTER, "http": "", "zone": ""
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match="`zone` is"):
        checked({**REGISTER, "zone": "z" * 129}, {})


@pytest.mark.parametrize("boot", [1, 10**9, limits.boot_max])
def test_x2_24_a_joining_node_has_boot_0(boot: int) -> None:
    """A program that knew a node's incarnation and gave a later boot fenced the node for ever."""
    assert checked({**REGISTER, "node": None, "boot": 0}, {})["boot"] == 0
    with pytest.raises(InvalidArgument, match=f"a node that joins has boot 0, not {boot}"):
        checked({**REGISTER, "node": None, "boot": boot}, {})


def test_x2_24_a_boot_that_no_number_of_starts_reaches_is_not_registered() -> None:
    known = {2: NodeRecord(2, "h:1", "", "", 7, 5, "ACTIVE")}
    last = 5 + limits.boot_jump_max
    assert checked({**REGISTER, "boot": last}, known)["boot"] == last
    with pytest.raises(InvalidArgument, match="again in boot 16777222, more than"):
        checked({**REGISTER, "boot": last + 1}, known)
    with pytest.raises(InvalidArgument):
        checked({**REGISTER, "boot": limits.boot_max + 1}, {})


def test_a_policy_is_checked_as_a_whole() -> None:
    body = {"op": commands.CREATE_LOG, "name": "orders"}
    with pytest.raises(InvalidArgument, match="cleanup is compact and retention_ms is 5"):
        checked({**body, "cleanup": "compact", "retention_ms": 5}, {})
    with pytest.raises(InvalidArgument, match="`replicas` is 8"):
        checked({**body, "replicas": 8}, {})


def test_commands_of_an_older_version_keep_their_effect() -> None:
    """All members answer a command alike, whatever their version, and a log of before replays."""
    metadata = Metadata()
    for number, command in enumerate(
        (
            {"op": commands.FOUND, "cluster": "c", "node": 1},
            {**REGISTER, "node": None, "boot": BIG, "address": "a..b:4600", "incarnation": BIG,
             "zone": "z" * 1_000, "http": "nonsense\n"},
            {"op": commands.CREATE_LOG, "name": "orders", "retention_ms": BIG},
            {"op": commands.ALTER_LOG, "name": "orders", "changes": {"split_rate": BIG}},
        ),
        1,
    ):  # fmt: skip
        assert "ok" in metadata.apply(number, 1, command), command
    (node,), (log,) = metadata.nodes.values(), metadata.logs.values()
    assert (node.address, node.incarnation, node.boot) == ("a..b:4600", BIG, BIG)
    assert (log.policy.retention_ms, log.policy.split_rate) == (BIG, BIG)
    assert Metadata.from_image(
        msgpack.unpackb(msgpack.packb(metadata.image()), strict_map_key=False)
    )
