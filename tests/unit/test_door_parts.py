"""The parts of the door without a node: values, parameters, ids of events, clients, admission, and
the OpenAPI document against the table of routes."""

import asyncio
import base64
import json
import re
from typing import Any, cast

import pytest

from lognode.client.client import AsyncClient
from lognode.client.group_pulls import TICKET_CHARS_MAX, Ticket
from lognode.client.protocol import limits
from lognode.client.protocol.errors import (
    BY_CODE,
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    PartialFailure,
    SequenceMismatch,
    Timeout,
)
from lognode.client.protocol.types import ABSENT, ANY, Cursor, Tail, Timestamp
from lognode.node.door import bodies, clients, parameters
from lognode.node.door.admission import Admission
from lognode.node.door.clients import Clients, most_clients
from lognode.node.door.door import TABLE, Door
from lognode.node.door.event_ids import EventIds
from lognode.node.door.json_kinds import BYTES, EXPECT, FLAG, TEXT, integer, list_of, nullable
from lognode.node.door.openapi import document
from lognode.node.door.parameters import decoded_bytes, read_query
from lognode.node.door.problems import STATUSES, problem, status_of


def test_bytes_have_one_form_in_each_direction() -> None:
    assert BYTES.take("é", "value") == "é".encode()
    assert BYTES.take({"b64": "/w=="}, "value") == b"\xff"


@pytest.mark.parametrize(
    "value",
    [1, True, None, [], {}, {"b64": 1}, {"b64": "/w"}, {"b64": "é"}, {"b64": "/w==", "x": 1},
     "\ud800"],
)  # fmt: skip
def test_other_values_are_not_bytes(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="value is "):
        BYTES.take(value, "value")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (integer(1, 5), 5, [0, 6, 1.0, True, "1", None, 10**400]),
        (FLAG, False, [0, "false", None]),
        (TEXT, "t", [1, None, "\ud800"]),
        (nullable(TEXT), None, [1]),
        (list_of(FLAG, 2), [True], [True, [True] * 3, [1], {}]),
    ],
)
def test_a_kind_refuses_what_its_schema_refuses(kind: Any, good: Any, bad: list[Any]) -> None:
    assert kind.take(good, "v") == good
    for value in bad:
        with pytest.raises(InvalidArgument):
            kind.take(value, "v")


def test_expect_is_a_seq_or_a_word() -> None:
    assert EXPECT.take(7, "expect") == 7
    assert EXPECT.take("absent", "expect") is ABSENT
    assert EXPECT.take("any", "expect") is ANY
    for value in (0, -1, True, 1 << 63, "ABSENT", None, 1.5):
        with pytest.raises(InvalidArgument):
            EXPECT.take(value, "expect")


def test_starts_and_ends_of_a_scan() -> None:
    read = parameters.START.read
    assert [read(text, "from") for text in (b"7", b"earliest", b"tail:3", b"time:9")] == [
        7, "earliest", Tail(3), Timestamp(9),
    ]  # fmt: skip
    assert parameters.END.read(b"time:9", "to") == Timestamp(9)
    times = (b"2026-11-28T16:00:00Z", b"2026-11-28 17:00:00 01:00", b"2026-11-28T16:00")
    assert {read(text, "from") for text in times} == {Timestamp(1_795_881_600_000)}
    assert parameters.END.read(b"2026-11-28", "to") == Timestamp(1_795_824_000_000)
    for text in (b"2026-13-01", b"2026-11-28T", b"2026-11-28" + b"0" * 40, b"2026-11-28\0"):
        with pytest.raises(InvalidArgument):
            parameters.END.read(text, "to")
    for text in (b"", b"-1", b"tail:", b"x", b"9" * 20, b"9" * 19, "٣".encode(), b"tail:-1"):
        with pytest.raises(InvalidArgument):
            read(text, "from")
    for text in (b"tail:3", b"latest", b""):
        with pytest.raises(InvalidArgument):
            parameters.END.read(text, "to")


def test_a_refused_value_is_shown_as_the_asker_wrote_it() -> None:
    """Errors had shown the bytes of addresses and headers as Python does."""
    for value, shown in (
        (b"yesterday", "'yesterday'"),
        (b"\xff", r"'\\xff'"),
        ("zü".encode(), "'zü'"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            parameters.START.read(value, "from")
        assert caught.value.message.startswith(f"from is {shown}; give earliest, ")


def test_a_query_is_bytes() -> None:
    assert read_query("key=%FF&key=a+b&x=&%6b=1&&y") == {
        "key": [b"\xff", b"a b"], "x": [b""], "k": [b"1"], "y": [b""],
    }  # fmt: skip
    assert decoded_bytes("\udcff%00/%zz") == b"\xff\x00/%zz"
    with pytest.raises(InvalidArgument):
        read_query("&" * 3_000)


# Ids of events.

KEYS = Cursor(keys={b"a": 3, b"\xff": 1})
SPANS = Cursor(spans=((b"", b"m", 4), (b"m", None, 9)))


@pytest.mark.parametrize(("cursor", "keys"), [(KEYS, [b"a", b"\xff"]), (SPANS, [])])
def test_an_id_is_the_cursor_again(cursor: Cursor, keys: list[bytes]) -> None:
    ids = EventIds(5, keys)
    made = ids.made(cursor)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", made)
    assert ids.read(made) == cursor


def test_an_id_of_another_log_or_choice_is_refused() -> None:
    made = EventIds(5, [], "a").made(SPANS)
    for other in (EventIds(6, [], "a"), EventIds(5, [], "b"), EventIds(5, [b"a"], "a")):
        with pytest.raises(InvalidArgument, match="another log or of other keys"):
            other.read(made)


def test_a_made_up_id_is_refused() -> None:
    import zlib

    ids = EventIds(5, [], "a")
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(4 << 20), 9)).decode()
    good = ids.made(SPANS)

    def packed(text: str) -> str:
        return base64.urlsafe_b64encode(zlib.compress(f"{ids._of} {text}".encode())).decode()

    spans = ",".join(f'{{"start": "{n:06}", "end": "{n:06}a", "next": 1}}' for n in range(1_100))
    crafted = map(packed, ["{", "[" * 50_000, '{"v": 1, "keys": []}', "", "[1]",
                           f'{{"v": 1, "spans": [{spans}]}}'])  # fmt: skip
    cut, long = good[:-6], good + "AAAA" * 2_000
    for text in (*crafted, "x", "!", cut, "é", bomb, "A" * 8_000, long, "\udcff"):
        with pytest.raises(InvalidArgument):
            ids.read(text)


def test_an_id_that_no_header_can_carry_is_refused() -> None:
    import random

    draw = random.Random(1)
    keys = {draw.randbytes(100): 1 for _ in range(100)}
    with pytest.raises(LimitExceeded, match="Follow fewer keys"):
        EventIds(5, list(keys)).made(Cursor(keys=keys))


# Tokens of batches.


@pytest.mark.parametrize("key", [b"k", b"\xff\x00", b"x" * limits.key_bytes_max])
def test_the_token_of_a_batch_is_its_ticket_again(key: bytes) -> None:
    for number in (1, (1 << 63) - 2):
        ticket = Ticket(number, number, number, number, number, key)
        text = ticket.to_text()
        assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
        assert len(text) <= TICKET_CHARS_MAX
        assert json.loads(json.dumps(text)) == text
        assert Ticket.from_text(text) == ticket


def test_a_ticket_out_of_bounds_is_refused() -> None:
    good = Ticket(1, 2, 3, 4, 5, b"k")
    bad = [
        good._replace(group=0), good._replace(consumer=1 << 63), good._replace(token=0),
        good._replace(first=6), good._replace(key=b""),
        good._replace(key=b"x" * (limits.key_bytes_max + 1)),
    ]  # fmt: skip
    text = good.to_text()
    other_version = base64.urlsafe_b64encode(b"\x02" + base64.urlsafe_b64decode(text)[1:])
    texts = [*(each.to_text() for each in bad), other_version.decode(), f"{text}=", f" {text}",
             text.replace("A", "+", 1), text[:-1], "\udcff"]  # fmt: skip
    for each in texts:
        with pytest.raises(InvalidArgument, match="not of a batch"):
            Ticket.from_text(each)


# Clients and admission.


class FakeClient:
    def __init__(self, token: str | None) -> None:
        self.token = token
        self.closed = False

    async def close(self, timeout: float) -> None:
        self.closed = True


def pool(most: int) -> tuple[Clients, list[FakeClient]]:
    made: list[FakeClient] = []

    def make(token: str | None) -> AsyncClient:
        made.append(FakeClient(token))
        return cast(AsyncClient, made[-1])

    return Clients(make, lambda: most), made


def test_a_token_keeps_its_client_and_the_oldest_idle_client_gives_way() -> None:
    async def run() -> None:
        found, made = pool(2)
        for token in ("a", "b", "a", "c"):
            async with found.of(token, None) as client:
                assert cast(FakeClient, client).token == token
        await asyncio.sleep(0.01)
        assert [(each.token, each.closed) for each in made] == [
            ("a", False), ("b", True), ("c", False),
        ]  # fmt: skip
        await found.close()
        assert all(each.closed for each in made)

    asyncio.run(run())


def test_a_client_in_use_does_not_give_way() -> None:
    async def run() -> None:
        found, made = pool(1)
        async with found.of("a", None):
            with pytest.raises(Overloaded):
                async with found.of("b", None):
                    pass
            async with found.of("a", None):
                pass
        async with found.of("b", None):
            pass
        assert [each.token for each in made] == ["a", "b"]

    asyncio.run(run())


def test_a_client_that_was_asked_for_too_many_logs_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        monkeypatch.setattr(clients, "_NAMES_MAX", 3)
        found, made = pool(2)
        async with found.of("a", "log-0"):
            for n in range(5):
                async with found.of("a", f"log-{n}"):
                    pass
            assert len(made) == 2
            assert not made[0].closed, "a request still uses this client"
            assert len(found) == 2
        await asyncio.sleep(0.01)
        assert made[0].closed
        assert len(found) == 1

    asyncio.run(run())


def test_a_node_of_a_large_cluster_has_fewer_clients() -> None:
    assert most_clients(256, 3) == 32
    assert most_clients(256, 64) == 4
    assert most_clients(16, 1_000) == 1


def test_admission_bounds_all_and_each_asker() -> None:
    bound = Admission("requests", 4, 0.5)
    with bound.admitted("a"), bound.admitted("a"):
        with pytest.raises(Overloaded, match="a has 2 requests"), bound.admitted("a"):
            pass
        with (
            bound.admitted("b"), bound.admitted("b"),
            pytest.raises(Overloaded, match="serves 4 requests"), bound.admitted("c"),
        ):  # fmt: skip
            pass
    assert len(bound) == 0
    assert not bound._under_way


# Problems.


def test_every_error_has_a_status_that_the_document_names() -> None:
    for kind in BY_CODE.values():
        error = kind("text")
        answer = problem(error, "r-1")
        assert answer.status == status_of(error)
        assert answer.status in STATUSES
        assert answer.content_type == "application/problem+json"
        told = json.loads(answer.text or "")
        assert (told["code"], told["outcome"]) == (error.code, error.outcome)
        assert told["request_id"] == "r-1"


def test_a_problem_has_the_fields_of_its_error() -> None:
    told = json.loads(
        problem(SequenceMismatch("m", key=b"\xff", expected=3, actual=4), "r-1").text or ""
    )
    assert told["fields"] == {"key": {"b64": "/w=="}, "expected": 3, "actual": 4}
    partial = PartialFailure("m", acks=[None, None], errors=[SequenceMismatch("m"), Timeout("t")])
    assert status_of(partial) == 504
    told = json.loads(problem(partial, "r-1").text or "")
    assert [each["code"] for each in told["fields"]["errors"]] == ["SEQUENCE_MISMATCH", "TIMEOUT"]


def test_a_quota_and_a_full_queue_say_when_to_come_back() -> None:
    full, quota = Overloaded("m"), Overloaded("m", quota="records", retry_after=2.2)
    assert (problem(full, "r-1").status, problem(full, "r-1").headers["Retry-After"]) == (503, "1")
    assert (problem(quota, "r-1").status, problem(quota, "r-1").headers["Retry-After"]) == (
        429,
        "3",
    )


# The document.


def test_the_document_and_the_routes_are_of_one_table() -> None:
    made = document(TABLE, "1")
    found = {
        (method.upper(), path): operation
        for path, methods in made["paths"].items()
        for method, operation in methods.items()
    }
    assert found.keys() == {(route.method, route.path) for route in TABLE}
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)
    for route in TABLE:
        in_path = {each.name for each in route.parameters if each.where == "path"}
        assert in_path == set(re.findall(r"\{([^}]+)\}", route.path))
        operation = found[route.method, route.path]
        assert [each["name"] for each in operation["parameters"]] == [
            each.name for each in route.parameters
        ]
        assert ("requestBody" in operation) == (route.body is not None)
        assert str(route.status) in operation["responses"]
        assert set(map(str, STATUSES)) < set(operation["responses"])
    json.dumps(made)


def test_no_two_routes_match_one_path() -> None:
    for route in TABLE:
        segments = re.sub(r"\{[^}]+\}", "x", route.path).split("/")
        same = [each for each in TABLE if each.match(segments) and each.method == route.method]
        assert len(same) <= 1 or same == [route]


def test_the_door_has_its_paths_only() -> None:
    assert Door.has("/v1/logs")
    assert Door.has("/openapi.json")
    assert not Door.has("/metrics")


# Bodies.


def test_a_text_of_too_many_parts_is_refused_before_it_is_decoded() -> None:
    assert bodies._parsed('{"a": [1, 2]}', "x") == {"a": [1, 2]}
    for text in ("[" * 70_000, "[" + "0," * 70_000 + "0]", '"' + "\\n" * 70_000 + '"'):
        with pytest.raises(LimitExceeded):
            bodies._parsed(text, "x")


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[1e5", "[" * 60_000, "1" * 5_000, '{"a": Infinity}', "nul"]
)
def test_a_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        bodies._parsed(text, "x")
