"""Applying an entry does not ask Python what kind of character a character is (x2.22).

Members may run different versions of Python, and these have different tables of Unicode. So all
members would admit a name, or only some of them. `client/protocol/characters.py` has tables that
are the same everywhere.
"""

import ast
import asyncio
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from applied_code import files, module, tree
from sound_commands import SOUND, TOKEN

from lognode.client.protocol import characters
from lognode.client.protocol.errors import InvalidArgument
from lognode.node.replicas.controller_replica import ControllerReplica
from lognode.partitions import commands, proposals, spans
from lognode.partitions.metadata import Metadata

ASKING = re.compile(
    r"is(printable|space|alnum|alpha|digit|decimal|numeric|identifier|lower|upper|title)"
    r"|lower|upper|casefold|title|capitalize|swapcase|splitlines"
)
"""Methods of texts whose answers come from Python's tables of Unicode."""
BLANKS = frozenset({"strip", "lstrip", "rstrip", "split", "rsplit"})
"""Methods that ask for blanks where the caller names no characters."""
ALLOWED = {
    "client.protocol.address:parse": "texts of users and of configuration",
    "client.protocol.certificate:": "certificates, which commands do not carry",
    "client.protocol.certificate:_seconds": "certificates, which commands do not carry",
    "client.protocol.invariants:invariant": "the last words of a process that ends",
    "client.protocol.kinds:Text._is_plain": "a short cut: every Python has the same controls",
    "client.protocol.scopes:parse_scope": "texts of users: commands carry arrays",
    "client.protocol.tls:_unverified": "texts of OpenSSL",
    "client.protocol.tls:explained": "texts of OpenSSL",
    "client.tokens:read_token": "a file of the user",
    "partitions.proposals:readable": "the proposer's reason, before the command is packed",
    "statemachine.segment_format:SegmentInfo.from_wire": "only of texts that are ASCII",
}
"""The functions that may ask Python, and why members do not differ by the answer."""


def asking(path: Path) -> Iterator[str]:
    """Yield the functions of a file that ask Python's tables."""

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            inner = (*names, child.name) if named else names
            if asks(child):
                yield f"{module(path)}:{'.'.join(inner)}"
            yield from walk(child, inner)

    yield from walk(tree(path), ())


def asks(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name == "unicodedata" for name in names)
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name in BLANKS:
            return not args or (isinstance(args[0], ast.Constant) and args[0].value is None)
        case ast.Attribute(attr=name):
            return ASKING.fullmatch(name) is not None
        case ast.Constant(value=str(text)):
            return bool(re.search(r"\\[wWsSdDbB]", text))
        case ast.Attribute(attr="IGNORECASE"):
            return True
    return False


def test_x2_22_apply_does_not_ask_python_for_kinds_of_characters() -> None:
    found = {place for path in files() for place in asking(path)}
    assert found == ALLOWED.keys()


def printed_here() -> set[int]:
    return {code for code in range(0x110000) if chr(code).isprintable() and not chr(code).isspace()}


def members(table: str) -> set[int]:
    bounds = characters._bounds(table)
    return {
        code for first, end in zip(*[iter(bounds)] * 2, strict=True) for code in range(first, end)
    }


def test_every_python_prints_the_characters_of_names_and_no_unfit_character() -> None:
    printable, unfit = members(characters.PRINTABLE), members(characters.UNFIT)
    assert printable <= printed_here(), "earlier versions of lognode ask Python"
    assert not unfit & printed_here()
    if unicodedata.unidata_version == "14.0.0":
        assert printable == printed_here()
    known = {code for code in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn"}
    assert known <= printable | unfit, "a character is in neither table"


def test_a_text_is_fit_or_printable_as_the_tables_say() -> None:
    rim = [0, 0x10FFFF]
    for table in (characters.PRINTABLE, characters.UNFIT):
        rim += [code for bound in characters._bounds(table) for code in (bound - 1, bound)]
    printable, unfit = members(characters.PRINTABLE), members(characters.UNFIT)
    for code in filter(lambda code: 0 <= code <= 0x10FFFF, rim):
        assert characters.is_printable(chr(code)) == (code in printable), hex(code)
        assert characters.is_fit(chr(code)) == (code not in unfit), hex(code)
    assert characters.is_printable("")
    assert characters.is_fit("a\u0378")
    assert not characters.is_printable("a\u0378")
    assert not characters.is_fit("a b")


NEWER = "acme\u0378"
"""A text with a character that Unicode 14 lacks: a later Python may print it."""
UNFIT = "acme\u2028"
"""A text that no Python prints."""
SCOPES = {NEWER: [[["read"], NEWER, b"*"]], UNFIT: [[["read"], UNFIT, b"*"]]}
NAMED: dict[str, dict[str, dict[str, Any]]] = {
    commands.CREATE_LOG: {
        name: {
            **SOUND[commands.CREATE_LOG],
            "name": name,
            "hierarchy": None,
            "kafka_partitions": None,
            "local_retention_bytes": None,
        }
        for name in (NEWER, UNFIT)
    },
    commands.SET_QUOTA: {name: {"name": name, "limits": {"requests": 5}} for name in SCOPES},
    commands.CREATE_TOKEN: {name: {**TOKEN, "scopes": SCOPES[name]} for name in SCOPES},
    "class": {name: {**TOKEN, "quota_class": name} for name in SCOPES},
    commands.FOUND: {
        name: {
            **SOUND[commands.FOUND],
            "token": {**TOKEN, "scopes": SCOPES[name]},
        }
        for name in SCOPES
    },
}


def proposed(what: str, name: str) -> dict[str, Any]:
    op = commands.CREATE_TOKEN if what == "class" else what
    command = {"op": op, **NAMED[what][name]}
    command.pop("since", None)
    return command


def founded() -> Metadata:
    metadata = Metadata()
    first = {**TOKEN, "id": "1" * 16, "digest": bytes(31) + b"1"}
    everything = [[["describe", "read", "append", "trim", "group", "admin"], "*", b"*"]]
    found = {"op": commands.FOUND, **SOUND[commands.FOUND]}
    register = {"op": commands.REGISTER, **SOUND[commands.REGISTER], "node": 1}
    token = {"op": commands.CREATE_TOKEN, **first, "scopes": everything}
    for number, command in enumerate((found, register, token), 1):
        assert "ok" in metadata.apply(number, 1, command)
    return metadata


@pytest.mark.parametrize("what", NAMED)
@pytest.mark.parametrize("name", [NEWER, UNFIT])
def test_no_node_proposes_a_name_that_a_member_could_refuse(what: str, name: str) -> None:
    """A leader on a later Python admitted the name, and a member on an earlier Python refused it:
    the two had other states from then on."""
    with pytest.raises(InvalidArgument, match=r"not print|not allowed|unprintable|allowed: a log"):
        proposals.checked(proposed(what, name), {})


@pytest.mark.parametrize("what", sorted(NAMED.keys() - {commands.FOUND}))
def test_apply_admits_what_an_earlier_leader_wrote_on_any_python(what: str) -> None:
    metadata = founded()
    answer = metadata.apply(9, 1, proposed(what, NEWER))
    assert "ok" in answer, answer
    again = Metadata.from_image(metadata.image())
    assert again.image() == metadata.image(), "a member that gets an image admits the name too"
    assert (
        NEWER in again.logs.ids
        or NEWER in again.quotas
        or NEWER
        in {
            each
            for token in again.tokens.values()
            for each in (token.quota_class, token.scopes[0].log)
        }
    )
    assert "error" in founded().apply(9, 1, proposed(what, UNFIT)), "as every Python refuses"


@pytest.mark.parametrize(
    ("key", "shown", "alike"),
    [
        (b"m", "'m'", True),
        ("n\u00f6 'x'".encode(), "\"n\u00f6 'x'\"", True),
        (b"\xff", "0xff", True),
        (b"a\n", "0x610a", True),
        (NEWER.encode(), "0x61636d65cdb8", False),
        ((NEWER + UNFIT).encode(), f"0x{(NEWER + UNFIT).encode().hex()}", True),
    ],
)
def test_the_written_form_of_a_key_is_the_same_on_every_python(
    key: bytes, shown: str, alike: bool
) -> None:
    assert spans.printable(key) == shown
    assert spans.is_alike(key) == alike


@pytest.mark.parametrize("op", [commands.SPLIT, commands.MERGE])
def test_below_level_3_no_leader_proposes_a_key_that_members_write_differently(op: str) -> None:
    command = {"op": op, **SOUND[op], "at": NEWER.encode()}
    for level in (1, 2):
        with pytest.raises(InvalidArgument, match="finalize"):
            proposals.check_alike(command, level)
        proposals.check_alike({**command, "at": b"m"}, level)
    proposals.check_alike(command, 3)
    proposals.check_alike({"op": commands.MOVE, **SOUND[commands.MOVE]}, 1)


def test_the_leader_of_the_controller_asks_before_it_proposes_a_key() -> None:
    leader: Any = SimpleNamespace(metadata=founded())
    command = {"op": commands.SPLIT, "log": "orders", "at": NEWER.encode()}
    with pytest.raises(InvalidArgument, match="finalize"):
        asyncio.run(ControllerReplica.command(leader, command))
