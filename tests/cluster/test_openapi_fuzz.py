"""Requests that schemathesis makes from `/openapi.json`, valid and invalid ones, to a real node: no
server error, and no answer that the document does not describe."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import lognode
from lognode import testing
from lognode.node.door.door import TABLE
from lognode.node.door.openapi import document

pytestmark = pytest.mark.cluster
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance, response_headers_conformance,
]  # fmt: skip
ENDLESS = {route.name for route in TABLE if route.streams}
"""Operations whose answer has no end; `test_events.py` tests them."""


@pytest.fixture(scope="module")
def node(module_path: Path) -> Iterator[testing.LocalNode]:
    with testing.cluster(module_path, 1) as cluster:
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders", ranges=2)
            log.append_many([(f"k{n}", b"v") for n in range(100)])
            with log.consume("work"):
                pass
        yield cluster.nodes[0]


def fitted(case: Any) -> None:
    """Name things that exist in half of the requests, and create no large logs."""
    names = case.path_parameters or {}
    if len(str(names.get("log", ""))) % 2 and case.operation.method.upper() != "DELETE":
        names["log"] = "orders"
    if len(str(names.get("group", ""))) % 2 and case.operation.method.upper() != "DELETE":
        names["group"] = "work"
    body = case.body
    if isinstance(body, dict) and type(body.get("wait_ms")) is int and body["wait_ms"] > 20:
        body["wait_ms"] = 20 if body["wait_ms"] <= 30_000 else body["wait_ms"]
    if isinstance(body, dict) and case.operation.path == "/v1/logs":
        ranges = body.get("ranges")
        if type(ranges) is int and ranges > 3:
            body["ranges"] = 3
        if isinstance(body.get("split_at"), list):
            body["split_at"] = body["split_at"][:3]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", sorted({route.name for route in TABLE} - ENDLESS))
def test_every_answer_is_described(
    node: testing.LocalNode, name: str, mode: schemathesis.GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(document(TABLE, "1"))
    (operation,) = [
        each.ok() for each in schema.get_all_operations()
        if each.ok().definition.raw["operationId"] == name
    ]  # fmt: skip
    if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.body or operation.query):
        return  # a path of texts is always valid

    @given(data=st.data())
    @settings(
        max_examples=40, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    def check(data: Any) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        fitted(case)
        case.call_and_validate(base_url=f"http://{node.http}", checks=CHECKS)

    check()
