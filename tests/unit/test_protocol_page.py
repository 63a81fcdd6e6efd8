"""docs/protocol.md says all that a client in another language needs.

Each operation, field and error has its meaning. A program that reads the page alone refuses what
the table refuses.
"""

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol_page import Page

from lognode.client.protocol import OPERATIONS, Operation, errors, frames, meanings
from lognode.client.protocol.fields import Field, fields

ROOT = Path(__file__).parents[2]
ALL = sorted(OPERATIONS.values(), key=lambda operation: operation.number)
FRAMES = {"HELLO": frames.HELLO_BODY, "WELCOME": frames.WELCOME_BODY, "PROOF": frames.PROOF_BODY,
          "CREDIT": frames.CREDIT_BODY}  # fmt: skip


@pytest.fixture
def page() -> Page:
    return Page.read()


def sides(operation: Operation) -> Iterator[tuple[str, Field]]:
    """Each field of an operation, with the table that has it."""
    for field in fields(operation.request):
        yield "request", field
    if operation.answer is not None:
        for field in fields(operation.answer):
            yield "push" if operation.streams else "answer", field


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_each_operation_and_each_field_has_its_meaning(operation: Operation, page: Page) -> None:
    assert page.numbers[operation.name] == operation.number
    assert page.about[operation.name].endswith(".")
    for what, field in sides(operation):
        row = page.tables[operation.name, what][field.path]
        assert row.kind == field.kind.text()
        assert row.meaning.endswith("."), f"{what} of {operation}: {field.path}"
        assert len(row.meaning.split()) > 1


@pytest.mark.parametrize("name", FRAMES)
def test_each_field_of_a_frame_has_its_meaning(name: str, page: Page) -> None:
    for field in fields(FRAMES[name]):
        assert page.tables[name, "frame"][field.path].meaning.endswith(".")


def test_each_kind_of_frame_is_on_the_page(page: Page) -> None:
    for number, name in frames.NAMES.items():
        assert page.numbers[name.upper()] == number


def test_no_meaning_is_left_over() -> None:
    paths = {operation.name: {("> " if what != "request" else "") + field.path
                              for what, field in sides(operation)}
             for operation in ALL}  # fmt: skip
    for name, own in meanings.OWN.items():
        if name not in FRAMES:
            assert own.keys() <= paths[name], name
    named = {path.removeprefix("> ").rpartition(".")[2].rstrip("[]{}")
             for found in paths.values() for path in found}  # fmt: skip
    assert {name.removeprefix("> ") for name in meanings.SHARED} <= named


def test_a_field_without_meaning_is_an_error() -> None:
    with pytest.raises(KeyError, match="append: of_the_future"):
        meanings.meaning("append", "of_the_future", answer=False)


def test_each_code_of_an_error_has_its_meaning(page: Page) -> None:
    assert page.codes.keys() == errors.BY_CODE.keys()
    assert all(text.endswith(".") for text in (*page.codes.values(), *page.details.values()))


def raised() -> Iterator[tuple[str, str]]:
    """The fields that the node gives its errors: code and name."""
    codes = {cls.__name__: code for code, cls in errors.BY_CODE.items()}
    for folder in ("client", "raft", "statemachine", "partitions", "node"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                    name = getattr(call.func, "id", "") or getattr(call.func, "attr", "")
                    for keyword in call.keywords if name in codes else ():
                        if keyword.arg not in (None, "outcome"):
                            yield codes[name], str(keyword.arg)


def test_each_field_of_an_error_has_its_meaning(page: Page) -> None:
    found = set(raised())
    assert len(found) > 20
    assert {each for each in found if each[0] != errors.PartialFailure.code} <= page.details.keys()


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_a_reader_of_the_page_accepts_valid_messages(operation: Operation, page: Page) -> None:
    rng = random.Random(operation.number)
    for _ in range(50):
        page.see("request", operation.name, operation.request.sample(rng))
        if operation.answer is not None:
            what = "push" if operation.streams else "answer"
            answer = operation.answer.sample(rng)
            for result in (*answer.get("results", ()), answer.get("result") or {}):
                result.pop("error", None)  # the table has only the name of its inside
            page.see(what, operation.name, answer)
    assert page.complaints == []


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_a_reader_of_the_page_refuses_what_the_table_refuses(
    operation: Operation, page: Page
) -> None:
    table = page.tables.get((operation.name, "request"), {})
    addresses = {path for path, row in table.items() if row.kind.startswith("`host:port`")}
    for why, body in operation.request.beyond():
        if why.partition(":")[0] in addresses:
            continue  # the rule of addresses is longer than a line
        page.complaints.clear()
        page.see("request", operation.name, body)
        assert page.complaints, why


def test_a_difference_from_the_page_is_reported(page: Page) -> None:
    good = {"range": 1, "generation": 1, "key": b"k"}
    page.see("request", "count", good)
    assert page.complaints == []
    page.see("request", "count", {**good, "colour": 3})
    page.see("request", "paint", good)
    page.see("answer", "follow", {"caught_up": True})
    error = {"code": "NOT_LEADER", "message": "m", "outcome": "not_applied", "fields": {"why": 1}}
    page.see("frame", "ERROR", error)
    page.see("frame", "ERROR", {**error, "code": "BLUE", "fields": {}})
    told = "; ".join(page.complaints)
    for part in ("colour is not on", "paint is not", "caught_up is not on", "the field why of NOT_",
                 "the code BLUE"):  # fmt: skip
        assert part in told
