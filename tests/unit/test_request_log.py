"""The lines of the log about requests over HTTP: failures do not fill the log."""

import logging

import pytest
from aiohttp.test_utils import make_mocked_request

from lognode.node.web import request_log
from lognode.node.web.request_log import RequestLog


def test_failures_of_a_status_have_a_line_in_ten_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    monkeypatch.setattr(request_log.time, "monotonic", lambda: now)
    made = RequestLog()

    def answer(status: int, times: int, path: str = "/v1/logs/a/keys/secret/count") -> None:
        for number in range(times):
            headers = {"X-Request-Id": f"r-{number}"}
            made.answered(make_mocked_request("GET", path, headers=headers), status, now - 0.25)

    answer(200, 5)
    answer(404, 5)
    answer(503, 1_000, "/readyz")
    assert not caplog.records, "only failures are told at level INFO"
    answer(503, 1_000)
    answer(504, 1)
    now += 10.5
    answer(503, 3)
    told = [(each.levelname, each.fields) for each in caplog.records]  # type: ignore[attr-defined]
    assert {level for level, _ in told} == {"WARNING"}
    assert [(fields["status"], fields["count"]) for _, fields in told] == [
        (503, 1), (504, 1), (503, 1_000),
    ]  # fmt: skip
    assert told[0][1] == {
        "request_id": "r-0", "method": "GET", "operation": "?", "status": 503, "took_ms": 250.0,
        "count": 1,
    }  # fmt: skip
    caplog.set_level(logging.DEBUG, "lognode.http")
    answer(200, 2)
    assert [each.fields["request_id"] for each in caplog.records[3:]] == ["r-0", "r-1"]  # type: ignore[attr-defined]
