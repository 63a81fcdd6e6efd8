"""The metrics of a real node, and the alerts and the dashboard that name them."""

import importlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_asking import Events, asked
from prometheus_client.parser import text_string_to_metric_families

import lognode
from lognode import testing
from lognode.node.door.door import TABLE
from lognode.testing import LocalNode

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
CASES = ROOT / "deploy" / "prometheus" / "alerts_test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "lognode.json"
PAGE = ROOT / "docs" / "alerts.md"
OF_PROMETHEUS = {"up": {"job", "instance"}}
ADDED = {"job", "instance"}
"""Labels that Prometheus adds to each metric."""
ON_DEMAND = {
    "lognode_parts_restarted_total": {"part"},
    "lognode_unusable_records_total": {"kind"},
    "lognode_group_dead_letters_total": {"group"},
    "lognode_peer_requests_refused_total": {"reason"},
    "lognode_certificate_expiry_seconds": {"certificate"},
}
"""Metrics that have a series only after an event, or with TLS; their names are served anyhow."""


def read_yaml(path: Path) -> Any:
    yaml: Any = importlib.import_module("yaml")  # schemathesis needs this package
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def node(module_path: Path) -> Iterator[LocalNode]:
    """A node that has done a little of everything."""
    with testing.cluster(module_path, 1) as cluster:
        (found,) = cluster.nodes
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders")
            with log.follow(keys=["k"], start="latest") as feed:
                assert next(feed).caught_up
                log.append("k", b"v")
                assert next(entry for batch in feed for entry in batch).value == b"v"
            assert log.count("k") == 1
            with log.consume("work") as consumer:
                next(consumer).ack()
        assert asked(found.http, "GET", "/v1/logs").status == 200
        yield found


@pytest.fixture
def promtool() -> str:
    """The path of promtool, from Debian's package prometheus."""
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("promtool is not installed; .ci/run installs the package prometheus")
        pytest.skip("promtool is not installed")
    return found


def page(node: LocalNode) -> str:
    answer = asked(node.http, "GET", "/metrics")
    assert answer.status == 200
    return answer.body.decode()


def samples(node: LocalNode) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a node by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page(node)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_promtool_accepts_the_metrics(node: LocalNode, promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page(node), capture_output=True, text=True,
        check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_counter_has_a_time_of_creation(node: LocalNode) -> None:
    assert not [name for name in samples(node) if name.endswith("_created")]


@pytest.mark.parametrize("name", re.findall(r"^\| `(lognode_\w+_seconds)`", PAGE.read_text(), re.M))
def test_a_time_of_the_page_was_observed(node: LocalNode, name: str) -> None:
    found = samples(node)
    ((_, count),) = found[f"{name}_count"]
    ((_, total),) = found[f"{name}_sum"]
    assert count >= 1
    assert 0 <= total < 60


def test_the_labels_of_requests_over_http_are_those_of_the_table(node: LocalNode) -> None:
    for path in ("/v1/nope", "/v1/logs/x/y/z", "/v1/%ff", "/v1/logs/none"):
        for method in ("GET", "POST", "BREW"):
            asked(node.http, method, path)
    events = Events(node.http, "/v1/logs/orders/events?key=k")
    testing.eventually(
        lambda: samples(node)["lognode_http_streams"][0][1] == 1, what="the stream counts"
    )
    events.close()
    testing.eventually(
        lambda: samples(node)["lognode_http_streams"][0][1] == 0, what="the stream has ended"
    )
    found = samples(node)["lognode_http_requests_total"]
    assert {labels["route"] for labels, _ in found} <= {"?", *(route.name for route in TABLE)}
    counts = {(labels["route"], labels["status"]): value for labels, value in found}
    assert counts["?", "404"] >= 6
    assert counts["describeLog", "404"] == 1
    assert counts["listLogs", "200"] == 1
    assert all(status.isdigit() and len(status) == 3 for _, status in counts)


# Alerts and the dashboard.


def rules() -> list[dict[str, Any]]:
    (group,) = read_yaml(ALERTS)["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def expressions() -> dict[str, str]:
    """The expressions of alerts and panels by name."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel.get("targets", ()):
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    return found


def plain(expression: str) -> str:
    """An expression of the dashboard without its variables."""
    text = expression.replace("$__rate_interval", "5m")
    return re.sub(r"\$\w+", ".*", text)


def test_promtool_accepts_the_alerts_and_what_they_do(promtool: str) -> None:
    for arguments in (["check", "rules", ALERTS.name], ["test", "rules", CASES.name]):
        done = subprocess.run(
            [promtool, *arguments], capture_output=True, text=True, check=False, timeout=60,
            cwd=ALERTS.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"], capture_output=True, text=True,
        check=False, timeout=60, cwd=ALERTS.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_expressions_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{at}", "expr": plain(expression)}
        for at, expression in enumerate(expressions().values())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_dashboard_name_only_metrics_that_a_node_serves(node: LocalNode) -> None:
    text = page(node)
    served: dict[str, set[str]] = {
        name: set().union(*(labels for labels, _ in found)) for name, found in samples(node).items()
    }
    helped = set(re.findall(r"^# TYPE (\S+) ", text, re.M))
    checked = 0
    for where, expression in expressions().items():
        wanted = plain(expression)
        for name, matchers in re.findall(
            r"\b(up|(?:lognode|process)_\w+)\b(?:\{([^}]*)\})?", wanted
        ):
            if name in ON_DEMAND:
                assert name in helped, f"{where} names {name}, which the node does not serve"
            known = {**served, **OF_PROMETHEUS, **ON_DEMAND}
            assert name in known, f"{where} names {name}, which the node does not serve"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= known[name] | ADDED, f"{where}: {name} has no labels {labels}"
            checked += 1
        for labels_by in re.findall(r"\bby \(([^)]*)\)", wanted):
            of_all = {each for found in (*served.values(), *ON_DEMAND.values()) for each in found}
            assert set(re.split(r",\s*", labels_by)) <= of_all | ADDED, where
    assert checked > 60
    values = {labels["what"] for labels, _ in samples(node)["lognode_consumer_groups"]}
    assert values >= {"waiting", "in_flight", "parked", "consumers"}
    assert {labels["state"] for labels, _ in samples(node)["lognode_nodes"]} >= {"dead", "active"}


def test_each_alert_is_tried_and_explained() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 20
    fires, silent = set(), set()
    for case in read_yaml(CASES)["tests"]:
        (tried,) = case["alert_rule_test"]
        (fires if tried["exp_alerts"] else silent).add(tried["alertname"])
    assert fires == silent == set(names)
    sections = dict(
        re.findall(r"^### (Lognode\w+)\n\n(.*?)(?=^###|\Z)", PAGE.read_text("utf-8"), re.M | re.S)
    )
    assert list(sections) == names
    for rule in rules():
        text = sections[rule["alert"]]
        assert text.startswith(f"*{rule['labels']['severity']}*: ")
        assert "**Action.** " in text
        runbook = rule["annotations"]["runbook"]
        assert runbook == f"docs/alerts.md#{rule['alert'].lower()}"


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])
        }  # fmt: skip
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["description"]
