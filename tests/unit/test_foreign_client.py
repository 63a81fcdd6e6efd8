"""The client of tests/support/foreign_client.py knows docs/protocol.md alone, and packs what nodes
take."""

import ast
import hmac
import sys
from pathlib import Path

import foreign_appends
import foreign_wire
import msgpack
import pytest
from foreign_appends import Record
from protocol_page import PAGE, Page

from lognode.client.protocol import frame, frames, records, wire

FOREIGN = sorted((Path(__file__).parents[1] / "support").glob("foreign_*.py"))


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_the_foreign_client_imports_nothing_of_lognode(path: Path) -> None:
    allowed = {"msgpack", "zstandard", *sys.stdlib_module_names, *(each.stem for each in FOREIGN)}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert str(node.module).partition(".")[0] in allowed


def test_the_foreign_client_knows_the_numbers_of_the_page() -> None:
    page = Page.read()
    assert foreign_wire.OPERATIONS.items() <= page.numbers.items()
    for name in ("HELLO", "WELCOME", "OK", "ERROR", "PUSH", "CREDIT", "CANCEL", "PING"):
        assert getattr(foreign_wire, name) == page.numbers[name]


def test_the_examples_of_the_page_are_right() -> None:
    text = PAGE.read_text("utf-8")
    assert foreign_wire.crc32c(b"123456789") == 0xE3069283
    assert frame.encode(1, frames.PING, {}).hex() in text
    found = [Record(b"a", b"1", number=1), Record(b"b", None, number=2)]
    packed = foreign_appends.pack_batch(found, 7, 1, 1)
    assert packed.hex() in text
    assert records.decode_batch(packed).values() == [b"1", None]


def test_a_proof_is_what_the_page_says() -> None:
    hello = wire.Hello("node", b"d" * 32, "c1", 2, 77)
    welcome = wire.Welcome(b"a" * 32, 2, "c1", 1)
    for side, binding in (("dialler", b""), ("acceptor", b"b" * 32)):
        claims = ["lognode/2", side, b"d" * 32, b"a" * 32, "node", "c1", 2, 77, 2, "c1", 1, binding]
        proof = hmac.digest(b"secret", msgpack.packb(claims), "sha256")
        assert wire.prove(b"secret", side, hello, welcome, binding) == proof  # type: ignore[arg-type]


def test_a_foreign_batch_is_one_that_the_node_takes() -> None:
    found = [
        Record(b"k%d" % at, b"v" * 1000, {b"h": b"1"} if at % 2 else None, number=3 * at + 5,
               expect=at % 3 - 1, snapshot=at == 4)
        for at in range(10)
    ]  # fmt: skip
    packed = foreign_appends.pack_batch(found, 9, 2, 5, prevs=[0] * 10, flags=4)
    batch = records.decode_batch(packed)
    records.check_limits(batch)
    assert batch.values_compressed
    assert list(batch.numbers) == [record.number for record in found]
    assert batch.expects == [record.expect for record in found]
    assert batch.headers() == [record.headers for record in found]
    assert batch.each
    assert batch.snapshots == {4}
    assert len(msgpack.unpackb(packed)) == 14
