"""A leader decodes a batch once, and applies what the committed bytes say in any case."""

import asyncio
from pathlib import Path

import pytest
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol.records import Batch, decode_batch
from lognode.node.replicas import proposed_batches, range_replica
from lognode.node.replicas.proposed_batches import ProposedBatches
from lognode.statemachine import commands, range_state
from lognode.statemachine.commands import Command
from lognode.statemachine.range_state import Ahead, Base

ONE, TWO = numbered_batch(1, [b"a"]), numbered_batch(2, [b"a", b"b"])


def proposal(*batches: bytes) -> tuple[bytes, Command, list[Batch | None]]:
    command = commands.proposal(commands.APPEND, 7, list(batches))
    decoded = Command(commands.APPEND, 7, list(batches))
    return command, decoded, [decode_batch(batch) for batch in batches]


def test_a_kept_batch_is_what_decoding_the_entry_gives() -> None:
    kept, (command, decoded, batches) = ProposedBatches(), proposal(ONE, TWO)
    kept.keep(5, command, decoded, batches)
    found, expected = kept.take(5, bytes(bytearray(command))), Ahead.of(command)
    assert found.command == expected.command
    for one, other in zip(found.batches, expected.batches, strict=True):
        assert isinstance(one, Batch)
        assert isinstance(other, Batch)
        assert one._replace(key_column=other.key_column) == other
        assert one.keys == other.keys
    assert found.batches[0] is batches[0]
    assert kept.take(5, command).batches[0] is not batches[0], "it is kept once"


def test_S3_another_entry_at_the_index_of_a_proposal_is_decoded() -> None:
    """As when another leader has put its own entry there."""
    kept, (command, decoded, batches) = ProposedBatches(), proposal(ONE)
    kept.keep(5, command, decoded, batches)
    found = kept.take(5, proposal(TWO)[0])
    assert [batch.count for batch in found.batches if isinstance(batch, Batch)] == [2]
    assert kept.take(6, b"\x00broken").batches == ()


def test_a_bounded_size_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, (command, decoded, batches) = ProposedBatches(), proposal(ONE, TWO)
    kept.keep(4, command, decoded, [batches[0], None])
    assert kept.take(4, command).batches[0] is not batches[0], "a batch was unknown"
    monkeypatch.setattr(proposed_batches, "_KEPT_BYTES_MAX", 2 * len(command))
    for index in (5, 6, 7):
        kept.keep(index, command, decoded, batches)
    assert [kept.take(at, command).batches[0] is batches[0] for at in (5, 6, 7)] == [True] * 2 + [
        False
    ]
    kept.keep(8, command, decoded, batches)
    kept.clear()
    assert kept.take(8, command).batches[0] is not batches[0]
    for index in (9, 10, 11):
        kept.keep(index, command, decoded, batches)
    assert kept.take(10, command).batches[0] is batches[0], "room is counted anew"


def test_S1_a_leader_decodes_a_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> Batch:
        decoded.append(data)
        return decode_batch(data)

    monkeypatch.setattr(range_state, "decode_batch", decode)

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        replies = await asyncio.gather(replica.append(ONE), replica.append(TWO))
        assert [reply["status"] for reply in replies] == ["ok", "ok"]
        assert decoded == []
        monkeypatch.setattr(range_replica, "kept_queue_bytes_max", 0)
        await replica.append(numbered_batch(4, [b"c"]))
        assert len(decoded) == 1
        assert replica.state.memtable.last_seq(b"b") == 3
        assert replica.state.memtable.last_seq(b"c") == 4
        node.stop()

    asyncio.run(main())
