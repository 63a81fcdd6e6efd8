"""`lognode-chaos serve`: the list of tests, their files, and nothing beside them."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from made_up_run import Shape, make
from yarl import URL

from lognode.chaos.main import main
from lognode.chaos.report import serve, write

Asked = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    bad = make(folder / "append-kill" / "20260102T030405.000", Shape(seconds=6))
    shutil.copytree(bad, folder / "set none" / "20260103T030405.000")
    write(bad)
    (bad / "node1.log").write_text("a line <b>\n")
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    return folder


def browse(store: Path, what: Callable[[Asked], Awaitable[None]]) -> None:
    """Serve the store on a free port while the function asks."""

    async def body() -> None:
        runner = web.AppRunner(serve.application(store))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]

        async def asked(path: str, **headers: str) -> tuple[int, str, str]:
            address = URL(f"http://{host}:{port}{path}", encoded=True)
            async with session.get(address, headers=headers) as answer:
                return answer.status, answer.content_type, await answer.text()

        try:
            async with aiohttp.ClientSession() as session:
                await what(asked)
        finally:
            await runner.cleanup()

    asyncio.run(body())


def test_the_newest_test_is_first(store: Path) -> None:
    async def look(asked: Asked) -> None:
        status, kind, page = await asked("/")
        assert (status, kind) == (200, "text/html")
        assert page.index("/set%20none/20260103T030405.000/") < page.index("/append-kill/")
        assert 'class="invalid-text"' in page
        # Only one of the two has a report yet.
        assert page.count("report.html") == 1

    browse(store, look)


def test_reports_and_files_are_served(store: Path) -> None:
    folder = "/append-kill/20260102T030405.000"

    async def look(asked: Asked) -> None:
        status, kind, page = await asked(f"{folder}/report.html")
        assert (status, kind) == (200, "text/html")
        assert 'id="verdict"' in page
        status, kind, page = await asked(folder)
        assert status == 200
        assert "node1.log" in page
        assert await asked(f"{folder}/node1.log") == (200, "text/plain", "a line <b>\n")
        assert (await asked("/set%20none/20260103T030405.000/"))[0] == 200

    browse(store, look)


def test_nothing_outside_of_the_store_is_served(store: Path) -> None:
    async def look(asked: Asked) -> None:
        for path in (
            "/../secret", "/%2e%2e/secret", "/..%2fsecret", "/out", "//etc/passwd",
            "/append-kill/../../secret", "/%2Fetc%2Fpasswd", "/none", "/%00",
        ):  # fmt: skip
            status, _, text = await asked(path)
            assert status in (400, 404), path
            assert "secret" not in text or path[1:] in text or "%2e" in path or "%2f" in path

    browse(store, look)


def test_other_names_of_this_machine_are_refused(store: Path) -> None:
    async def look(asked: Asked) -> None:
        assert (await asked("/", Host="rebound.example:80"))[0] == 403

    browse(store, look)


def test_a_store_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--store", str(tmp_path / "none")])
    assert ended.value.code == 2
    assert f"folder {tmp_path / 'none'}" in capsys.readouterr().err
