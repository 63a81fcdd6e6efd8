"""The HTTP API: Toxiproxy's paths, status codes, JSON and errors."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

from aiohttp import web

from .proxy import Proxy, reason, split
from .toxics import ATTRIBUTES, DIRECTIONS, Toxic

VERSION: Final = "embedded"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(Exception):
    """An error answer of the API: {"error": ..., "status": ...}."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.fields = {"error": message, "status": status}
        self.status = status


class FaultProxy:
    """A server of any number of proxies, in this process. Needs a running event loop."""

    def __init__(self) -> None:
        self._proxies: dict[str, Proxy] = {}
        self._changing = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self.address = ""
        """The address of the API, host:port, once it is started."""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the API; port 0 becomes a free port. Raises OSError."""
        application = web.Application(middlewares=[_plainly])
        for method, path, handler in (
            ("GET", "/version", self._version),
            ("POST", "/reset", self._reset),
            ("POST", "/populate", self._populate),
            ("GET", "/proxies", self._index),
            ("POST", "/proxies", self._create),
            ("GET", "/proxies/{proxy}", self._show),
            ("POST", "/proxies/{proxy}", self._update),
            ("PATCH", "/proxies/{proxy}", self._update),
            ("DELETE", "/proxies/{proxy}", self._delete),
            ("GET", "/proxies/{proxy}/toxics", self._toxics),
            ("POST", "/proxies/{proxy}/toxics", self._add_toxic),
            ("GET", "/proxies/{proxy}/toxics/{toxic}", self._show_toxic),
            ("POST", "/proxies/{proxy}/toxics/{toxic}", self._update_toxic),
            ("PATCH", "/proxies/{proxy}/toxics/{toxic}", self._update_toxic),
            ("DELETE", "/proxies/{proxy}/toxics/{toxic}", self._delete_toxic),
        ):
            application.router.add_route(method, path, handler)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        name = self._runner.addresses[0]
        self.address = f"{name[0]}:{name[1]}"

    async def stop(self) -> None:
        """Close the API, and all proxies with their connections."""
        for proxy in self._proxies.values():
            proxy.stop()
        self._proxies.clear()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _version(self, _: web.Request) -> web.Response:
        return _answer({"version": VERSION})

    async def _index(self, _: web.Request) -> web.Response:
        return _answer({name: proxy.to_json() for name, proxy in self._proxies.items()})

    async def _create(self, request: web.Request) -> web.Response:
        fields = _proxy_fields(await _body(request, dict))
        for name in ("name", "upstream"):
            if not fields.get(name):
                raise Refusal(f"missing required field: {name}", 400)
        async with self._changing:
            if fields["name"] in self._proxies:
                raise Refusal("proxy already exists", 409)
            proxy = Proxy(fields["name"], fields.get("listen", ""), fields["upstream"])
            if fields.get("enabled", True):
                await _start(proxy)
            self._proxies[proxy.name] = proxy
        return _answer(proxy.to_json(), 201)

    async def _populate(self, request: web.Request) -> web.Response:
        """Answer with the proxies made so far, even if one is refused."""
        done: list[Proxy] = []
        refused: Refusal | None = None
        try:
            wanted = [_proxy_fields(one) for one in await _body(request, list)]
            for number, fields in enumerate(wanted, 1):
                for name in ("name", "upstream"):
                    if not fields.get(name):
                        message = f"missing required field: {name} at proxy {number}"
                        raise Refusal(message, 400)
            async with self._changing:
                for fields in wanted:
                    done.append(await self._replace(fields))
        except Refusal as error:
            refused = error
        answer = {"proxies": [proxy.to_json() for proxy in done] or None}
        if refused is not None:
            return _answer({**refused.fields, **answer}, refused.status)
        return _answer(answer, 201)

    async def _replace(self, fields: Mapping[str, Any]) -> Proxy:
        proxy = Proxy(fields["name"], fields.get("listen", ""), fields["upstream"])
        before = self._proxies.get(proxy.name)
        if before is not None:
            if not _differs(before, proxy.listen, proxy.upstream):
                return before
            before.stop()
        if fields.get("enabled", True):
            await _start(proxy)
        self._proxies[proxy.name] = proxy
        return proxy

    async def _show(self, request: web.Request) -> web.Response:
        return _answer(self._proxy(request).to_json())

    async def _update(self, request: web.Request) -> web.Response:
        proxy = self._proxy(request)
        fields = _proxy_fields(await _body(request, dict))
        async with self._changing:
            enabled = fields.get("enabled", proxy.enabled)
            listen = fields.get("listen", proxy.listen)
            upstream = fields.get("upstream", proxy.upstream)
            if _differs(proxy, listen, upstream):
                proxy.stop()
                proxy.listen, proxy.upstream = listen, upstream
            if enabled and not proxy.enabled:
                await _start(proxy)
            elif not enabled:
                proxy.stop()
        return _answer(proxy.to_json())

    async def _delete(self, request: web.Request) -> web.Response:
        async with self._changing:
            proxy = self._proxy(request)
            proxy.stop()
            del self._proxies[proxy.name]
        return web.Response(status=204)

    async def _reset(self, _: web.Request) -> web.Response:
        async with self._changing:
            for proxy in self._proxies.values():
                if not proxy.enabled:
                    await _start(proxy)
                for direction in DIRECTIONS:
                    for toxic in list(proxy.toxics[direction]):
                        proxy.remove(toxic)
        return web.Response(status=204)

    async def _toxics(self, request: web.Request) -> web.Response:
        return _answer(self._proxy(request).to_json()["toxics"])

    async def _add_toxic(self, request: web.Request) -> web.Response:
        proxy = self._proxy(request)
        fields = await _body(request, dict)
        toxic = _toxic(fields, proxy)
        proxy.add(toxic)
        return _answer(toxic.to_json())

    async def _show_toxic(self, request: web.Request) -> web.Response:
        return _answer(self._toxic(request)[1].to_json())

    async def _update_toxic(self, request: web.Request) -> web.Response:
        proxy = self._proxy(request)
        fields = await _body(request, dict)
        proxy, toxic = self._toxic(request)
        attributes = _attributes(fields, toxic.kind)
        toxic.toxicity = _typed(fields, "toxicity", (int, float), toxic.toxicity)
        toxic.attributes.update(attributes)
        proxy.change(toxic)
        return _answer(toxic.to_json())

    async def _delete_toxic(self, request: web.Request) -> web.Response:
        proxy, toxic = self._toxic(request)
        proxy.remove(toxic)
        return web.Response(status=204)

    def _proxy(self, request: web.Request) -> Proxy:
        proxy = self._proxies.get(request.match_info["proxy"])
        if proxy is None:
            raise Refusal("proxy not found", 404)
        return proxy

    def _toxic(self, request: web.Request) -> tuple[Proxy, Toxic]:
        proxy = self._proxy(request)
        toxic = proxy.find(request.match_info["toxic"])
        if toxic is None:
            raise Refusal("toxic not found", 404)
        return proxy, toxic


def _answer(fields: Any, status: int = 200) -> web.Response:
    return web.json_response(fields, status=status)


@web.middleware
async def _plainly(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer errors as the real server words them. Pages in a browser must not reach the API."""
    if request.headers.get("User-Agent", "").startswith("Mozilla/"):
        return web.Response(status=403, text="User agent not allowed\n")
    try:
        return await handler(request)
    except Refusal as error:
        return web.Response(status=error.status, text=json.dumps(error.fields) + "\n")
    except web.HTTPNotFound:
        return web.Response(status=404, text="404 page not found\n")
    except web.HTTPMethodNotAllowed:
        return web.Response(status=405)


async def _body(request: web.Request, wanted: type) -> Any:
    text = await request.text()
    if not text.strip():
        raise Refusal("bad request body: EOF", 400)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Refusal(f"bad request body: {error}", 400) from None
    if not isinstance(found, wanted):
        raise Refusal(f"bad request body: not a {wanted.__name__}: {text:.100}", 400)
    return found


def _typed(fields: Mapping[str, Any], name: str, wanted: Any, otherwise: Any) -> Any:
    """Return a field of this type; null counts as absent."""
    found = fields.get(name)
    if found is None:
        return otherwise
    if not isinstance(found, wanted) or (isinstance(found, bool) and wanted is not bool):
        raise Refusal(f"bad request body: {name} cannot be {json.dumps(found):.100}", 400)
    return found


def _proxy_fields(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Refusal(f"bad request body: not a dict: {json.dumps(found):.100}", 400)
    kinds = {"name": str, "listen": str, "upstream": str, "enabled": bool}
    return {
        name: value
        for name, kind in kinds.items()
        if (value := _typed(found, name, kind, None)) is not None
    }


def _toxic(fields: Mapping[str, Any], proxy: Proxy) -> Toxic:
    """Read a toxic.

    The checks have the real server's order, since the first failure is the answer.
    """
    kind = _typed(fields, "type", str, "")
    stream = _typed(fields, "stream", str, "downstream")
    name = _typed(fields, "name", str, "") or f"{kind}_{stream}"
    toxicity = _typed(fields, "toxicity", (int, float), 1)
    _typed(fields, "attributes", dict, None)
    if stream.lower() not in DIRECTIONS:
        raise Refusal("stream was invalid, can be either upstream or downstream", 400)
    if kind not in ATTRIBUTES:
        raise Refusal("invalid toxic type", 400)
    if proxy.find(name) is not None:
        raise Refusal("toxic already exists", 409)
    attributes = dict.fromkeys(ATTRIBUTES[kind], 0) | _attributes(fields, kind)
    return Toxic(name, kind, stream, toxicity, attributes)


def _attributes(fields: Mapping[str, Any], kind: str) -> dict[str, int]:
    given = _typed(fields, "attributes", dict, {})
    return {
        name: value
        for name in ATTRIBUTES[kind]
        if (value := _typed(given, name, int, None)) is not None
    }


def _differs(proxy: Proxy, listen: str, upstream: str) -> bool:
    try:
        host, port = split(listen)
        here = split(proxy.listen) if proxy.listen else ("", 0)
    except ValueError as error:
        raise Refusal(str(error), 500) from None
    return ("127.0.0.1" if host == "localhost" else host, port) != here or (
        proxy.upstream != upstream
    )


async def _start(proxy: Proxy) -> None:
    try:
        await proxy.start()
    except (OSError, ValueError) as error:
        raise Refusal(reason(proxy.listen, error), 500) from None
