"""A node's TLS: its files, and the certificates that it accepts as nodes.

TLS between nodes is mutual, and a node is identified by its key. A certificate of the cluster's CA
names the cluster and the node (`client/protocol/certificate.py`). The metadata keeps, for each node
id, the key with which the node registered. From then on, only a holder of that key is accepted as
the node, in hellos and when a dial is answered: see docs/design.md#who-is-a-node.

The files are read again on SIGHUP, once a minute when they have changed, and when the metadata
binds this node to another key. New connections use the new certificate. Files change nothing if
they cannot be used, do not fit together, or have a key that is not this node's.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...client.protocol import certificate as names
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import InvalidArgument, LognodeError, Unauthorized, Unavailable
from ...client.protocol.tls import Channel, DialTls, dial_context, files_stamp, listen_context
from ...client.protocol.wire import Hello
from ...partitions.model import NodeRecord
from ..config import Config
from ..directory.data_directory import Identity
from ..metrics import Metrics
from .authority import only, shake_hands, signer_of

_LOOK_S: Final = 60.0
_WARN_S: Final = 30 * 86_400
"""The node warns of an expiry within this time."""
_WARN_EVERY_S: Final = 86_400.0
_TELL_EVERY_S: Final = 10.0
"""The least time between two log lines about refused strangers; metrics count each stranger."""
_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

log = logging.getLogger("lognode.tls")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The contexts and certificates made from the files at one time."""

    own: Certificate
    authorities: tuple[Certificate, ...]
    signer: str
    """The key of the authority that the node's own certificate leads to."""
    listen: ssl.SSLContext
    peers: ssl.SSLContext
    """The context of the port for peers: it requires a certificate."""
    http: ssl.SSLContext
    dial: ssl.SSLContext


class NodeTls:
    """Implements `client.accepting.handler.ListenTls`; `dialling` is for the dialling side.

    Raises InvalidArgument for files that cannot be used.
    """

    def __init__(self, cert: Path, key: Path, ca: Path, auth: str, metrics: Metrics) -> None:
        self._files = (ca, cert, key)
        self._auth = auth
        self._metrics = metrics
        self._stamp = files_stamp(*self._files)
        self._loaded = _load(ca, cert, key, auth)
        self._cluster_id = ""
        self._node_id = 0
        self._keys: dict[int, str] = {}
        self._wanted_key = ""
        """The key of new files that shall be used though the known metadata has another key."""
        self._again = asyncio.Event()
        self._rechecks: list[Callable[[], None]] = []
        self._told_s = self._warned_s = float("-inf")
        self._untold = 0
        self._front = _front(self._files, auth, lambda: self._loaded.http)
        for name, age in (("node", self.expires_s), ("ca", self.ca_expires_s)):
            metrics.certificate_expiry.labels(name).set_function(age)

    @classmethod
    def of(cls, config: Config, metrics: Metrics) -> "NodeTls | None":
        """Return the TLS of a configuration, or None without TLS. Raises InvalidArgument."""
        cert, key, ca = config.tls_cert, config.tls_key, config.tls_ca
        if cert is None or key is None or ca is None:
            files = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
            missing = [flag for flag, path in files.items() if path is None]
            wanted = config.sources.get("tls_client_auth", "default") != "default"
            if len(missing) < len(files) or wanted:
                raise InvalidArgument(
                    f"{' and '.join(missing)} is not given; TLS needs a certificate, its key "
                    "and a CA file. Give all three, or no option of TLS", what="tls",
                )  # fmt: skip
            return None
        return cls(cert, key, ca, config.tls_client_auth, metrics)

    @property
    def key(self) -> str:
        """The key by which other nodes know this node."""
        return self._loaded.own.key

    @property
    def authority(self) -> str:
        """The key of the authority that this node's certificate leads to."""
        return self._loaded.signer

    @property
    def http_context(self) -> ssl.SSLContext:
        """The context of the HTTP listener, which uses the newest files."""
        return self._front

    def expires_s(self) -> float:
        """Return the seconds until the node's certificate expires."""
        return self._loaded.own.not_after - time.time()

    def ca_expires_s(self) -> float:
        """Return the seconds until the first of the trusted CAs expires."""
        return min(each.not_after for each in self._loaded.authorities) - time.time()

    # The identity of this node.

    def check_may_join(self) -> None:
        """Raise InvalidArgument for a certificate with an id: a joining node has no id yet."""
        for cluster, node in self._loaded.own.nodes():
            if node.isdigit() or names.is_cluster_id(cluster):
                raise InvalidArgument(
                    f"certificate {self._files[1]} is for node {node} of cluster {cluster}, "
                    "but this data directory belongs to no cluster yet. Give a certificate "
                    "with a name in place of the id (`lognode ca node NAME`)", what="tls_cert",
                )  # fmt: skip

    def bind(self, identity: Identity) -> None:
        """Take the node's identity. Raises InvalidArgument when the certificate is for another."""
        for cluster, node in self._loaded.own.nodes():
            other_cluster = names.is_cluster_id(cluster) and cluster != identity.cluster_id
            if other_cluster or (node.isdigit() and int(node) != identity.node_id):
                raise InvalidArgument(
                    f"certificate {self._files[1]} is for node {node} of cluster {cluster}, "
                    f"but the data directory is of node {identity.node_id} of cluster "
                    f"{identity.cluster_id}; give each node its own "
                    "certificate", what="tls_cert",
                )  # fmt: skip
        self._cluster_id, self._node_id = identity.cluster_id, identity.node_id

    def learn(self, nodes: Mapping[int, NodeRecord]) -> None:
        """Take the registered keys of all nodes. Connections that showed another key than the
        node's new key are ended."""
        before = self._keys
        self._keys = {node.node_id: node.key for node in nodes.values()}
        if any(key and before.get(node) != key for node, key in self._keys.items()):
            for recheck in self._rechecks:
                recheck()
            self._want(self._keys.get(self._node_id))

    def recheck_with(self, *rechecks: Callable[[], None]) -> None:
        """Also call these when nodes are bound to other keys, to end connections with old keys."""
        self._rechecks += rechecks

    def refused_by_peer(self, error: LognodeError) -> None:
        """Handle a node's refusal of this node.

        The error may have another registered key for this node than this node knows. If new files
        have that key, the operator wants them to be used. This node cannot learn the key from the
        metadata, because no node serves it."""
        self._want(error.fields.get("registered"))

    def _want(self, key: object) -> None:
        if type(key) is str and key not in ("", self.key, self._wanted_key):
            self._wanted_key = key
            self.look_again()

    # Listening.

    def channel(self) -> Channel:
        """Return the channel of an accepted connection, with the newest certificate."""
        return Channel(self._loaded.listen, server_side=True, own=self._loaded.own)

    def check(self, hello: Hello, certificate: Certificate | None) -> None:
        """Raise Unauthorized for a hello that the certificate does not allow."""
        if hello.role == "node":
            self.check_node(certificate, hello.node)
        elif certificate is not None:
            self.check_client(certificate)

    def check_client(self, certificate: Certificate) -> None:
        """Raise Unauthorized for the certificate of a client of another cluster."""
        named = certificate.clusters()
        if named and not named & self._clusters():
            raise Unauthorized(
                f"this certificate is for cluster {_listed(named)}, but this is cluster "
                f"{_listed(self._clusters())}; use a certificate of this cluster"
            )

    def holder(self, certificate: Certificate) -> str:
        """Return the name of a client certificate's holder: `client NAME` for a client of this
        cluster, otherwise a name that no client can have."""
        for cluster, client in certificate.clients():
            if cluster in self._clusters():
                return f"client {client}"
        return certificate.holder

    def refused(self, address: str, error: LognodeError) -> None:
        """Count and log a connection that ended before its handshake was done."""
        self._metrics.handshakes_refused.labels(error.code).inc()
        if isinstance(error, Unavailable):
            return  # the other side closed it
        now = time.monotonic()
        if now - self._told_s < _TELL_EVERY_S:
            self._untold += 1
            return
        fields = {"address": address, "error": error.message, "others_since": self._untold}
        self._told_s, self._untold = now, 0
        log.warning("connection refused", extra={"fields": fields})

    @property
    def between_nodes(self) -> "_BetweenNodes":
        """The TLS of the port for peers."""
        return _BetweenNodes(self)

    def peer_channel(self) -> Channel:
        """Return the channel of a connection accepted at the port for peers."""
        return Channel(self._loaded.peers, server_side=True, own=self._loaded.own)

    # Dialling.

    def dialling(self, peer: int | None) -> DialTls:
        """Return the TLS for dialling the node with that id; None: any node of the cluster."""
        return DialTls(self._loaded.dial, lambda certificate: self.check_node(certificate, peer))

    def dialling_under(self, authority: str) -> DialTls:
        """Return the TLS for dialling any node whose certificate leads to the authority's key.

        Raises InvalidArgument if the CA file of this node does not have the authority."""
        ca, cert, key = self._files
        context = dial_context(only(ca, authority), cert, key, check_host=False)
        return DialTls(context, lambda certificate: self.check_node(certificate, None))

    def check_node(self, certificate: Certificate | None, node: int | None) -> None:
        """Raise Unauthorized unless the certificate is of a node of the cluster, and of `node` if
        that is given."""
        if certificate is None:
            raise Unauthorized(
                "the other side claims to be a node and showed no certificate: start the "
                "node with --tls-cert, --tls-key and --tls-ca"
            )
        ours = self._clusters()
        named = {name for cluster, name in certificate.nodes() if cluster in ours}
        if not named:
            raise Unauthorized(
                f"the certificate is not for a node of cluster {_listed(ours)}, but for "
                f"{_listed(certificate.uris) or 'nobody'}; give the node a certificate of "
                "its cluster (`lognode ca node`)"
            )
        if node is None:
            return
        if any(name.isdigit() and int(name) != node for name in named):
            raise Unauthorized(
                f"the certificate is of node {_listed(named)}, not of node {node}; give each "
                "node its own certificate"
            )
        registered = self._keys.get(node)
        if registered and registered != certificate.key:
            raise Unauthorized(
                f"node {node} is registered with another key than this certificate has. Use "
                "the key with which the node registered, or bind the node to the new key: "
                f"`lognode node rekey {node} --key {certificate.key}`", registered=registered,
            )  # fmt: skip

    def _clusters(self) -> set[str]:
        """Return the names of this node's cluster in certificates."""
        named = {cluster for cluster, _ in self._loaded.own.nodes()}
        return named | {self._cluster_id} if self._cluster_id else named

    # Reading the files again.

    def look_again(self) -> None:
        """Make `run` read the files now."""
        self._again.set()

    async def run(self) -> None:
        """Look for changed files and warn of expiry, until cancelled."""
        while True:
            self._warn()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._again.wait()
            if self._again.is_set() or files_stamp(*self._files) != self._stamp:
                self._again.clear()
                await self._read_again()

    async def _read_again(self) -> None:
        """Use the files as they are now, or keep the old contexts if they cannot be used."""
        self._stamp = files_stamp(*self._files)
        try:
            loaded = await asyncio.to_thread(_load, *self._files, self._auth)
            self._check_still_me(loaded.own)
        except LognodeError as error:
            log.error(
                "the node does not use the new TLS files; the old certificate stays in use",
                extra={"fields": {"error": error.message}},
            )
            return
        changed, self._loaded = loaded.own != self._loaded.own, loaded
        self._warned_s = float("-inf")
        fields = {"changed": changed, "expires_in_days": round(self.expires_s() / 86_400, 1)}
        log.info("TLS files read", extra={"fields": fields})

    def _check_still_me(self, own: Certificate) -> None:
        if own.key not in (self.key, self._keys.get(self._node_id), self._wanted_key):
            raise InvalidArgument(
                f"certificate {self._files[1]} has another key than the registered key of "
                f"this node; run `lognode node rekey {self._node_id} --key "
                f"{own.key}`", what="tls_cert",
            )  # fmt: skip
        before = {cluster for cluster, _ in self._loaded.own.nodes()}
        if not before & {cluster for cluster, _ in own.nodes()}:
            raise InvalidArgument(
                f"certificate {self._files[1]} is for cluster {_listed(own.clusters())}, but "
                f"this is cluster {_listed(before)}; give a certificate of this "
                "cluster", what="tls_cert",
            )  # fmt: skip

    def _warn(self) -> None:
        now = time.monotonic()
        if now - self._warned_s < _WARN_EVERY_S:
            return
        self._warned_s = now
        for what, left_s in (("node", self.expires_s()), ("CA", self.ca_expires_s())):
            if left_s < _WARN_S:
                log.warning(
                    "TLS certificate of the %s %s", what,
                    "has expired: connections fail; renew the certificate" if left_s <= 0
                    else "expires soon: renew the certificate (docs/tls.md)",
                    extra={"fields": {"expires_in_days": round(left_s / 86_400, 1)}},
                )  # fmt: skip


class _BetweenNodes:
    """Implements `client.accepting.handler.ListenTls` for the peers' port: always mutual TLS."""

    def __init__(self, tls: NodeTls) -> None:
        self.channel = tls.peer_channel
        self.check = tls.check
        self.refused = tls.refused


def _load(ca: Path, cert: Path, key: Path, auth: str) -> _Loaded:
    """Make contexts from the files, and do a handshake between them.

    This node then refuses files that other nodes would refuse. Raises InvalidArgument."""
    own = _read(cert, "certificate")[0]
    authorities = _read(ca, "CA file")
    if not own.nodes():
        raise InvalidArgument(
            f"certificate {cert} is not for a node: it has no URI "
            "lognode://cluster/CLUSTER/node/NODE among its alternative names. Make a node's "
            "certificate with `lognode ca node`", what="tls_cert",
        )  # fmt: skip
    if own.not_after <= time.time():
        raise InvalidArgument(
            f"certificate {cert} expired on "
            f"{time.strftime('%Y-%m-%d', time.gmtime(own.not_after))}; renew the certificate "
            "(`lognode ca node --renew`)", what="tls_cert",
        )  # fmt: skip
    # Joining nodes use the port for clients, which must ask them for their certificate.
    clients = max(_AUTH[auth], ssl.CERT_OPTIONAL)
    listen = listen_context(ca, cert, key, clients)
    dial = dial_context(ca, cert, key, check_host=False)
    try:
        shake_hands(Channel(listen, server_side=True), Channel(dial, server_side=False))
    except LognodeError as error:
        raise InvalidArgument(
            f"nodes that trust CA file {ca} would refuse certificate {cert}: "
            f"{error.message}", what="tls_cert",
        ) from None  # fmt: skip
    peers = listen_context(ca, cert, key, ssl.CERT_REQUIRED)
    http = listen_context(ca, cert, key, _AUTH[auth])
    signer = signer_of(ca, cert, key)
    return _Loaded(own, authorities, signer, listen, peers, http, dial)


def _read(path: Path, what: str) -> tuple[Certificate, ...]:
    try:
        found = tuple(names.from_pem(path.read_text("utf-8", "replace")))
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {what} {path}: {error.strerror}; check the path", what=what
        ) from None
    except ValueError as error:
        raise InvalidArgument(f"{what} {path} is not valid: {error}", what=what) from None
    if not found:
        raise InvalidArgument(f"{what} {path} contains no certificate; give a PEM file", what=what)
    return found


def _front(
    files: tuple[Path, Path, Path], auth: str, newest: Callable[[], ssl.SSLContext]
) -> ssl.SSLContext:
    """Return a context that passes each handshake to the newest context."""

    def switch(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshake.context = newest()

    context = listen_context(*files, _AUTH[auth])
    context.sni_callback = switch
    return context


def _listed(values: "set[str] | list[str] | tuple[str, ...]") -> str:
    return ", ".join(sorted(values)[:5])
