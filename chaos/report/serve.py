"""The verb `serve`: a page on loopback that lists the tests of a store and shows their files."""

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from .page import NAME, document, name_of
from .words import count

Say = Callable[[str], None]

_HOST: Final = "127.0.0.1"
_PORT: Final = 8_090
_LOCAL: Final = ("127.0.0.1", "localhost")
_TEXT: Final = {".json", ".jsonl", ".log", ".txt", ".toml", ".map", ""}
_STORE: Final = web.AppKey("store", Path)


def add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", say: Say) -> None:
    """Add `serve`; its handler is called with the arguments and returns the exit code."""
    serve = verbs.add_parser("serve", help="show the tests of a store in a browser")
    serve.add_argument(
        "--store", type=_folder, default="store", metavar="DIR",
        help="directory of the tests (default ./store)",
    )  # fmt: skip
    serve.add_argument(
        "--port", type=_port, default=_PORT, help=f"port on {_HOST}; 0: any free port ({_PORT})"
    )
    serve.set_defaults(verb=lambda arguments: run(arguments, say))


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(
            f"folder {text} does not exist; give the folder of --store"
        )
    return Path(text)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65,535")
    return int(text)


def run(arguments: argparse.Namespace, say: Say) -> int:
    """Serve until interrupted; return 0 then, 2 when the port is taken."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(_serve(arguments.store, arguments.port, say))
        except OSError as error:
            say(
                f"cannot listen on {_HOST}:{arguments.port}: {error.strerror}; give another "
                "port with --port"
            )
            return 2
    return 0


async def _serve(store: Path, port: int, say: Say) -> None:
    runner = web.AppRunner(application(store))
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOST, port).start()
        say(f"http://{_HOST}:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def application(store: Path) -> web.Application:
    """Return the routes: `/` the list of tests, `/STORE/PATH` a file, `/STORE/PATH/` a folder."""
    app = web.Application(middlewares=[_only_local])
    app[_STORE] = store.resolve()
    app.router.add_get("/", _index)
    app.router.add_get("/{path:.+}", _file)
    return app


@web.middleware
async def _only_local(
    request: web.Request, handler: Callable[[web.Request], Any]
) -> web.StreamResponse:
    """Refuse other host names: a web page whose name points here must not read the store."""
    if request.url.host not in _LOCAL:
        raise web.HTTPForbidden(text=f"this server serves only {' or '.join(_LOCAL)}\n")
    response: web.StreamResponse = await handler(request)
    return response


async def _index(request: web.Request) -> web.Response:
    store = request.app[_STORE]
    rows = "".join(_row(store, folder) for folder in _tests(store))
    body = (
        f"<header><h1>Tests</h1><p class=why><code>{escape(str(store))}</code></p></header>\n"
        '<section><div class="scroll"><table><tr><th>verdict</th><th>test</th><th>began</th>'
        "<th class=num>ok</th><th class=num>fail</th><th class=num>info</th><th>why</th>"
        f"<th></th></tr>\n{rows}</table></div>{'' if rows else '<p>There is no test yet.</p>'}"
        "</section>"
    )
    return _html(document("lognode-chaos", body))


def _tests(store: Path) -> list[Path]:
    """Return the folders STORE/TEST/TIME, newest first."""
    found = [path.parent for path in store.glob("*/*/test.json")]
    return sorted(found, key=lambda folder: (folder.name, folder.parent.name), reverse=True)


def _row(store: Path, folder: Path) -> str:
    test, results = _json(folder / "test.json"), _json(folder / "results.json")
    verdict = str(results.get("verdict", "not judged"))
    counts = results.get("counts", {})
    numbers = "".join(
        f"<td class=num>{count(counts.get(name, 0))}</td>" for name in ("ok", "fail", "info")
    )
    there = quote(folder.relative_to(store).as_posix())
    name = escape(name_of(test))
    if (folder / NAME).exists():
        name = f'<a href="/{there}/{NAME}">{name}</a>'
    return (
        f'<tr><td class="{escape(verdict)}-text">{escape(verdict)}</td><td>{name}</td>'
        f"<td class=num>{escape(folder.name)}</td>{numbers}<td>{escape(results.get('why', ''))}"
        f'</td><td><a href="/{there}/">files</a></td></tr>\n'
    )


def _json(path: Path) -> dict[str, Any]:
    """Return what a test has written so far: it may still run, or have ended half-way."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content


async def _file(request: web.Request) -> web.StreamResponse:
    store = request.app[_STORE]
    asked = request.match_info["path"]
    try:
        path = (store / asked).resolve()
    except (OSError, ValueError):
        raise web.HTTPNotFound() from None
    if not path.is_relative_to(store) or not path.exists():
        raise web.HTTPNotFound(text=f"the store does not contain {asked}\n")
    if path.is_dir():
        if not asked.endswith("/"):
            raise web.HTTPFound(f"/{quote(asked)}/")
        return _html(document(path.name, _listing(store, path)))
    response = web.FileResponse(path)
    if path.suffix in _TEXT:
        response.content_type = "text/plain"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _listing(store: Path, folder: Path) -> str:
    rows = "".join(
        f'<tr><td><a href="{quote("./" + path.name)}{"/" if path.is_dir() else ""}">'
        f"{escape(path.name)}{'/' if path.is_dir() else ''}</a></td><td class=num>"
        f"{'' if path.is_dir() else count(path.stat().st_size)}</td></tr>\n"
        for path in sorted(folder.iterdir())
        if path.exists()
    )
    return (
        f"<header><h1>{escape(folder.relative_to(store).as_posix())}</h1>"
        f'<nav><a href="/">all tests</a></nav></header>\n<section><table><tr><th>file</th>'
        f"<th class=num>bytes</th></tr>\n{rows}</table></section>"
    )


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")
