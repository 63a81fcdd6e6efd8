"""What an attacker of a cluster with TLS and tokens has: a certificate, and a token of its own.

The token lets it read and append the attacked log, so that what it asks for is served and not
refused at the door. With the certificate of a client it is not a node.
"""

import lognode
from lognode import testing
from lognode.client.protocol.private_files import write_private

_SCOPES = ["describe,read,append attacked"]


def flags_of(cluster: testing.LocalCluster, name: str) -> list[str]:
    """The flags with which the attack of that name shows who it is; none without TLS."""
    if cluster.tls is None:
        return []
    file = cluster.root / f"{name}.token"
    if not file.exists():
        principal = name.replace("_", "-")
        with lognode.Client(cluster.servers, timeout=30.0) as client:
            made = client.admin.create_token(principal, _SCOPES)
        write_private(file, made["token"].encode())
    files = cluster.tls.client
    return ["--ca", str(files.ca), "--cert", str(files.cert), "--key-file", str(files.key),
            "--token", str(file)]  # fmt: skip
