"""A client of the HTTP API of Toxiproxy 2.x, and of the embedded proxy, which has the same API.

Every call has a timeout, since the real server is known to hang when a toxic is removed under
traffic (Shopify/toxiproxy, issue 558). Users therefore heal by `delete` and `create`, which remove
no toxic from a running connection, and restart a server that hangs (`proxyserver.py`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import aiohttp

from ..client.protocol.errors import Unavailable

Stream = Literal["upstream", "downstream"]
"""upstream: from the dialling side; downstream: the answers to it."""
TIMEOUT_S: Final = 5.0


class ToxiproxyError(Exception):
    """The server refused a call. `status` is the HTTP status: 400, 404, 409 or 500."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Toxiproxy:
    """One server, by the address of its API. Needs a running event loop; `close` it.

    Every method raises ToxiproxyError where the server refuses, and Unavailable where it cannot be
    reached or does not answer within `timeout_s` seconds. Methods return the server's JSON.
    """

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """`address` has the form host:port."""
        self.address = address
        self.timeout_s = timeout_s
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s))

    async def version(self) -> str:
        """Return the version that the server reports; `git` after `go install`."""
        found: str = (await self._call("GET", "/version"))["version"]
        return found

    async def proxies(self) -> dict[str, dict[str, Any]]:
        """Return all proxies by name."""
        found: dict[str, dict[str, Any]] = await self._call("GET", "/proxies")
        return found

    async def proxy(self, name: str) -> dict[str, Any]:
        """Return one proxy with its toxics."""
        return await self._one("GET", _path(name))

    async def create(
        self, name: str, upstream: str, *, listen: str = "127.0.0.1:0", enabled: bool = True
    ) -> dict[str, Any]:
        """Create a proxy from `listen` to `upstream`.

        The answer has the port that replaced port 0.
        """
        fields = {"name": name, "listen": listen, "upstream": upstream, "enabled": enabled}
        return await self._one("POST", "/proxies", fields)

    async def populate(self, proxies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Create these proxies, or replace those that differ; the fields are those of `create`."""
        answer = await self._one("POST", "/populate", list(proxies))
        return answer["proxies"] or []

    async def update(self, name: str, **fields: Any) -> dict[str, Any]:
        """Change `listen`, `upstream` or `enabled`.

        A disabled proxy refuses connections and closes the existing ones.
        """
        return await self._one("PATCH", _path(name), fields)

    async def delete(self, name: str) -> None:
        """Close the proxy and all its connections."""
        await self._call("DELETE", _path(name))

    async def toxics(self, name: str) -> list[dict[str, Any]]:
        """Return the toxics of one proxy, in the order in which bytes pass them, upstream first."""
        found: list[dict[str, Any]] = await self._call("GET", _path(name, "toxics"))
        return found

    async def add_toxic(
        self,
        proxy: str,
        kind: str,
        *,
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        name: str | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Put a toxic at the end of a stream, of live connections too.

        `toxicity` is the share of affected connections, from 0 to 1. The default name is
        KIND_STREAM.
        """
        fields = {
            "type": kind, "stream": stream, "toxicity": toxicity, "attributes": attributes or {},
            **({} if name is None else {"name": name}),
        }  # fmt: skip
        return await self._one("POST", _path(proxy, "toxics"), fields)

    async def update_toxic(
        self,
        proxy: str,
        name: str,
        *,
        toxicity: float | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Change a toxic; arguments that are not given keep their values."""
        fields: dict[str, Any] = {"attributes": attributes or {}}
        if toxicity is not None:
            fields["toxicity"] = toxicity
        return await self._one("PATCH", _path(proxy, "toxics", name), fields)

    async def delete_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic. See this module's first lines before using it under traffic."""
        await self._call("DELETE", _path(proxy, "toxics", name))

    async def reset(self) -> None:
        """Enable all proxies and remove all toxics."""
        await self._call("POST", "/reset")

    async def close(self) -> None:
        """Close the connections to the API."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _one(self, method: str, path: str, fields: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = await self._call(method, path, fields)
        return found

    async def _call(self, method: str, path: str, fields: Any = None) -> Any:
        url = f"http://{self.address}{path}"
        try:
            async with self._session.request(method, url, json=fields) as answer:
                text = await answer.text()
        except TimeoutError:
            raise Unavailable(
                f"the server did not answer {method} {url} within {self.timeout_s} s"
            ) from None
        except aiohttp.ClientError as error:
            raise Unavailable(f"{method} {url} failed: {error}") from None
        if answer.status >= 400:
            raise ToxiproxyError(f"{method} {path}: {_reason(text)}", answer.status)
        return json.loads(text) if text else None


def _path(*names: str) -> str:
    return "/proxies/" + "/".join(quote(name, safe="") for name in names)


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or "the server gave no reason"
