"""The embedded proxy's API answers as Toxiproxy's does; its client; which server is taken."""

import asyncio
import json
import re
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fault_proxies import ask, hang, program, rig

from lognode.chaos.proxyserver import EMBEDDED, Program, ProxyServer, choose
from lognode.chaos.toxiproxy import ToxiproxyError
from lognode.client.protocol.errors import InvalidArgument, Unavailable

pytestmark = pytest.mark.cluster

LATENCY = {"type": "latency", "attributes": {"latency": 5}}
P = {"name": "p", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:9"}
CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/version", None),
    ("GET", "/proxies", None),
    ("POST", "/proxies", P),
    ("POST", "/proxies", P),
    ("POST", "/proxies", {**P, "name": "off", "enabled": False}),
    ("POST", "/proxies", {"listen": "127.0.0.1:0"}),
    ("POST", "/proxies", {"name": "q"}),
    ("POST", "/proxies", {**P, "name": "q", "listen": "nowhere"}),
    ("POST", "/proxies", {**P, "name": 5}),
    ("POST", "/proxies", []),
    ("POST", "/proxies", "no JSON"),
    ("POST", "/proxies", ""),
    ("PUT", "/proxies", P),
    ("GET", "/proxies/p", None),
    ("GET", "/proxies/nobody", None),
    ("GET", "/nothing", None),
    ("PATCH", "/proxies/p", {"upstream": "127.0.0.1:10"}),
    ("POST", "/proxies/p", {"enabled": False}),
    ("PATCH", "/proxies/p", {"enabled": True}),
    ("PATCH", "/proxies/p", {"listen": "nowhere"}),
    ("PATCH", "/proxies/p", {"enabled": "yes"}),
    ("PATCH", "/proxies/nobody", {}),
    ("POST", "/proxies/p/toxics", LATENCY),
    ("POST", "/proxies/p/toxics", LATENCY),
    ("POST", "/proxies/p/toxics", {**LATENCY, "stream": "UPSTREAM", "toxicity": 0.5}),
    ("POST", "/proxies/p/toxics", {"type": "slicer", "name": "mine", "attributes": {"delay": 1}}),
    ("POST", "/proxies/p/toxics", {**LATENCY, "name": "z", "stream": "sideways"}),
    ("POST", "/proxies/p/toxics", {"type": "rain"}),
    ("POST", "/proxies/p/toxics", {}),
    ("POST", "/proxies/p/toxics", {"type": "timeout", "attributes": {"timeout": "long"}}),
    ("POST", "/proxies/p/toxics", {"type": "timeout", "attributes": {"timeout": 1.5}}),
    ("POST", "/proxies/p/toxics", {"type": "timeout", "attributes": {"unknown": 1}}),
    ("POST", "/proxies/p/toxics", {"type": "timeout", "toxicity": "much"}),
    ("POST", "/proxies/nobody/toxics", LATENCY),
    ("GET", "/proxies/p/toxics", None),
    ("GET", "/proxies/nobody/toxics", None),
    ("GET", "/proxies/p/toxics/mine", None),
    ("GET", "/proxies/p/toxics/nothing", None),
    ("PATCH", "/proxies/p/toxics/mine", {"attributes": {"average_size": 7}, "toxicity": 0.25}),
    ("POST", "/proxies/p/toxics/mine", {"attributes": {"average_size": 8}}),
    ("PATCH", "/proxies/p/toxics/mine", {"attributes": {"average_size": "big"}}),
    ("PATCH", "/proxies/p/toxics/nothing", {}),
    *(
        ("POST", "/proxies/p/toxics", {"type": kind, "name": kind})
        for kind in ("bandwidth", "slow_close", "reset_peer", "limit_data")
    ),
    ("GET", "/proxies", None),
    ("DELETE", "/proxies/p/toxics/mine", None),
    ("DELETE", "/proxies/p/toxics/mine", None),
    ("POST", "/populate", [{**P, "name": "a"}, {**P, "name": "b", "enabled": False}]),
    ("POST", "/populate", [{**P, "name": "a", "upstream": "127.0.0.1:11"}]),
    ("POST", "/populate", [{**P, "name": "c"}, {"name": "d"}]),
    ("POST", "/populate", [{**P, "name": "c"}, {**P, "name": "d", "listen": "nowhere"}]),
    ("POST", "/populate", []),
    ("POST", "/populate", {}),
    ("POST", "/reset", None),
    ("GET", "/proxies", None),
    ("DELETE", "/proxies/p", None),
    ("DELETE", "/proxies/p", None),
    ("DELETE", "/reset", None),
]


@pytest.fixture(params=["embedded", "toxiproxy"])
def server(request: pytest.FixtureRequest) -> Program:
    found: Program = program(request.param)
    return found


def plain(text: str) -> Any:
    """JSON, if it is; free ports and what a parser says of a malformed body are left out."""
    text = re.sub(r"127\.0\.0\.1:\d{3,}", "127.0.0.1:PORT", text)
    text = re.sub(r'("error": ?"bad request body): .*?(", ?"status")', r"\1\2", text)
    text = re.sub(r'("version": ?)".*"', r'\1"V"', text)
    try:
        return json.loads(text)
    except ValueError:
        return text


async def answers(server: Program) -> list[tuple[str, str, Any, int, str, Any]]:
    process = ProxyServer(server)
    await process.start()
    found = []
    try:
        async with aiohttp.ClientSession() as session:
            for method, path, body in CALLS:
                data = body if isinstance(body, str) or body is None else json.dumps(body)
                url = f"http://{process.api.address}{path}"
                async with session.request(method, url, data=data) as answer:
                    text = plain(await answer.text())
                    kind = answer.headers.get("Content-Type", "").split(";")[0]
                    kind = kind if text else ""
                    found.append((method, path, body, answer.status, kind, text))
    finally:
        await process.stop()
    return found


def test_both_servers_answer_the_same() -> None:
    real, embedded = (asyncio.run(answers(program(kind))) for kind in ("toxiproxy", "embedded"))
    for ours, theirs in zip(embedded, real, strict=True):
        assert ours == theirs
    statuses = {one[3] for one in real}
    assert statuses == {200, 201, 204, 400, 404, 405, 409, 500}


def test_pages_in_a_browser_are_refused(server: Program) -> None:
    async def body() -> None:
        async with rig(server) as made, aiohttp.ClientSession() as session:
            agent = {"User-Agent": "Mozilla/5.0"}
            url = f"http://{made.api.address}/version"
            async with session.get(url, headers=agent) as answer:
                assert answer.status == 403
                assert await answer.text() == "User agent not allowed\n"

    asyncio.run(body())


def test_the_client_knows_every_call(server: Program) -> None:
    async def body() -> None:
        async with rig(server) as made:
            api = made.api
            assert await api.version() in ("git", "embedded")
            assert list(await api.proxies()) == ["p"]
            assert (await api.proxy("p"))["enabled"]
            (q,) = await api.populate([{"name": "q/ü", "listen": "127.0.0.1:0", "upstream": "h:1"}])
            assert q["name"] == "q/ü"
            added = await api.add_toxic("p", "latency", name="slow", attributes={"latency": 1})
            assert added["toxicity"] == 1
            await api.update_toxic("p", "slow", toxicity=0.5, attributes={"jitter": 1})
            (one,) = await api.toxics("p")
            assert one["attributes"] == {"latency": 1, "jitter": 1}
            await api.update("p", enabled=False)
            await api.reset()
            assert (await api.proxy("p"))["enabled"]
            assert await api.toxics("p") == []
            await api.delete("p")
            with pytest.raises(ToxiproxyError, match=r"GET /proxies/p: proxy not found") as error:
                await api.proxy("p")
            assert error.value.status == 404

    asyncio.run(body())


def test_calls_at_the_same_time(server: Program) -> None:
    async def body() -> None:
        async with rig(server) as made:
            api = made.api
            await asyncio.gather(*(api.create(f"p{n}", "127.0.0.1:9") for n in range(50)))
            assert len(await api.proxies()) == 51
            refused = await asyncio.gather(
                *(api.create("same", "127.0.0.1:9") for _ in range(10)), return_exceptions=True
            )
            assert sum(isinstance(one, ToxiproxyError) for one in refused) == 9
            streams = await made.connect()
            await asyncio.gather(
                *(api.add_toxic("p", "latency", name=f"t{n}") for n in range(10)),
                *(api.delete(f"p{n}") for n in range(50)),
            )
            assert await ask(streams) < 2

    asyncio.run(body())


def test_a_server_that_hangs_is_told_in_time_and_restarted(server: Program) -> None:
    async def body() -> None:
        process = ProxyServer(server, timeout_s=0.5)
        with pytest.raises(Unavailable, match="was not started"):
            _ = process.api
        await process.start()
        await hang(process.pid)
        with pytest.raises(Unavailable, match=r"within 0\.5 s"):
            await process.api.version()
        await process.restart()
        assert await process.api.proxies() == {}
        await process.stop()
        await process.stop()

    asyncio.run(body())


def test_an_unusable_program_is_named() -> None:
    async def body() -> None:
        with pytest.raises(Unavailable, match="/bin/false ended with 1"):
            await ProxyServer(Program(("/bin/false",), "none")).start()

    asyncio.run(body())


def a_program(path: Path, content: bytes = b"#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_server_is_chosen_by_variable_then_path_then_embedded(tmp_path: Path) -> None:
    line = b"#!/bin/sh\n#mod\tgithub.com/Shopify/toxiproxy/v2\tv2.9.1\th1:\n"
    named = a_program(tmp_path / "mine", line)
    found = a_program(tmp_path / "bin" / "toxiproxy-server")
    path = {"PATH": str(found.parent)}
    both = {**path, "TOXIPROXY_SERVER": str(named)}
    assert choose("auto", both) == Program((str(named),), "toxiproxy 2.9.1")
    assert choose("auto", path) == Program((str(found),), "toxiproxy of an unknown version")
    assert choose("embedded", both) is EMBEDDED
    with pytest.raises(
        InvalidArgument, match=r"TOXIPROXY_SERVER is '/no/such', which is not a prog"
    ):
        choose("auto", {"TOXIPROXY_SERVER": "/no/such"})
    with pytest.raises(
        InvalidArgument, match="the proxy server 'squid' does not exist; the kinds are auto, toxi"
    ):
        choose("squid")  # type: ignore[arg-type]


def test_without_the_real_server_the_embedded_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert choose("auto", {"PATH": str(tmp_path)}) is EMBEDDED
    with pytest.raises(
        InvalidArgument, match="PATH contains no toxiproxy-server; scripts/setup inst"
    ):
        choose("toxiproxy", {"PATH": str(tmp_path)})
