"""The OpenAPI document of the operations over HTTP, made from their table."""

from typing import Any, Final

from .answers import ENTRY_SCHEMA
from .problems import PROBLEM_SCHEMA, PROBLEM_TYPE, STATUSES
from .route import EVENTS_TYPE, JSON_TYPE, NDJSON_TYPE, Route

_PROBLEM: Final = {
    PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}},
}


def document(table: tuple[Route, ...], version: str) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lognode",
            "version": version,
            "description": "Keyed logs over HTTP. Bytes are text where they are UTF-8, else "
            '`{"b64": "..."}`.',
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "parameters": [
            {
                "name": each.name,
                "in": each.where,
                "description": each.about,
                "required": each.required,
                "schema": {"type": "array", "items": each.schema} if each.repeated else each.schema,
            }
            for each in route.parameters
        ],
        "responses": {
            str(route.status): _answer(route),
            **{
                str(status): {"description": "A problem.", "content": _PROBLEM}
                for status in STATUSES
            },
        },
    }
    if route.body is not None:
        one = route.body.schema
        content: dict[str, Any] = {JSON_TYPE: {"schema": one}}
        if route.many:
            many = {"oneOf": [one, {"type": "array", "items": one}]}
            # A body of NDJSON is a text, of which each line has the first schema.
            content = {JSON_TYPE: {"schema": many}, NDJSON_TYPE: {"schema": {"type": "string"}}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _answer(route: Route) -> dict[str, Any]:
    if route.streams:
        return {
            "description": "Events, without an end.",
            "content": {EVENTS_TYPE: {"schema": {"type": "string"}}},
        }
    content: dict[str, Any] = {}
    if route.answer is not None:
        content[JSON_TYPE] = {"schema": route.answer}
    if route.lines:
        content[NDJSON_TYPE] = {
            "schema": {"type": "string", "description": "An entry a line."},
            "x-line-schema": ENTRY_SCHEMA,
        }
    return {"description": "The answer."} | ({"content": content} if content else {})
