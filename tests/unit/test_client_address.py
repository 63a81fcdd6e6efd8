"""Addresses: what users write, and what they are told when it is wrong."""

import pytest

from lognode.client.address import Address, parse
from lognode.client.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lognode://h1:4600,h2:4601", [("h1", 4600), ("h2", 4601)]),
        ("h1:1", [("h1", 1)]),
        ("h1", [("h1", 4600)]),
        ("lognode://[::1]:9,[fe80::2]", [("::1", 9), ("fe80::2", 4600)]),
        ("lognode://a:1, b:2 ,a:1/", [("a", 1), ("b", 2)]),
    ],
)
def test_addresses_parse(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse(text) == tuple(Address(*each) for each in expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no host"),
        ("lognode://", "no host"),
        ("http://h:1", "scheme is 'http'"),
        ("h:0", "not a port"),
        ("h:70000", "not a port"),
        ("h:x", "not a port"),
        ("h:-1", "not a port"),
        ("h:१", "not a port"),
        ("a:1,,b:2", "no host"),
        (":4600", "no host"),
        ("::1", "brackets"),
        ("fe80::1:4600", "brackets"),
        ("[::1:4600", "ipv6"),
        ("[::1]4600", "ipv6"),
        ("user@h:1", "not a host"),
        ("h/path:1", "not a host"),
    ],
)
def test_a_bad_address_is_one_clear_line(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(text)
    assert says in caught.value.message
    assert repr(text) in caught.value.message
    assert "\n" not in caught.value.message


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("::1", 9)) == "[::1]:9"
    assert str(Address("h", 9)) == "h:9"
