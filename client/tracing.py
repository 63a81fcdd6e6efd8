"""Traces of appends, if the program around the SDK uses OpenTelemetry.

The SDK imports nothing of OpenTelemetry: a program that traces has imported it before. A request of
appends is a span of its own below the span of the caller. Callers share requests, so the span of a
request belongs to the first caller that is traced, and has links to the others.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final

from .protocol.errors import LognodeError

API: Final = "opentelemetry.trace"
"""The module of OpenTelemetry that a program which traces has imported."""


def current() -> Any:
    """Return the span of the caller, or None if the caller is not traced."""
    api = sys.modules.get(API)
    if api is None:
        return None
    span = api.get_current_span()
    return span if span.is_recording() else None


class RequestSpan:
    """The span of a request with appends."""

    def __init__(self, callers: Iterable[Any], **told: Any) -> None:
        api = sys.modules[API]
        first, *others = dict.fromkeys(callers)
        self._api = api
        attributes = {f"lognode.{name}": value for name, value in told.items()}
        self._span = api.get_tracer("lognode").start_span(
            "lognode append request", context=api.set_span_in_context(first),
            kind=api.SpanKind.CLIENT, attributes=attributes,
            links=[api.Link(each.get_span_context()) for each in others],
        )  # fmt: skip

    @property
    def parent(self) -> str:
        """The text of a `traceparent`, by which the node makes its spans children of this one."""
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def end(self, error: BaseException | None) -> None:
        """End the span, with an error if the request failed."""
        if error is not None:
            code = error.code if isinstance(error, LognodeError) else type(error).__name__
            self._span.set_attribute("error.type", code)
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR, code))
        self._span.end()
