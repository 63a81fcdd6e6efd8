"""Traces of appends, which OpenTelemetry exports; only with `--traces on`.

A request over HTTP whose asker is traced has a span at the node that serves the request. The SDK of
this node, which the door uses, makes the spans of its requests to leaders below this span.

An append whose client is traced has a span on the leader, and below it:

    gather      until the batches are proposed, with the next round of the write-ahead log
    wal         until the leader has the entry on its disk
    quorum      until a majority has the entry; begins with the proposal, like `wal`
    apply       until the entry is applied

The leader looks at the progress of its entries where it handles news of a group anyway. Entries
without a trace cost nothing there. Spans are exported by a thread of OpenTelemetry, with a bounded
queue: spans beyond the bound are dropped.
"""

import asyncio
import os
import re
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...client.protocol.errors import InvalidArgument, LognodeError

_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
_ENTRIES_MAX: Final = 1_024
"""Entries of a group under way that are traced; entries beyond the bound are not."""
_CLOSE_S: Final = 2.0
_EXPORTER: Final = "otlp_proto_http"
_PACKAGE: Final = "opentelemetry-exporter-otlp-proto-http"


class _Entry:
    """The times of a proposed entry, in ns of Unix time; 0: not yet."""

    __slots__ = ("applied_ns", "committed_ns", "durable_ns", "index", "proposed_ns")

    def __init__(self, index: int) -> None:
        self.index = index
        self.proposed_ns = time.time_ns()
        self.durable_ns = self.committed_ns = self.applied_ns = 0


class AppendTrace:
    """The trace of one request with appends."""

    __slots__ = ("began_ns", "entries", "parent")

    def __init__(self, parent: Any) -> None:
        self.parent = parent
        self.began_ns = time.time_ns()
        self.entries: list[_Entry] = []


class Traces:
    """The traces of a node. `provider` is a TracerProvider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace

        self._api = trace
        self._provider = provider
        self._tracer = provider.get_tracer("lognode")
        self._of_future: WeakKeyDictionary[Any, AppendTrace] = WeakKeyDictionary()
        self._entries: dict[Hashable, list[_Entry]] = {}
        """Entries under way by group."""

    def _remote(self, parent: str | None) -> Any:
        """Return the context of a `traceparent`, or None unless the text is valid and sampled."""
        match = None if parent is None else _PARENT.fullmatch(parent)
        if match is None or not int(match[3], 16) & _SAMPLED:
            return None
        api = self._api
        context = api.SpanContext(
            int(match[1], 16), int(match[2], 16), is_remote=True,
            trace_flags=api.TraceFlags(_SAMPLED),
        )  # fmt: skip
        if not context.is_valid:
            return None
        return api.set_span_in_context(api.NonRecordingSpan(context))

    @contextmanager
    def served(self, parents: Sequence[str], name: str, told: Mapping[str, str]) -> Iterator[None]:
        """Make the block a span of a request over HTTP, if the one `traceparent` is sampled.

        `parents` are the texts of all `traceparent` of the request: several are as none. What the
        SDK does within the block belongs to the span.
        """
        parent = self._remote(parents[0]) if len(parents) == 1 else None
        if parent is None:
            yield
            return
        api = self._api
        span = self._tracer.start_span(
            name, context=parent, kind=api.SpanKind.SERVER, attributes=told
        )
        try:
            with api.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            code = error.code if isinstance(error, LognodeError) else type(error).__name__
            self._failed(span, code)
            raise
        finally:
            span.end()

    def _failed(self, span: Any, code: str) -> None:
        span.set_attribute("error.type", code)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, code))

    def begin(self, parent: str | None) -> AppendTrace | None:
        """Return the trace of a request, or None if its client is not traced."""
        context = self._remote(parent)
        return None if context is None else AppendTrace(context)

    def waits(self, made: AppendTrace, futures: Sequence[Any]) -> None:
        """Note the futures of a request's batches."""
        for future in futures:
            if isinstance(future, asyncio.Future):
                self._of_future[future] = made

    def proposed(self, group: Hashable, index: int, futures: Sequence[Any]) -> None:
        """Note an entry with the batches of these futures."""
        found = {id(made): made for each in futures if (made := self._of_future.pop(each, None))}
        entries = self._entries.get(group, [])
        if not found or len(entries) >= _ENTRIES_MAX:
            return
        entry = _Entry(index)
        for made in found.values():
            made.entries.append(entry)
        self._entries.setdefault(group, []).append(entry)

    def look(
        self, group: Hashable, *, leads: bool, durable: int, committed: int, applied: int
    ) -> None:
        """Note how far the entries of a group have come: the indexes of its last entries."""
        entries = self._entries.get(group)
        if not entries:
            return
        at_ns = time.time_ns()
        for entry in entries:
            if not entry.durable_ns and entry.index <= durable:
                entry.durable_ns = at_ns
            if not entry.committed_ns and entry.index <= committed:
                entry.committed_ns = at_ns
            if entry.index <= applied:
                entry.applied_ns = at_ns
        left = [entry for entry in entries if not entry.applied_ns] if leads else []
        if left:
            self._entries[group] = left
        else:
            del self._entries[group]

    def end(self, made: AppendTrace, code: str | None, **told: Any) -> None:
        """Export the spans of a request. `code` is that of its error, if the request failed."""
        api, end_ns = self._api, time.time_ns()
        attributes = {f"lognode.{name}": value for name, value in told.items()}
        span = self._tracer.start_span(
            "lognode append", context=made.parent, kind=api.SpanKind.SERVER,
            attributes=attributes, start_time=made.began_ns,
        )  # fmt: skip
        if code is not None:
            self._failed(span, code)
        below = api.set_span_in_context(span)
        for entry in made.entries:
            for name, begin, end in (
                ("gather", made.began_ns, entry.proposed_ns),
                ("wal", entry.proposed_ns, entry.durable_ns),
                ("quorum", entry.proposed_ns, entry.committed_ns),
                ("apply", entry.committed_ns, entry.applied_ns),
            ):
                if begin and end:
                    child = self._tracer.start_span(
                        f"lognode {name}", context=below, start_time=begin,
                        attributes={"lognode.index": entry.index},
                    )  # fmt: skip
                    child.end(end)
        span.end(end_ns)

    async def close(self) -> None:
        """Export what waits, within two seconds. The rest is dropped."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut() -> None:
            self._provider.shutdown()
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut, name="lognode-traces", daemon=True).start()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await done.wait()
        except TimeoutError:
            return


def exporting(node: int) -> Traces:
    """Return traces, also of the SDK in this process.

    They are exported by the exporter that `OTEL_TRACES_EXPORTER` names: by default OTLP over HTTP.
    Raises InvalidArgument when OpenTelemetry or the exporter is not installed.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidArgument(
            f"traces are on, and OpenTelemetry is not installed ({error}). Install "
            "`lognode[otel]`, or start the node without --traces",
            what="traces",
        ) from None
    name = os.environ.get("OTEL_TRACES_EXPORTER") or _EXPORTER
    found = tuple(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise InvalidArgument(
            f"traces are on, and the exporter {name!r} (OTEL_TRACES_EXPORTER) is not installed. "
            f"Install its package, for example `{_PACKAGE}` for {_EXPORTER!r}, or start the node "
            "without --traces",
            what="traces",
        )
    told = {"service.name": "lognode", "service.instance.id": str(node)}
    provider = TracerProvider(resource=Resource.create(told), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    trace.set_tracer_provider(provider)
    return Traces(provider)
