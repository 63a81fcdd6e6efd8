"""Each command and each operation is known wherever it has to be: checked, applied, served."""

import re
from pathlib import Path

import pytest
from applied_entries import tables
from fuzz_targets import range_commands
from metadata_log import Controller
from sound_commands import SOUND

from lognode.client.protocol import (
    OPERATIONS,
    Operation,
    Sender,
    appends,
    cluster,
    cursors,
    groups,
    invites,
    node_reports,
    partitions,
    quotas,
    reads,
    views,
)
from lognode.client.protocol.errors import Unsupported
from lognode.partitions import commands as metadata_commands
from lognode.partitions import metadata, overtaken, proposals
from lognode.partitions.generation_commands import HANDLERS
from lognode.partitions.metadata import Metadata
from lognode.statemachine import commands
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

ROOT = Path(__file__).resolve().parents[2]
NO_KINDS = {"COMPACT", "SNAPSHOT", "NUMBER_MAX"}
"""Numbers in the module of commands that are modes and bounds."""
WHOLE_IN_CHILDREN = {
    "next_seq", "last_timestamp_ms", "hash", "effects", "sealed", "producers", "level",
    "restoring",
}  # fmt: skip
"""Tables of a base that a split gives to each child as they are."""
OF_ONE_PARENT = {"effects"}
"""Tables of a base that a merge takes from the first parent. The hash of effects begins anew."""
SENDERS = (Sender.CLIENT, Sender.OPERATOR)


def test_each_kind_of_range_command_has_a_number_a_check_and_an_example() -> None:
    kinds = [
        value
        for name, value in vars(commands).items()
        if name.isupper() and not name.startswith("_") and type(value) is int
        and name not in NO_KINDS
    ]  # fmt: skip
    assert len(set(kinds)) == len(kinds), "a number is given twice"
    assert set(kinds) == commands._FITS.keys() == {kind for kind, _ in range_commands()}


@pytest.mark.parametrize(("kind", "payload"), range_commands())
def test_each_kind_of_range_command_is_applied(kind: int, payload: object, tmp_path: Path) -> None:
    state = RangeState(start=b"", end=None, store=SegmentStore(tmp_path))
    applied = state.apply(2, 1, commands.proposal(kind, 5, payload))
    told = [reply.get("error", {}).get("code") for reply in applied.replies or ()]
    assert Unsupported.code not in told, told


@pytest.mark.parametrize(
    ("module", "others"), [("clip", WHOLE_IN_CHILDREN), ("unite", OF_ONE_PARENT)]
)
def test_each_table_of_a_base_has_a_rule(module: str, others: set[str], tmp_path: Path) -> None:
    """`clip` cuts a table for the children of a split, and `unite` joins the tables of parents."""
    code = (ROOT / "statemachine" / f"{module}.py").read_text("utf-8")
    found = tables(tmp_path)
    assert {"level", "cursors", "groups", "removal", "producers", "sealed"} <= found.keys()
    missing = [name for name in found if name not in others and f'"{name}"' not in code]
    assert not missing, "give each a rule there, or name it in this file"


def test_each_metadata_command_has_a_handler() -> None:
    known = {*HANDLERS, *metadata._ELSEWHERE, *Metadata._HANDLERS}
    assert known == {*proposals._RECORDS, metadata_commands.OPEN_PRODUCER}


def test_each_metadata_command_that_may_come_too_late_names_what_it_concerns() -> None:
    named = {op for op, record in proposals._RECORDS.items() if "since" in record.shape}
    assert named == overtaken._CONCERNED.keys()


@pytest.mark.parametrize("op", SOUND)
def test_an_image_has_all_that_a_metadata_command_changes(op: str) -> None:
    """`Controller` reads the image back and sends it to other nodes. A change that the image lacks
    would be lost."""
    controller = Controller().nodes(1)
    controller.do("create_log", name="orders")
    controller.do(**{**SOUND[op], "op": op})
    metadata = controller.metadata
    read = Metadata.from_image(metadata.image())
    for name, table in metadata.tables.items():
        assert dict(read.tables[name]) == dict(table), name


@pytest.mark.parametrize("files", ["node/*/*.py", "client/[!p]*/*.py client/*.py"])
def test_each_operation_is_served_and_in_the_sdk(files: str) -> None:
    paths = sorted(path for pattern in files.split() for path in ROOT.glob(pattern))
    used = set(re.findall(r"\b[A-Z_]+\b", "".join(path.read_text("utf-8") for path in paths)))
    asked = {
        operation: name
        for module in (
            appends,
            cluster,
            cursors,
            groups,
            invites,
            node_reports,
            partitions,
            quotas,
            reads,
            views,
        )
        for name, operation in vars(module).items()
        if isinstance(operation, Operation)
    }
    assert {each for each in OPERATIONS.values() if each.sender in SENDERS} == {
        each for each in asked if each.sender in SENDERS
    }
    missing = {each.name for each, name in asked.items() if each.sender in SENDERS}
    missing -= {each.name for each, name in asked.items() if name in used}
    assert not missing
