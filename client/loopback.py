"""Whether an address is of this machine, whose loopback traffic nobody else sees."""


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback IP address or `localhost`."""
    if host.lower() == "localhost":
        return True
    import ipaddress  # imported here because it takes long to load

    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
