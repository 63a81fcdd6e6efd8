"""Decide who may ask what over HTTP, by the names of the node and the rights of the asker.

A web page in somebody's browser can call a node of the local network by a name of its own that
suddenly resolves to the node's address (DNS rebinding). So a name in `Host` must be one of the
node's names. All IP addresses are allowed: no page can choose what they mean.

Health and readiness are for everybody. Metrics and status need the verb `describe` when the
cluster has tokens. The token comes as `Authorization: Bearer TOKEN`, or with TLS a certificate.
"""

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from ...client.loopback import is_loopback
from ...client.protocol import Permission
from ...client.protocol.address import split_address
from ...client.protocol.certificate import Certificate, parse
from ...client.protocol.errors import InvalidArgument, LognodeError, Unauthorized
from ...client.protocol.principal import Principal
from ..config import Config
from .access import Accesses, OpenAccess, Shown
from .rights import Rights

_BEARER: Final = "bearer "
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Access = Rights | OpenAccess


class Forbidden(web.HTTPForbidden):
    """The principal is known, and may not make the request."""

    def __init__(self, principal: Principal, text: str) -> None:
        super().__init__(text=text + "\n")
        self.principal = principal


class HttpGuard:
    """Guards the HTTP port. `hosts` are the names of this node besides `localhost` and IP
    addresses."""

    def __init__(self, accesses: Accesses, hosts: Iterable[str]) -> None:
        self._accesses = accesses
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*hosts, "localhost"))

    def check_host(self, request: web.Request) -> None:
        """Raise HTTPMisdirectedRequest for a request whose host is not a name of this node."""
        given = request.headers.get("Host")
        if given is None or self._is_ours(given):
            return
        raise web.HTTPMisdirectedRequest(
            text=f"this node does not have the name {given[:200]!r}; use its address, or start "
            "the node with --http-host NAME\n"
        )

    async def access(self, request: web.Request) -> Access:
        """Return what the asker may do. Raises HTTPUnauthorized."""
        try:
            return await self._accesses.of_request(_shown(request))
        except Unauthorized as error:
            raise web.HTTPUnauthorized(
                text=error.message + "\n", headers={"WWW-Authenticate": "Bearer"}
            ) from None
        except LognodeError as error:
            raise web.HTTPServiceUnavailable(text=error.message + "\n") from None

    async def check_everything(self, request: web.Request) -> None:
        """Raise HTTPUnauthorized or Forbidden unless the asker may see all logs."""
        access = await self.access(request)
        if isinstance(access, Rights) and not access.may_everywhere(Permission.DESCRIBE):
            raise Forbidden(
                access.principal,
                "the token lacks a right; this page needs the verb describe on all logs",
            )

    def _is_ours(self, given: str) -> bool:
        host = given
        if not (given.startswith("[") and given.endswith("]")) and given.count(":") != 0:
            host = given.rpartition(":")[0]
        host = host.strip("[]").lower().rstrip(".")
        if host in self._hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def hosts_of(config: Config) -> set[str]:
    """Return the names of a node with that configuration."""
    found = set(config.http_host)
    for address in (config.http, config.advertised, config.advertised_http, config.listen):
        found.add(split_address(address).host)
    return found


def token_of(request: web.Request) -> str | None:
    """Return the token that the asker shows, if any. Raises Unauthorized for another credential."""
    given = request.headers.get("Authorization")
    if given is None:
        return None
    if not given.lower().startswith(_BEARER):
        raise Unauthorized(
            "the request has no token; give the token as `Authorization: Bearer TOKEN`"
        )
    return given[len(_BEARER) :].strip()


def _shown(request: web.Request) -> Shown:
    """Return what the asker shows of itself."""
    token = token_of(request)
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    host, port = peer[:2] if peer else ("?", 0)
    secured = transport.get_extra_info("ssl_object") if transport is not None else None
    private = secured is not None or is_loopback(host)
    return Shown(token, certificate_of(secured), f"{host}:{port}", private=private)


def certificate_of(secured: object) -> Certificate | None:
    """Return the certificate of the other side of a TLS connection. Raises Unauthorized."""
    der = secured.getpeercert(binary_form=True) if isinstance(secured, ssl.SSLObject) else None
    try:
        return None if der is None else parse(der)
    except (ValueError, InvalidArgument):
        raise Unauthorized("the node cannot read this certificate") from None
