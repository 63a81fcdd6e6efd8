"""Log lines: a field never replaces the time, the level or the message of its line."""

import ast
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from lognode.node.runtime.logs import RESERVED, JsonFormatter, LogfmtFormatter, TextFormatter

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "raft", "statemachine", "partitions", "node", "chaos")
NOT_SEEN_IN_THE_SOURCE = {
    "node/control/controller_driver.py": "the fields of a command (`partitions/commands.py`)",
    "node/serving/cluster_service.py": "the fields of a request that became a metadata command",
}
"""Files with fields whose names the source of the call does not show, and where the names are."""


def record(fields: dict[str, Any], *, failed: bool = False) -> logging.LogRecord:
    caught = None
    if failed:
        try:
            raise ValueError("broken")
        except ValueError:
            caught = sys.exc_info()
    made = logging.LogRecord("lognode.disk", logging.WARNING, "f.py", 1, "little %s", ("disk",),
                             caught)  # fmt: skip
    made.fields = fields
    return made


def test_a_json_line_keeps_every_reserved_name() -> None:
    line = json.loads(JsonFormatter().format(record(dict.fromkeys(RESERVED, "LOW"), failed=True)))
    assert line["level"] == "warning"
    assert line["logger"] == "lognode.disk"
    assert line["message"] == "little disk"
    assert line["time"].endswith("Z")
    assert "ValueError: broken" in line["exception"]
    assert {line[f"field_{name}"] for name in RESERVED} == {"LOW"}
    assert len(line) == 2 * len(RESERVED)


def test_a_text_line_names_fields_as_a_json_line_does() -> None:
    line = TextFormatter().format(record({"free": 5, "level": "LOW"}))
    assert line.endswith(" warning little disk free=5 field_level=LOW")


@pytest.mark.parametrize(
    "fields",
    [
        {"level": "LOW", "field_level": "HIGH", "field_field_level": "?"},
        {"field_level": "HIGH", "field_field_level": "?", "level": "LOW"},
    ],
)
def test_a_renamed_field_replaces_no_other_field(fields: dict[str, str]) -> None:
    line = json.loads(JsonFormatter().format(record(fields)))
    assert line["level"] == "warning"
    assert line["field_level"] == "HIGH"
    assert line["field_field_level"] == "?"
    assert line["field_field_field_level"] == "LOW"


def read_logfmt(line: str) -> dict[str, str]:
    """The pairs of a line, by the rules of logfmt."""
    pairs = re.findall(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?: |$)', line)
    assert " ".join(f"{name}={value}" for name, value in pairs) == line
    return {name: json.loads(value) if value[:1] == '"' else value for name, value in pairs}


def test_nested_fields_are_fields_of_their_own() -> None:
    """An audit record was the text of a dict of Python."""
    told = {"event": "request", "about": {"log": "or ders", "ranges": {"a": 1}, "none": {}}, "n": 2}
    made = record({"record": told, "after": "x\ny"})
    fields = (
        'record.event=request record.about.log="or ders" record.about.ranges.a=1 record.n=2 '
        'after="x\\ny"'
    )
    assert TextFormatter().format(made).endswith(f" little disk {fields}")
    assert LogfmtFormatter().format(made).endswith(f'message="little disk" {fields}')
    assert json.loads(JsonFormatter().format(made))["record"] == told


def test_a_line_of_logfmt_has_the_same_as_a_json_line() -> None:
    fields = {"free": 5, "level": "LOW", "what": None, "yes": True, "list": [1, "a b"]}
    found = read_logfmt(LogfmtFormatter().format(record(fields, failed=True)))
    assert found["time"].endswith("Z")
    assert (found["level"], found["logger"], found["message"]) == (
        "warning", "lognode.disk", "little disk",
    )  # fmt: skip
    assert (found["free"], found["field_level"], found["what"]) == ("5", "LOW", "null")
    assert (found["yes"], found["list"]) == ("true", '[1,"a b"]')
    assert found["exception"].endswith("ValueError: broken")


@hypothesis.given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_no_text_adds_a_line_or_a_field_to_logfmt(fields: dict[str, str]) -> None:
    assert len(TextFormatter().format(record({"record": fields})).splitlines()) == 1
    line = LogfmtFormatter().format(record(fields))
    assert len(line.splitlines()) == 1
    found = read_logfmt(line)
    assert found["level"] == "warning"
    plain = {name: value for name, value in fields.items() if re.fullmatch(r"\w+", name, re.A)}
    for name, value in plain.items():
        assert found[f"field_{name}" if name in RESERVED else name] == value


@pytest.mark.slow
def test_no_call_in_the_tree_gives_a_field_a_reserved_name() -> None:
    unseen = set()
    calls = 0
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for scope, given in log_fields(ast.parse(path.read_text("utf-8"))):
            calls += 1
            for field in names(scope, given):
                if field is None:
                    unseen.add(name)
                else:
                    assert field not in RESERVED, f"{name}:{given.lineno} logs a field {field!r}"
    assert calls > 30, "the test finds the calls"
    assert unseen == set(NOT_SEEN_IN_THE_SOURCE), "fields whose names the test cannot read"


def test_the_search_for_fields_sees_how_they_may_be_written() -> None:
    """Each function below logs a field `level`, and in one the test cannot read the name."""
    source = """
def literal(): log.info("m", extra={"fields": {"level": 1}})
def variable():
    told = {"free": 1}
    told = {**told, "level": 1}
    log.info("m", extra={"fields": told})
def spread():
    told = dict(level=1)
    log.info("m", extra={"fields": {"free": 1, **told}})
def added():
    told = {}
    told["level"] = 1
    log.info("m", extra={"fields": told})
def whole_extra():
    extra = {"fields": {"level": 1}}
    log.info("m", extra=extra)
def given(told): log.info("m", extra={"fields": told})
"""
    found = [set(names(*each)) for each in log_fields(ast.parse(source))]
    assert len(found) == 6
    assert all("level" in each for each in found[:5])
    assert found[5] == {None}


def log_fields(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Every expression that a call gives as the fields of a log line, with its function."""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "extra":
                        yield scope, keyword.value


def names(
    scope: ast.AST, given: ast.expr, *, of_extra: bool = True, seen: frozenset[str] = frozenset()
) -> Iterator[str | None]:
    """The names of the fields; None for what only a run would tell. `of_extra`: the expression is
    the value of `extra`, whose item `fields` has the fields. `seen`: variables under way."""
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if key is None:
                yield from names(scope, value, of_extra=of_extra, seen=seen)
            elif of_extra:
                yield from names(scope, value, of_extra=False)
            else:
                yield _text(key)
    elif isinstance(given, ast.Call) and ast.unparse(given.func) == "dict" and not given.args:
        yield from (keyword.arg for keyword in given.keywords)
    elif isinstance(given, ast.Name) and given.id not in seen:
        values = list(_assigned(scope, given.id))
        if not values:
            yield None
        for value in values:
            yield from names(scope, value, of_extra=of_extra, seen=seen | {given.id})
    elif not isinstance(given, ast.Name):
        yield None


def _assigned(scope: ast.AST, variable: str) -> Iterator[ast.expr]:
    """What the function assigns to the variable, `variable[key] = ...` as a dict of that key."""
    for node in ast.walk(scope):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and target.id == variable and value is not None:
                yield value
            elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == variable:
                yield ast.Dict(keys=[target.slice], values=[target.slice], lineno=node.lineno)


def _text(key: ast.expr) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
