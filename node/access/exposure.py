"""The safe default: a node that other machines can reach has TLS and knows its clients.

A listener on loopback may be open to everybody. Any other listener needs TLS. With TLS, the port
for peers requires the certificate of a node. The ports for clients and HTTP need one of two ways to
know a client: its certificate (`--tls-client-auth required`), or authorisation (`--auth`, or a
cluster that has tokens). Without these the node does not start, unless `--insecure` is given. Such
a node says in its log, its status and its metrics that it runs with `--insecure`.

The rule is checked twice. The settings are checked before the node touches its data directory. A
node that joins or has joined learns from the metadata whether the cluster has tokens. So
authorisation is checked once the metadata is loaded, before the node listens.
"""

import asyncio
import logging
import socket
from typing import Final

from ...client.loopback import is_loopback
from ...client.protocol.address import split_address
from ...client.protocol.errors import InvalidArgument, Unavailable
from ..config import Config
from ..directory.data_directory import DataDirectory
from ..metrics import Metrics

_PEERS: Final = "peer_listen"
_LISTENERS: Final = ("listen", _PEERS, "http", "kafka")
"""Settings that name an address on which a node listens."""
_WARN_EVERY_S: Final = 3_600.0

log = logging.getLogger("lognode.exposure")


class Exposure:
    """The listeners of a node that other machines can reach, and whether `--insecure` allows that.

    `open_listeners` describes, by setting, the listeners that are not on loopback, for errors.
    """

    def __init__(self, config: Config, open_listeners: dict[str, str]) -> None:
        self.insecure = config.insecure == "on"
        """Whether the node was started with `--insecure`."""
        self.open_listeners = open_listeners
        self._has_tls = None not in (config.tls_cert, config.tls_key, config.tls_ca)
        self._client_auth = config.tls_client_auth

    @classmethod
    def of(cls, config: Config, metrics: Metrics) -> "Exposure":
        """Resolve the addresses of the listeners, and check the settings.

        Raises InvalidArgument for settings that the safe default forbids, whatever the metadata
        says; Unavailable for a host name that does not resolve. Blocks while names are resolved.
        """
        told = {name: _open(config, name) for name in _LISTENERS}
        found = cls(config, {name: text for name, text in told.items() if text})
        metrics.insecure.set(found.insecure)
        may_learn = bool(config.join) or DataDirectory(config.data).meta.exists()
        # With only some of the files, `NodeTls` raises the error.
        if found._has_tls or not _has_any_tls(config):
            found.check(is_authorised=config.auth == "on" or (found._has_tls and may_learn))
        return found

    def check(self, *, is_authorised: bool) -> None:
        """Raise InvalidArgument for a node that strangers could use.

        `is_authorised`: clients of this node need tokens or registered certificates.
        """
        wrong = self._wrong(is_authorised=is_authorised)
        if wrong and not self.insecure:
            given = " and ".join(self.open_listeners.values())
            raise InvalidArgument(
                f"{given}: other machines can reach this node, {wrong}. A node that does not "
                "use TLS and identify its clients listens on loopback only. Do one of three "
                "things. Listen on 127.0.0.1 or [::1]. Give --tls-cert, --tls-key and --tls-ca, "
                "and identify clients by certificates (--tls-client-auth required) or by tokens "
                "(--auth when the cluster is founded, later `lognode token create`). Or "
                "accept every client with --insecure",
                what="insecure",
            )  # fmt: skip

    def _wrong(self, *, is_authorised: bool) -> str:
        """Return what the safe default forbids of this node, "" for nothing."""
        if not self.open_listeners:
            return ""
        if not self._has_tls:
            return "and the node has no TLS"
        for_clients = self.open_listeners.keys() - {_PEERS}
        if not for_clients or self._client_auth == "required" or is_authorised:
            return ""
        return (
            "and clients do not identify themselves: --tls-client-auth is "
            f"{self._client_auth}, and authorisation is off"
        )

    async def run(self) -> None:
        """Warn of `--insecure` at the start and once an hour, until cancelled."""
        while True:
            if self.insecure:
                log.warning(
                    "this node runs with --insecure: the node may run without TLS and "
                    "accept unknown clients",
                    extra={
                        "fields": {"open": list(self.open_listeners.values()), "tls": self._has_tls}
                    },
                )
            await asyncio.sleep(_WARN_EVERY_S)


def _has_any_tls(config: Config) -> bool:
    return any((config.tls_cert, config.tls_key, config.tls_ca))


def _open(config: Config, name: str) -> str:
    """Return a description of the setting's listener for an error, "" for one on loopback."""
    address = str(getattr(config, name))
    if not address:
        return ""  # the port for peers: it uses the host of the port for clients
    host, port = split_address(address, name)
    flag = "--" + name.replace("_", "-")
    try:
        # The listener resolves the name in the same way, and listens on all of these addresses.
        told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {address}: {error.strerror or error}; give another address with "
            f"{flag}"
        ) from None
    strange = sorted({str(found[4][0]) for found in told if not is_loopback(str(found[4][0]))})
    if not strange:
        return ""
    means = "" if strange == [host] else f", which means {', '.join(strange)},"
    return f"{name} is {address}{means} ({config.sources.get(name, 'default')})"
