"""Addresses: what users write, and what they are told when it is wrong."""

import pytest

import lognode
from lognode.client.address import Address, parse, tls_of
from lognode.client.errors import InvalidArgument
from lognode.client.tls import Tls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lognode://h1:4600,h2:4601", [("h1", 4600), ("h2", 4601)]),
        ("h1:1", [("h1", 1)]),
        ("h1", [("h1", 4600)]),
        ("lognode://[::1]:9,[fe80::2]", [("::1", 9), ("fe80::2", 4600)]),
        ("lognode://a:1, b:2 ,a:1/", [("a", 1), ("b", 2)]),
        ("lognodes://a:1,b", [("a", 1), ("b", 4600)]),
        ("lognodes://a:1,b/?ca=/x/ca.crt&cert=c&key=k", [("a", 1), ("b", 4600)]),
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
        ("lognode://h:1?ca=x", "not a port"),
        ("lognodes://", "no host"),
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


def test_an_address_may_name_the_files_for_tls() -> None:
    for text, expected in (
        ("lognode://h:1", None),
        ("h:1", None),
        ("lognodes://h:1", Tls()),
        ("lognodes://h:1?", Tls()),
        ("lognodes://h:1?ca=/a%26b/ca.crt", Tls(ca="/a&b/ca.crt")),
        ("lognodes://h:1,g?cert=c&key=k&ca=a", Tls(ca="a", cert="c", key="k")),
    ):
        assert tls_of(text) == expected
    for text in (
        "lognodes://h?ca", "lognodes://h?ca=", "lognodes://h?ca=a&ca=b",
        "lognodes://h?cacert=a", "lognodes://h?ca=a&password=p",
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match="is not ca=FILE&cert=FILE&key=FILE"):
            tls_of(text)


def test_files_for_tls_are_given_once() -> None:
    with pytest.raises(InvalidArgument, match="given twice, in the address and as `tls`"):
        lognode.AsyncClient("lognodes://h:1?ca=a", tls=Tls(ca="b"))
    with pytest.raises(InvalidArgument, match="cannot read CA file nowhere"):
        lognode.AsyncClient("lognodes://h:1?ca=nowhere")
    assert repr(lognode.AsyncClient("h:1")) == "<AsyncClient lognode://h:1>"
    assert repr(lognode.AsyncClient("h:1", tls=Tls())) == "<AsyncClient lognodes://h:1>"
