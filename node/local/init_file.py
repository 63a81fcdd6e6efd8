"""Write the configuration file of a node, in which each setting is explained: `lognode init`.

The file follows from the table of flags in `config.py`, so a new flag is in the file at once. Given
settings are set in the file. All others stand there as comments, with their defaults.
"""

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ...client.cli.parser import Parser
from ...client.protocol.errors import Conflict, InvalidArgument, Unavailable
from .. import config

NAME: Final = "lognode.toml"
_STANDARD_OUTPUT: Final = Path("-")
_WIDTH: Final = 98
_SECTIONS: Final = {
    "data": "The data directory, and the addresses",
    "join": "How the node founds or joins a cluster",
    "secret_file": "Security",
    "dial_map": "Addresses of other nodes, and the log",
    "wal_file_bytes": "The disk",
    "tier": "The tier",
    "repair_after": "Repair, splits, merges and balance",
    "idle_timeout": "Clients",
}
"""Headings, by the setting above which each of them stands."""
_EXAMPLES: Final[dict[str, Any]] = {
    "advertise": "db1.example:4600",
    "peer_listen": "10.0.0.1:4601",
    "peer_advertise": "db1.example:4601",
    "http_host": ("lognode.example",),
    "kafka": "127.0.0.1:9092",
    "kafka_advertise": "db1.example:9092",
    "kafka_token_file": "/etc/lognode/kafka.token",
    "join": ("db1.example:4600", "db2.example:4600", "db3.example:4600"),
    "invitation": "/etc/lognode/db4.invitation",
    "zone": "a",
    "secret_file": "/etc/lognode/secret",
    "tls_cert": "/etc/lognode/db1.crt",
    "tls_key": "/etc/lognode/db1.key",
    "tls_ca": "/etc/lognode/ca.crt",
    "dial_map": "/etc/lognode/dial.toml",
    "tier": "s3://bucket/cluster-a",
    "tier_endpoint": "https://s3.example.org",
    "tier_region": "eu-central-1",
}
"""Values of settings that are unset by default, to show their form."""


def parser() -> Parser:
    """Return the parser of `lognode init`."""
    made = Parser(
        prog="lognode init",
        description="Write the configuration file of a node, in which each setting is explained. "
        "The file sets what flags, LOGNODE_* or --config give. All other settings are comments "
        "with their defaults.",
    )
    made.add_argument(
        "file", nargs="?", type=Path, default=Path(NAME), metavar="FILE",
        help=f"file to write; -: standard output (default {NAME})",
    )  # fmt: skip
    made.add_argument("--force", action="store_true", help="replace an existing file")
    config.add_flags(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit code. Raises UsageError, InvalidArgument, Conflict and
    Unavailable."""
    options = vars(parser().parse(arguments))
    path, force = options.pop("file"), options.pop("force")
    text = file_text(config.load(options), path)
    if path == _STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        _write(path, text, force=force)
        sys.stdout.write(f"wrote {path}; start the node with: lognode --config {path}\n")
    return 0


def file_text(settings: config.Config, path: Path) -> str:
    """Return the file that sets all settings whose source is not the default."""
    name = NAME if path == _STANDARD_OUTPUT else str(path)
    head = (
        f"Configuration of a node of lognode {version('lognode')}, written by `lognode init`. "
        f"`lognode --config {json.dumps(name, ensure_ascii=False)[1:-1]}` starts the node.",
        "A flag overrides LOGNODE_*, which overrides this file, which overrides the default. "
        "`lognode config show --config FILE` prints each value and its source.",
        "A line such as `#balance = ...` has the default of the setting, or an example for a "
        "setting that is unset. Remove the `#` to set a value.",
    )
    lines = [line for each in head for line in _comment(each)]
    for setting, text in config.described():
        if setting in _SECTIONS:
            lines += ["", "", f"## {_SECTIONS[setting]}"]
        lines += ["", *_setting(settings, setting, text)]
    return "\n".join(lines) + "\n"


def _setting(settings: config.Config, name: str, text: str) -> Iterator[str]:
    """Yield the lines of a setting."""
    value = getattr(settings, name)
    is_set = settings.sources[name] != "default"
    is_example = not is_set and value in (None, "", ())
    known = {other for other, _ in config.described()}

    def named(flag: re.Match[str]) -> str:
        setting = flag[1].replace("-", "_")
        return setting if setting in known else flag[0]

    told = re.sub(r"--([a-z][a-z-]*)", named, text)
    yield from _comment(told + ("; unset, for example:" if is_example else ""))
    shown = _EXAMPLES.get(name, "...") if is_example else value
    yield f"{'' if is_set else '#'}{name} = {_toml(shown)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _toml(value: Any) -> str:
    """Return a value of a setting as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return f"{int(value):_}" if value.is_integer() else repr(value)
    # The escapes of JSON are escapes of TOML, too. TOML also demands an escape for DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write the file. Raises InvalidArgument, Conflict and Unavailable."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            "a setting has bytes that are not UTF-8, and TOML is UTF-8; give another path",
            what="config",
        ) from None
    try:
        if not force:
            with path.open("xb") as file:
                file.write(data)
            return
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(data)
        os.replace(new, path)
    except FileExistsError:
        raise Conflict(
            f"the file {path} exists; give another name, or replace the file with --force"
        ) from None
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}; check the directory") from None
