"""A node's configuration: flag over environment over TOML file over default."""

import argparse
import ipaddress
import math
import os
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..client.protocol import limits
from ..client.protocol.address import Address, split_address
from ..client.protocol.errors import InvalidArgument
from ..client.protocol.kinds import INTEGER_MAX
from ..client.protocol.levels import LEVEL_MAX, LEVEL_MIN, span
from ..client.protocol.peers import ZONE
from .runtime.logs import FORMATS as LOG_FORMATS

_PORT_MAX = 65_535
_LEASE_MIN_S = 5.0
"""Longer than an election of the controller takes, so that a change of leaders ends no rights."""
_ADDRESSES = frozenset(
    {"listen", "advertise", "peer_listen", "peer_advertise", "http", "kafka", "kafka_advertise"}
)
_PATHS = frozenset({
    "data", "secret_file", "dial_map", "invitation", "kafka_token_file", "tls_cert", "tls_key",
    "tls_ca",
})  # fmt: skip
_AGES = frozenset(
    {"join_timeout", "repair_after", "split_rest", "merge_after", "idle_timeout", "tier_grace"}
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of `lognode` without a verb. Every field has a flag of its name."""

    data: Path = Path("lognode-data")
    listen: str = "127.0.0.1:4600"
    advertise: str = ""
    """Where clients reach this node; the listen address when empty."""
    peer_listen: str = ""
    """Where this node listens for other nodes; the port after `listen` when empty."""
    peer_advertise: str = ""
    """Where other nodes reach `peer_listen`; when empty, its port at the host of `advertise`."""
    http: str = "127.0.0.1:4680"
    http_host: tuple[str, ...] = ()
    """Further names by which clients may reach this node over HTTP."""
    http_streams: int = limits.http_streams
    """Event streams over HTTP that this node serves at a time."""
    kafka: str = ""
    """Where this node listens for Kafka clients; empty: nowhere."""
    kafka_advertise: str = ""
    """Where Kafka clients reach `kafka`; when empty, that address at the host of `advertise`."""
    kafka_auto_create: int = 0
    """Partitions of a topic that a Kafka client names and that does not exist. 0: none is made."""
    kafka_token_file: Path | None = None
    """In a cluster with tokens, the token with which this node keeps groups of Kafka clients."""
    join: tuple[str, ...] = ()
    join_timeout: float = 60.0
    invitation: Path | None = None
    """The file of the invitation with which an empty node joins."""
    bootstrap_expect: int = 0
    """Number of empty nodes, named by `join`, that agree on a founder. 0: a node without `join`
    founds the cluster."""
    found_level: int = LEVEL_MAX
    """The feature level of a cluster that this node founds."""
    zone: str = ""
    secret_file: Path | None = None
    tls_cert: Path | None = None
    """With `tls_key` and `tls_ca`: TLS on all ports, and mutual TLS between nodes."""
    tls_key: Path | None = None
    tls_ca: Path | None = None
    tls_client_auth: str = "required"
    """Whether clients need a certificate: `none`, `optional` or `required`."""
    auth: str = "off"
    """`on`: the cluster that this node founds has tokens from the beginning."""
    auth_lease: float = 0.0
    """Seconds for which this node trusts tokens without news of the controller. 0: for ever."""
    insecure: str = "off"
    """`on`: the node may listen beyond loopback without TLS or without knowing its clients."""
    dial_map: Path | None = None
    log_level: str = "INFO"
    log_format: str = "auto"
    traces: str = "off"
    """`on`: appends of traced clients have spans, which OpenTelemetry exports."""
    wal_file_bytes: int = limits.wal_file_bytes
    """Size of a WAL file. Above a few files, memtables that need the oldest file are flushed."""
    transfer_bytes_per_s: int = limits.transfer_bytes_per_s
    """Limit for transferred files; 0: no limit."""
    scrub_bytes_per_s: int = limits.scrub_bytes_per_s
    """Rate of the scrub; 0: never scrub."""
    disk_reserve_bytes: int = limits.disk_reserve_bytes
    """With less free space, appends are refused (`disk_room.py`). At least two WAL files."""
    tier: str = ""
    """The object store for segments: a directory or s3://BUCKET/PREFIX; empty: none."""
    tier_endpoint: str = ""
    """The address of an S3-compatible store; empty: see `client.objects.s3_settings`."""
    tier_region: str = ""
    tier_bytes_per_s: int = limits.tier_bytes_per_s
    """Limit for uploads to the tier; 0: no limit."""
    tier_grace: float = 3600.0
    """Seconds that the tier keeps what no manifest needs any more."""
    repair_after: float = 300.0
    """Seconds that a node may be DEAD before other nodes get its replicas. 0: no limit."""
    split_rest: float = 600.0
    """Seconds after a split before a range led here is split again for its load."""
    merge_after: float = 600.0
    """Seconds that small neighbours rest before they are merged. 0: they are never merged."""
    balance: str = "on"
    """`on`: replicas and leaders are spread evenly. `off`: they stay where they are."""
    idle_timeout: float = limits.idle_timeout_s
    """Seconds that a client's connection may be without a request. 0: no limit."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each field's value."""

    @property
    def advertised(self) -> str:
        """The address that clients are told."""
        return self.advertise or self.listen

    @property
    def advertised_http(self) -> str:
        """The HTTP address that status shows.

        A node that serves HTTP on every interface is reached at the host that it advertises.
        """
        if not _is_unspecified(self.http, "http"):
            return self.http
        return f"{self.advertised.rpartition(':')[0]}:{self.http.rpartition(':')[2]}"

    @property
    def advertised_kafka(self) -> str | None:
        """The address that Kafka clients are told; None: the node does not serve them."""
        if not self.kafka:
            return None
        if self.kafka_advertise or not _is_unspecified(self.kafka, "kafka"):
            return self.kafka_advertise or self.kafka
        return f"{self.advertised.rpartition(':')[0]}:{self.kafka.rpartition(':')[2]}"

    @property
    def peer_listened(self) -> str:
        """The address at which this node listens for other nodes. Raises InvalidArgument."""
        if self.peer_listen:
            return self.peer_listen
        host, port = split_address(self.listen, "listen")
        if port == _PORT_MAX:
            raise InvalidArgument(
                f"listen {self.listen!r} has the last port, and the address for peers needs "
                "the next port: give an address with --peer-listen", what="peer_listen",
            )  # fmt: skip
        return str(Address(host, port + 1))

    @property
    def peer_advertised(self) -> str:
        """The address at which other nodes dial this node."""
        if self.peer_advertise:
            return self.peer_advertise
        host, _ = split_address(self.advertised, "advertise")
        _, port = split_address(self.peer_listened, "peer_listen")
        return str(Address(host, port))


_FLAGS = {
    "data": ("DIR", "data directory (default ./lognode-data)"),
    "listen": ("H:P", "address that the node listens on for clients (default 127.0.0.1:4600)"),
    "advertise": (
        "H:P",
        "address that clients dial (default: the address of --listen); not 0.0.0.0 or [::]",
    ),
    "peer_listen": (
        "H:P",
        "address that the node listens on for other nodes (default: the port after --listen)",
    ),
    "peer_advertise": (
        "H:P",
        (
            "address that other nodes dial (default: the host of --advertise and the port of "
            "--peer-listen)"
        ),
    ),
    "http": ("H:P", "address for REST, health, metrics and status (default 127.0.0.1:4680)"),
    "http_host": (
        "NAME,...",
        (
            "more host names that HTTP clients may use for this node; its own name and IP "
            "addresses are always allowed"
        ),
    ),
    "http_streams": (
        "N",
        (
            "event streams over HTTP that the node serves at a time, up to "
            f"{limits.http_streams_max} (default {limits.http_streams})"
        ),
    ),
    "kafka": ("H:P", "address for Kafka clients (default: the node does not serve Kafka clients)"),
    "kafka_advertise": (
        "H:P",
        "address that Kafka clients dial (default: the address of --kafka); not 0.0.0.0 or [::]",
    ),
    "kafka_auto_create": (
        "P",
        (
            "create a topic with P partitions when a Kafka client names a topic that does not "
            "exist; 0: never (default 0)"
        ),
    ),
    "kafka_token_file": (
        "FILE",
        "file of the token with which the node keeps consumer groups of Kafka clients, in a "
        "cluster with tokens",
    ),
    "join": ("H:P,...", "nodes of the cluster to join; none: found a cluster"),
    "join_timeout": ("SECONDS", "seconds after which the node gives up joining (default 60)"),
    "invitation": (
        "FILE",
        (
            "file of the invitation from `lognode node invite`: a new node needs an invitation "
            "to join a cluster with TLS"
        ),
    ),
    "bootstrap_expect": (
        "N",
        (
            "number of nodes in --join, with this node: nodes that start empty found a cluster "
            "together"
        ),
    ),
    "found_level": (
        "N",
        (
            "feature level of a cluster that this node founds, for nodes of earlier versions that "
            "will join (default: the newest)"
        ),
    ),
    "zone": ("Z", "failure domain of this node"),
    "secret_file": ("FILE", "file of the secret that all nodes of the cluster share"),
    "tls_cert": (
        "FILE",
        "certificate of this node, for TLS on all ports; needs --tls-key and --tls-ca",
    ),
    "tls_key": ("FILE", "private key of the certificate, which only its owner may read"),
    "tls_ca": ("FILE", "CAs that sign the certificates of nodes and clients"),
    "tls_client_auth": (
        "none|optional|required",
        "whether clients need a certificate; nodes always need a certificate (default required)",
    ),
    "auth": (
        "on|off",
        (
            "found a cluster whose clients need tokens; the node writes the first token to "
            "DIR/admin.token (default off)"
        ),
    ),
    "auth_lease": (
        "SECONDS",
        (
            "seconds that the node believes tokens without news from the controller, 5 or more; "
            "then the node refuses clients with tokens; 0: no limit (default 0)"
        ),
    ),
    "insecure": (
        "on|off",
        "let other machines reach this node without TLS or with unknown clients (default off)",
    ),
    "dial_map": ("FILE", 'TOML of "advertised host:port" = "host:port to dial"'),
    "log_level": ("LEVEL", "DEBUG, INFO, WARNING or ERROR (default INFO)"),
    "log_format": (
        "auto|json|logfmt|text",
        "form of the log on stderr; auto: text on a terminal, JSON otherwise (default auto)",
    ),
    "traces": (
        "on|off",
        "export OpenTelemetry spans of the appends of traced clients, to the address in "
        "OTEL_EXPORTER_OTLP_ENDPOINT; needs lognode[otel] and an exporter (default off)",
    ),
    "wal_file_bytes": ("N", "size of a file of the write-ahead log (default 64 MiB)"),
    "transfer_bytes_per_s": (
        "N",
        (
            "bytes per second of files that the node sends to other nodes, and as many that the "
            "node fetches; 0: no limit (default 64 MiB)"
        ),
    ),
    "scrub_bytes_per_s": (
        "N",
        (
            "bytes per second of files that the node reads again to find damage; 0: none "
            "(default 4 MiB)"
        ),
    ),
    "disk_reserve_bytes": (
        "N",
        (
            "free bytes of the disk below which the node refuses appends; at least two WAL "
            "files (default 512 MiB)"
        ),
    ),
    "tier": (
        "DIR|s3://BUCKET/PREFIX",
        (
            "object store to which this node uploads the sealed segments of the ranges that the "
            "node leads; give all nodes the same store (default: none)"
        ),
    ),
    "tier_endpoint": (
        "URL",
        (
            "address of an S3-compatible store of --tier (default: AWS_ENDPOINT_URL_S3, "
            "AWS_ENDPOINT_URL, the files of AWS, then AWS itself)"
        ),
    ),
    "tier_region": (
        "REGION",
        (
            "region of the bucket of --tier (default: AWS_REGION, AWS_DEFAULT_REGION, the files of "
            "AWS, then us-east-1)"
        ),
    ),
    "tier_bytes_per_s": (
        "N",
        "bytes per second that the node uploads to --tier; 0: no limit (default 32 MiB)",
    ),
    "tier_grace": (
        "SECONDS",
        (
            "seconds that the tier keeps files which no manifest needs any more, for readers that "
            "have begun (default 3600)"
        ),
    ),
    "repair_after": (
        "SECONDS",
        (
            "seconds that a node is DEAD before other nodes get its replicas; 0: no limit "
            "(default 300)"
        ),
    ),
    "merge_after": (
        "SECONDS",
        (
            "seconds that small ranges rest before the cluster merges the ranges; 0: never "
            "(default 600)"
        ),
    ),
    "balance": (
        "on|off",
        "whether the cluster spreads replicas and leads evenly by itself (default on)",
    ),
    "split_rest": (
        "SECONDS",
        (
            "seconds that a range rests after a split before its load can split the range again "
            "(default 600)"
        ),
    ),
    "idle_timeout": (
        "SECONDS",
        "seconds that a client's connection may stay without a request; 0: no limit (default 600)",
    ),
}

_BARE = frozenset({"auth", "insecure"})
"""Settings that their flag alone turns on."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the node's flags; flags that are not given are absent from the parsed result."""
    for name, (value, text) in _FLAGS.items():
        bare: dict[str, Any] = {"nargs": "?", "const": "on"} if name in _BARE else {}
        parser.add_argument(
            "--" + name.replace("_", "-"), dest=name, default=argparse.SUPPRESS, help=text,
            metavar=value, **bare,
        )  # fmt: skip
    parser.add_argument("--config", type=Path, default=None, metavar="FILE",
                        help="TOML file with any of these settings; `lognode init` writes "
                             "such a file")  # fmt: skip


def described() -> Iterator[tuple[str, str]]:
    """Yield the name and the help text of every setting, in the order of `--help`."""
    for name, (_, text) in _FLAGS.items():
        yield name, text


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Config:
    """Return the configuration. Raises InvalidArgument that says where the bad value is from."""
    environment = os.environ if environment is None else environment
    file = flags.get("config") or environment.get("LOGNODE_CONFIG")
    from_file = _read(Path(file)) if file else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in _FLAGS:
        variable = "LOGNODE_" + name.upper()
        for source, value in (
            ("flag --" + name.replace("_", "-"), flags.get(name)),
            (f"environment {variable}", environment.get(variable)),
            (f"file {file}", from_file.pop(name, None)),
        ):
            if value is not None:
                values[name], sources[name] = _convert(name, value, source), source
                break
        else:
            sources[name] = "default"
    if from_file:
        unknown = ", ".join(sorted(from_file))
        raise InvalidArgument(
            f"the file {file} has unknown settings: {unknown}; known are {', '.join(_FLAGS)}",
            what="config",
        )
    config = Config(**values, sources=sources)
    _check_advertised(config)
    return config


def _check_advertised(config: Config) -> None:
    """Raise InvalidArgument for an advertised address that no other machine can dial."""
    name = "advertise" if config.advertise else "listen"
    if _is_unspecified(config.advertised, name):
        unset = "" if config.advertise else " and no address is advertised"
        raise InvalidArgument(
            f"{name} is {config.advertised} ({config.sources[name]}){unset}: this address "
            "means every interface, and no other machine can dial this address. Nodes and "
            "clients need a host name or the address of one interface. Give such an address "
            "with --advertise HOST:PORT",
            what=name,
        )
    if config.peer_advertise and _is_unspecified(config.peer_advertise, "peer_advertise"):
        raise InvalidArgument(
            f"peer_advertise is {config.peer_advertise} ({config.sources['peer_advertise']}): "
            "this address means every interface, and no other node can dial this address. Give "
            "a host name or the address of one interface with --peer-advertise "
            "HOST:PORT", what="peer_advertise",
        )  # fmt: skip


def check_kafka(config: Config) -> None:
    """Raise InvalidArgument for settings with which a node cannot serve Kafka clients."""
    if not config.kafka:
        return
    if config.kafka_advertise and _is_unspecified(config.kafka_advertise, "kafka_advertise"):
        raise InvalidArgument(
            f"kafka_advertise is {config.kafka_advertise} "
            f"({config.sources['kafka_advertise']}): this address means every interface, and no "
            "client can dial this address. Give a host name or the address of one interface with "
            "--kafka-advertise HOST:PORT",
            what="kafka_advertise",
        )


def _is_unspecified(address: str, what: str) -> bool:
    """Whether the host means every interface: `0.0.0.0` or `::`, in any spelling."""
    host, _ = split_address(address, what)
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        try:
            return socket.inet_aton(host) == bytes(4)  # `0` and `0x0` are spellings of 0.0.0.0
        except (OSError, ValueError):
            return False  # a host name
    mapped = getattr(parsed, "ipv4_mapped", None)
    return parsed.is_unspecified or (mapped is not None and mapped.is_unspecified)


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            body = tomllib.load(file)
    except OSError as error:
        raise InvalidArgument(
            f"cannot read configuration {path}: {error.strerror}", what="config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not TOML: {error}", what="config") from None
    return {name.replace("-", "_"): value for name, value in body.items()}


def _convert(name: str, value: Any, source: str) -> Any:
    try:
        if name in _PATHS:
            if not str(value):
                raise ValueError("give a path")
            return Path(str(value))
        if name in _ADDRESSES:
            split_address(str(value), name)
            return str(value)
        if name == "http_host":
            return _names(value)
        if name == "http_streams":
            return _count(value, limits.http_streams_max)
        if name == "kafka_auto_create":
            return _count(value, limits.kafka_partitions_max)
        if name == "join":
            parts: Sequence[str] = value.split(",") if isinstance(value, str) else value
            addresses = tuple(part.strip() for part in parts if part.strip())
            for address in addresses:
                split_address(address, "join")
            return addresses
        if name in _AGES:
            return _seconds(value)
        if name == "auth_lease":
            return _lease(value)
        if name == "bootstrap_expect":
            return _nodes(value)
        if name == "found_level":
            return _level(value)
        if name == "wal_file_bytes":
            return _bytes(value)
        if name in ("transfer_bytes_per_s", "scrub_bytes_per_s", "tier_bytes_per_s"):
            return _rate(value)
        if name == "disk_reserve_bytes":
            return _reserve(value)
        if name == "tls_client_auth" and value not in ("none", "optional", "required"):
            raise ValueError("give none, optional or required")
        if name == "log_format" and value not in LOG_FORMATS:
            raise ValueError(f"give {', '.join(LOG_FORMATS[:-1])} or {LOG_FORMATS[-1]}")
        if name in ("balance", "auth", "insecure", "traces"):
            return _switch(value)
        if name == "zone":
            return ZONE.check(str(value), name)
        if name == "log_level" and str(value).upper() not in (
            "DEBUG", "INFO", "WARNING", "ERROR",
        ):  # fmt: skip
            raise ValueError("DEBUG, INFO, WARNING or ERROR")
        return str(value).upper() if name == "log_level" else str(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"bad value {value!r} of {source}: {error}", what=name) from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{error.message} ({source})", what=name) from None


def _names(value: Any) -> tuple[str, ...]:
    given: Sequence[str] = value.split(",") if isinstance(value, str) else value
    names = tuple(name.strip() for name in given)
    if not all(name and not set(name) & set(" /:@[]") for name in names):
        raise ValueError("give host names without ports")
    return names


def _seconds(value: Any) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError("give seconds, 0 or more")
    return number


def _lease(value: Any) -> float:
    seconds = _seconds(value)
    if 0 < seconds < _LEASE_MIN_S:
        raise ValueError(f"give {_LEASE_MIN_S:g} s or more, or 0")
    return seconds


def _nodes(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= limits.nodes_max:
        raise ValueError(f"give a number of nodes of 1 to {limits.nodes_max}, or 0")
    return number


def _count(value: Any, most: int) -> int:
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError(f"give 0 to {most}")
    return number


def _level(value: Any) -> int:
    number = int(value)
    if not LEVEL_MIN <= number <= LEVEL_MAX:
        raise ValueError(f"this version knows {span(LEVEL_MIN, LEVEL_MAX)}")
    return number


def _bytes(value: Any) -> int:
    number = int(value)
    if not limits.wal_file_bytes_min <= number <= limits.wal_file_bytes_max:
        raise ValueError(f"give {limits.wal_file_bytes_min} to {limits.wal_file_bytes_max}")
    return number


def _rate(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= INTEGER_MAX:
        raise ValueError(f"give bytes a second, up to {INTEGER_MAX}, or 0 for no limit")
    return number


def _reserve(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= limits.disk_reserve_bytes_max:
        raise ValueError(f"give 0, for two WAL files, to {limits.disk_reserve_bytes_max}")
    return number


def _switch(value: Any) -> str:
    if value not in ("on", "off"):
        raise ValueError("give on or off")
    return str(value)


def shown(config: Config) -> list[tuple[str, str, str]]:
    """Return name, value and source of every setting, for `lognode config show`."""
    rows = []
    for entry in fields(config):
        if entry.name != "sources":
            value = getattr(config, entry.name)
            told = ",".join(value) if isinstance(value, tuple) else value
            text = "" if told is None else str(told)
            rows.append((entry.name, text, config.sources.get(entry.name, "default")))
    return rows
