"""Find the nodes that an earlier run of a local cluster left in its directory.

A cluster starts again only as a whole: its nodes need a majority, at the addresses that they know.
So `lognode dev` looks here first, and refuses a start that cannot succeed.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...client.protocol.address import split_address
from ...client.protocol.errors import InvalidArgument, LognodeError
from ...partitions.metadata import Metadata
from ...statemachine.meta import decode_row
from ..directory import meta_keys
from ..directory.data_directory import IDENTITY, locked
from ..directory.image_rows import ImageRows
from ..directory.meta_reader import read_rows

PORTS_A_NODE: Final = 3
"""The ports of a node, in this order: for clients, for peers and for HTTP."""
_IMAGE_ROWS: Final = (meta_keys.CONTROLLER, meta_keys.CONTROLLER_BUCKETS, meta_keys.IMAGE_BUCKETS)
_DIRECTORY: Final = re.compile(r"node([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class KeptNode:
    """One node of an earlier run. All fields but `data` are empty if meta.mdb cannot be read."""

    data: Path
    cluster: str = ""
    node_id: int = 0
    image: Metadata | None = None
    """The newest metadata that this node has stored."""
    address: str = ""
    """The address at which the other nodes know the node, by the newest metadata of all nodes."""
    peer: str = ""
    http: str = ""
    removed: bool = False


def kept_nodes(directories: Mapping[int, Path]) -> dict[int, KeptNode]:
    """Return the nodes of an earlier run in these directories, by number.

    A directory without an identity is not a node yet. Nothing is changed, even if a node runs."""
    found = {}
    for number, data in directories.items():
        if (data / "meta.mdb").exists():
            node = _read(data)
            if node is not None:
                found[number] = node
    images = [node.image for node in found.values() if node.image is not None]
    if not images:
        return found
    newest = max(images, key=lambda image: (image.controller.generation, image.version))
    for number, node in found.items():
        record = newest.nodes.get(node.node_id)
        if record is not None and node.cluster == newest.cluster_id:
            found[number] = replace(
                node, address=record.address, peer=record.peer, http=record.http,
                removed=record.state == "REMOVED",
            )  # fmt: skip
    return found


def directories_of(root: Path) -> dict[int, Path]:
    """Return the directories `node<number>` under the root, by number."""
    if not root.is_dir():
        return {}
    matches = [(_DIRECTORY.fullmatch(path.name), path) for path in root.iterdir()]
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def port_of(address: str) -> int:
    """Return the port of the address, or 0 without a port."""
    try:
        return split_address(address)[1]
    except InvalidArgument:
        return 0


def first_port(kept: Mapping[int, KeptNode], ports: int = PORTS_A_NODE) -> int | None:
    """Return the port from which the kept nodes' ports were counted, three for each node.

    `ports` is how many of the three are looked at. None means that the ports do not follow each
    other in that way, or that no port is known."""
    found = set()
    for number, node in kept.items():
        if node.address and node.http:
            before = PORTS_A_NODE * (number - 1)
            for at, address in enumerate((node.address, node.peer, node.http)[:ports]):
                found.add(port_of(address) - before - at)
    return found.pop() if len(found) == 1 else None


def first_http(kept: Mapping[int, KeptNode]) -> int | None:
    """Return the port from which the kept nodes' HTTP ports were counted, one for each node.

    None means that the ports do not follow each other in that way, or that no port is known."""
    found = {port_of(node.http) - (number - 1) for number, node in kept.items() if node.http}
    return found.pop() if len(found) == 1 else None


def check_kept(root: Path, kept: Mapping[int, KeptNode], nodes: Mapping[int, str]) -> None:
    """Raise what prevents `nodes` (addresses by number) from starting with the kept nodes.

    Raises InvalidArgument, or DirectoryInUse while a kept node runs."""
    clusters = {node.cluster: number for number, node in kept.items() if node.cluster}
    if len(clusters) > 1:
        told = ", ".join(f"node{number} of {cluster}" for cluster, number in clusters.items())
        raise InvalidArgument(
            f"{root} contains nodes of several clusters: {told}. All nodes must be of one "
            "cluster. Delete the directories of the other nodes, or give another directory "
            "with --data",
            what="data",
        )
    for node in kept.values():
        with contextlib.suppress(InvalidArgument), locked(node.data):
            pass
    too_many = [n for n, node in kept.items() if n not in nodes and not node.removed]
    if too_many:
        whole = [number for number, node in kept.items() if not node.removed]
        raise InvalidArgument(
            f"{root} contains the nodes {', '.join(map(str, whole))} of a cluster, but only "
            f"{len(nodes)} nodes would start. The cluster needs a majority of its members, "
            f"and all of its nodes start together. Give -n {max(whole)} or more, or another "
            "directory with --data",
            what="n",
        )
    for number, address in nodes.items():
        if number in kept:
            _check_node(number, kept[number], address, first_port(kept))


def _check_node(number: int, node: KeptNode, address: str, base_port: int | None) -> None:
    if node.removed:
        raise InvalidArgument(
            f"{node.data} contains node {node.node_id}, which was removed from its cluster "
            "for ever. Delete the directory, and a new node takes its place",
            what="data",
        )
    if node.address and node.address != address:
        again = f"--base-port {base_port}" if base_port else "no --base-port"
        raise InvalidArgument(
            f"node {number} would listen on {address}, but the other nodes in "
            f"{node.data.parent} know the node at {node.address}. Each node keeps its "
            f"address. Give {again}, or another directory with --data",
            what="base_port",
        )


def _read(data: Path) -> KeptNode | None:
    """Return the node in the directory, or None if the directory has no identity."""
    values: dict[str, Any] = {}
    try:
        for key, value in read_rows(data / "meta.mdb"):
            name = key.decode()
            if name in (IDENTITY, meta_keys.IMAGE) or name.startswith(_IMAGE_ROWS):
                values[name] = decode_row(key, value)
        identity = values.pop(IDENTITY, None)
        if identity is None:
            return None
        newest = max(
            _images(values), key=lambda m: (m.controller.generation, m.version), default=None
        )
        return KeptNode(data, str(identity["cluster"]), int(identity["node"]), newest)
    except (LognodeError, OSError, KeyError, TypeError, ValueError):
        return KeptNode(data)  # when the node starts, it reports what is wrong


def _images(values: Mapping[str, Any]) -> Iterator[Metadata]:
    """Yield the metadata in these rows: the newest image, and those of controller replicas."""
    prefixes = {meta_keys.IMAGE: meta_keys.IMAGE_BUCKETS}
    for name in values:
        if name.startswith(meta_keys.CONTROLLER):
            prefixes[name] = (
                f"{meta_keys.CONTROLLER_BUCKETS}{name.removeprefix(meta_keys.CONTROLLER)}/"
            )
    for name, prefix in prefixes.items():
        if name in values:
            buckets = [item for item in values.items() if item[0].startswith(prefix)]
            yield ImageRows(prefix).load(buckets, values[name])
