"""Addresses as flags and the metadata have them: `host:port`."""

from ..client.errors import InvalidArgument


def split_address(address: str, what: str = "address") -> tuple[str, int]:
    """Host and port. `[::1]:4600` is IPv6. Raises InvalidArgument."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidArgument(
            f"{what} {address!r} is not HOST:PORT with a port of 1 to 65535", what=what
        )
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Undo `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
