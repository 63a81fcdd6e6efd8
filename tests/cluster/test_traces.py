"""OpenTelemetry: one trace from the span of a caller to the spans of the leader, on real nodes."""

import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.node.replicas.traces import Traces

pytestmark = pytest.mark.cluster
DOOR = "POST /v1/logs/{log}/entries"
STAGES = {"lognode gather", "lognode wal", "lognode quorum", "lognode apply"}


class Collector:
    """What nodes export by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                for found in request.resource_spans:
                    for scope in found.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield made
    made.close()


@pytest.fixture(scope="module")
def own_spans() -> InMemorySpanExporter:
    """The spans of this program, which traces."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_trace_goes_from_the_caller_to_the_disks_of_the_leader(
    tmp_path: Path, collector: Collector, own_spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("shop")
    own_spans.clear()
    with testing.cluster(tmp_path, 3, flags=("--traces", "on")) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders")
            log.append("untraced", b"v")
            with tracer.start_as_current_span("sell") as sell:
                log.append("secret-key", b"v")
            trace_id = sell.get_span_context().trace_id

            def leader_spans() -> dict[str, Any] | None:
                found = {
                    span.name: span for span in collector.spans
                    if int.from_bytes(span.trace_id) == trace_id
                }  # fmt: skip
                return found if {*STAGES, "lognode append"} <= found.keys() else None

            found = testing.eventually(leader_spans, what="the leader exports its spans")
    (request,) = [span for span in own_spans.get_finished_spans() if "request" in span.name]
    assert request.parent.span_id == sell.get_span_context().span_id
    append = found["lognode append"]
    assert int.from_bytes(append.parent_span_id) == request.context.span_id
    for name in STAGES:
        span = found[name]
        assert span.parent_span_id == append.span_id
        assert append.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= append.end_time_unix_nano
    gather, wal, quorum, apply = (found[f"lognode {name}"] for name in (
        "gather", "wal", "quorum", "apply"))  # fmt: skip
    assert gather.end_time_unix_nano == wal.start_time_unix_nano == quorum.start_time_unix_nano
    assert quorum.end_time_unix_nano == apply.start_time_unix_nano
    traces = {int.from_bytes(span.trace_id) for span in collector.spans}
    assert traces == {trace_id}, "only what is traced by its caller is traced"
    told = "".join(str(span) for span in collector.spans)
    assert "secret-key" not in told


def test_an_append_over_http_is_one_trace_from_the_door_to_the_disks_of_the_leader(
    tmp_path: Path, collector: Collector
) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    sampled = f"00-{trace_id}-{span_id}-01"
    with testing.cluster(tmp_path, 3, flags=("--traces", "on")) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers) as client:
            client.create_log("orders")
            (leader,) = {
                row["leader"] for row in client.status()["ranges"] if row["log"] == "orders"
            }
        other = next(node for node in cluster.nodes if node.number != leader)
        path = f"http://{other.http}/v1/logs/orders/entries"
        for parents in ([], [f"00-{'1' * 32}-{span_id}-00"], ["ff" + sampled[2:]], [sampled + "x"],
                        ["9" * 4_000], [f"00-{'2' * 32}-{span_id}-01"] * 2):  # fmt: skip
            assert post(path, {"key": "k", "value": "v"}, parents)["seq"]
        assert post(path, {"key": "secret-key", "value": "v"}, [sampled])["seq"]
        with pytest.raises(urllib.error.HTTPError, match="409"):
            post(path, {"key": "secret-key", "value": "v", "expect": "absent"}, [sampled])

        def whole() -> dict[str, list[Any]] | None:
            found: dict[str, list[Any]] = {}
            for span in collector.spans:
                found.setdefault(span.name, []).append(span)
            wanted = {*STAGES, "lognode append", "lognode append request", DOOR}
            return found if wanted <= found.keys() and len(found[DOOR]) == 2 else None

        found = testing.eventually(whole, what="the nodes export the spans")
    assert {span.trace_id.hex() for spans in found.values() for span in spans} == {trace_id}
    done, refused = sorted(found[DOOR], key=lambda span: span.status.code)
    assert {done.parent_span_id.hex(), refused.parent_span_id.hex()} == {span_id}
    assert {each.key: each.value.string_value for each in refused.attributes}["error.type"] == (
        "SEQUENCE_MISMATCH"
    )
    (request,) = (s for s in found["lognode append request"] if s.parent_span_id == done.span_id)
    (append,) = (s for s in found["lognode append"] if s.parent_span_id == request.span_id)
    below = {s.name for name in STAGES for s in found[name] if s.parent_span_id == append.span_id}
    assert below == STAGES
    assert done.start_time_unix_nano <= request.start_time_unix_nano
    assert request.end_time_unix_nano <= done.end_time_unix_nano
    assert "secret-key" not in "".join(str(span) for span in collector.spans)


def post(address: str, value: Any, parents: list[str]) -> Any:
    """Append over HTTP, with these headers `traceparent`. Raises HTTPError for a refusal."""
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    body = json.dumps(value).encode()
    connection.putrequest("POST", f"/{path}")
    for name, text in (("Content-Type", "application/json"), ("Content-Length", str(len(body))),
                       *(("traceparent", parent) for parent in parents)):  # fmt: skip
        connection.putheader(name, text)
    connection.endheaders(body)
    answer = connection.getresponse()
    told = json.load(answer)
    connection.close()
    if answer.status != 200:
        raise urllib.error.HTTPError(address, answer.status, told["code"], answer.headers, None)
    return told


def test_a_failed_request_ends_its_span_with_the_code(
    tmp_path: Path, own_spans: InMemorySpanExporter
) -> None:
    own_spans.clear()
    with testing.cluster(tmp_path, 1) as cluster, lognode.Client(cluster.servers) as client:
        log = client.create_log("orders")
        log.append("k", b"v")
        cluster.nodes[0].kill()
        with (
            trace.get_tracer("shop").start_as_current_span("sell"),
            pytest.raises(LognodeError),
        ):
            log.append("k", b"v", timeout=1.0)
    spans = [span for span in own_spans.get_finished_spans() if "request" in span.name]
    assert spans
    assert {span.attributes["error.type"] for span in spans} <= {"UNAVAILABLE", "TIMEOUT"}


def test_a_stopped_collector_stops_no_append_and_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_spans: InMemorySpanExporter
) -> None:
    (port,) = testing.free_ports(1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    with testing.cluster(tmp_path, 1, flags=("--traces", "on")) as cluster:
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders")
            with trace.get_tracer("shop").start_as_current_span("sell"):
                for n in range(50):
                    log.append("k", b"%d" % n)
            assert log.count("k") == 50
        cluster.nodes[0].stop()


@pytest.mark.parametrize(
    "text",
    [None, "", "x", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "00-" + "1" * 32 + "-" + "0" * 16
     + "-01", "00-" + "1" * 32 + "-" + "1" * 16 + "-00", "01-" + "1" * 32 + "-" + "1" * 16 + "-01",
     "00-" + "G" * 32 + "-" + "1" * 16 + "-01", "00-" + "1" * 32 + "-" + "1" * 16 + "-01\n"],
)  # fmt: skip
def test_a_malformed_or_unsampled_parent_begins_nothing(text: str | None) -> None:
    made = Traces(TracerProvider())
    assert made.begin(text) is None
    assert made.begin("00-" + "1" * 32 + "-" + "1" * 16 + "-01") is not None


@pytest.mark.parametrize(
    ("hidden", "variable", "told"),
    [
        ("sys.modules['opentelemetry'] = None", "", "Install `lognode[otel]`, or start the node"),
        ("", "none_such", "the exporter 'none_such' (OTEL_TRACES_EXPORTER) is not installed"),
    ],
)
def test_a_node_without_opentelemetry_says_what_to_install(
    tmp_path: Path, hidden: str, variable: str, told: str
) -> None:
    code = f"import sys\n{hidden}\nfrom lognode.node.main import main\nsys.exit(main(sys.argv[1:]))"
    ports = testing.free_ports(3)
    listen = [
        "--listen", f"127.0.0.1:{ports[0]}", "--peer-listen", f"127.0.0.1:{ports[1]}",
        "--http", f"127.0.0.1:{ports[2]}", "--data", str(tmp_path / "data"),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *listen, "--traces", "on"], capture_output=True, text=True,
        timeout=30, check=False, env={**os.environ, "OTEL_TRACES_EXPORTER": variable}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_lognode_imports_no_opentelemetry(tmp_path: Path) -> None:
    code = "import lognode, lognode.node.daemon, sys\nassert 'opentelemetry' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path, timeout=30)
    assert done.returncode == 0
