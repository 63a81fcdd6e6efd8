"""Which cluster a verb talks to: flags, a cluster that the user's file names, or the environment.

The file is `lognode.toml` in `$XDG_CONFIG_HOME` (default `~/.config`):

    [clusters.staging]
    server = ["10.0.0.1:4600", "10.0.0.2:4600"]   # or one text
    tls_ca = "staging/ca.pem"                     # relative to the folder of the file
    tls_cert = "staging/client.pem"
    tls_key = "staging/client.key"
    token_file = "~/.lognode/staging.token"

A token of one cluster must not reach another, so sources are not mixed: with a named cluster,
`LOGNODE_SERVER`, `LOGNODE_TLS_*` and the tokens of the environment are not used; with `--server`, a
name in `LOGNODE_CLUSTER` is not used.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..protocol.errors import InvalidArgument
from ..protocol.tls import Tls
from ..tokens import read_token
from .parser import UsageError, default_server
from .words import hint

_FILES: Final = ("tls_ca", "tls_cert", "tls_key", "token_file")
_KEYS: Final = ("server", *_FILES)


@dataclass(frozen=True, slots=True, repr=False)
class Where:
    """How a client reaches a cluster."""

    server: str
    tls: Tls | None
    token: str | None


def where(options: Namespace, environment: Mapping[str, str] | None = None) -> Where:
    """Return the cluster that the flags of all verbs and the environment name.

    There is no flag for the token itself: all users of the machine can see the flags of a process.
    Raises UsageError for two answers, InvalidArgument for an unusable file.
    """
    environment = os.environ if environment is None else environment
    name = _name(options, environment)
    if name is None:
        found = {key: environment.get(f"LOGNODE_{key.upper()}") for key in _KEYS}
        token = environment.get("LOGNODE_TOKEN")
    else:
        found, token = _cluster(clusters_file(environment), name), None
    given = {key: getattr(options, key) or found.get(key) or None for key in _KEYS}
    files = (given["tls_ca"], given["tls_cert"], given["tls_key"])
    if given["token_file"]:
        token = read_token(Path(given["token_file"]))
    return Where(
        given["server"] or default_server, Tls(*files) if any(files) else None, token or None
    )


def clusters_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file."""
    folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder) / "lognode.toml"


def _name(options: Namespace, environment: Mapping[str, str]) -> str | None:
    """Return the name of the cluster to look up in the file, or None."""
    if options.cluster is not None:
        if options.server is not None:
            raise UsageError("--server and --cluster are both given; give one of the two")
        return str(options.cluster)
    name = environment.get("LOGNODE_CLUSTER")
    if not name or options.server is not None:
        return None
    if environment.get("LOGNODE_SERVER"):
        raise UsageError(
            "LOGNODE_SERVER and LOGNODE_CLUSTER are both set; unset one of the two, or give "
            "--server or --cluster"
        )
    return name


def _cluster(path: Path, name: str) -> dict[str, str | None]:
    """Return the settings of a cluster in the file."""
    import tomllib

    try:
        text = path.read_text("utf-8")
        body = tomllib.loads(text)
    except OSError as error:
        raise _unusable(
            f"cannot read {path}, which names clusters: {error.strerror}; write "
            f'[clusters.{name}] and server = "HOST:PORT" there'
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unusable(f"{path} is not TOML: {error}") from None
    clusters = body.pop("clusters", {})
    for other in body:
        raise _unusable(
            f"{path}{_line(text, None, other)}: {other!r} is unknown; write [clusters.NAME]"
        )
    if not isinstance(clusters, dict) or not all(isinstance(c, dict) for c in clusters.values()):
        raise _unusable(f"{path}{_line(text, None, 'clusters')}: write [clusters.NAME]")
    if name not in clusters:
        names = ", ".join(sorted(clusters)) or "none"
        raise _unusable(f"{path} has no cluster {name!r}; known: {names}{hint(name, clusters)}")
    settings: dict[str, str | None] = {}
    for key, value in clusters[name].items():
        at = f"{path}{_line(text, name, key)}: "
        if key not in _KEYS:
            told = hint(key, _KEYS)
            raise _unusable(f"{at}{key!r} is unknown; known are {', '.join(_KEYS)}{told}")
        settings[key] = _setting(path, at, key, value)
    if not settings.get("server"):
        raise _unusable(
            f"{path}{_line(text, name, None)}: cluster {name!r} has no `server`; write server = "
            '"HOST:PORT"'
        )
    return settings


def _setting(path: Path, at: str, key: str, value: Any) -> str:
    if key == "server" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        value = ",".join(value)
    if not isinstance(value, str) or not value:
        raise _unusable(f"{at}{key} is {value!r}; write a text in quotes")
    if key not in _FILES:
        return value
    return str(path.parent / os.path.expanduser(value))


def _line(text: str, cluster: str | None, key: str | None) -> str:
    """Return `, line N` for a key of a cluster, for the cluster's heading without a key, or for
    a key before all headings; "" where another spelling of TOML hides the line."""
    heading: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*\[\s*([^\]]*?)\s*\]", line)
        if found:
            heading = found[1].removeprefix("clusters.").strip("\"'")
            if (key is None and heading == cluster) or (cluster is None and key == heading):
                return f", line {number}"
        elif key is not None and heading == cluster and re.match(
            rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line
        ):  # fmt: skip
            return f", line {number}"
    return ""


def _unusable(text: str) -> InvalidArgument:
    return InvalidArgument(text, what="cluster")
