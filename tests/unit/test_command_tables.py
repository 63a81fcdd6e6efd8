"""Each command and each operation is known wherever it has to be: checked, applied, served."""

import re
from pathlib import Path

import pytest
from fuzz_targets import range_commands

from lognode.client.protocol import OPERATIONS, Sender
from lognode.client.protocol.errors import Unsupported
from lognode.partitions import commands as metadata_commands
from lognode.partitions import metadata, proposals
from lognode.partitions.generation_commands import HANDLERS
from lognode.partitions.metadata import Metadata
from lognode.statemachine import commands
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

ROOT = Path(__file__).resolve().parents[2]
NO_KINDS = {"COMPACT", "SNAPSHOT", "NUMBER_MAX"}
"""Numbers in the module of commands that are modes and bounds."""


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


def test_each_metadata_command_has_a_handler() -> None:
    known = {*HANDLERS, *metadata._ELSEWHERE, *Metadata._HANDLERS}
    assert known == {*proposals._RECORDS, metadata_commands.OPEN_PRODUCER}


@pytest.mark.parametrize("files", ["node/*/*.py", "client/*.py"])
def test_each_operation_of_operators_is_served_and_in_the_sdk(files: str) -> None:
    code = "".join(path.read_text("utf-8") for path in sorted(ROOT.glob(files)))
    asked = [name for name, each in OPERATIONS.items() if each.sender is Sender.OPERATOR]
    assert asked
    assert [name for name in asked if not re.search(rf"\b{name.upper()}\b", code)] == []
