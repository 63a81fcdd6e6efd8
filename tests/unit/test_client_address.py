"""Addresses: what users write, and what they are told when it is wrong."""

from pathlib import Path

import pytest

import lognode
from lognode.client.protocol.address import Address, parse, split_address, tls_of, token_file_of
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.private_files import write_private
from lognode.client.protocol.tls import Tls
from lognode.client.tokens import draw


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


def test_an_address_names_the_file_of_a_token(tmp_path: Path) -> None:
    for text, expected in (
        ("h:1", None),
        ("lognode://h:1", None),
        ("lognode://h:1,g?token=/x/t", Path("/x/t")),
        ("lognodes://h:1?ca=a&token=t", Path("t")),
    ):
        assert token_file_of(text) == expected
        parse(text)
    assert tls_of("lognodes://h:1?ca=a&token=t") == Tls(ca="a")
    assert tls_of("lognode://h:1?token=t") is None
    for text in ("lognode://h?ca=a", "lognode://h?token=", "lognode://h?token=a&token=b"):
        with pytest.raises(InvalidArgument, match="is not token=FILE"):
            lognode.AsyncClient(text)
    path, token = tmp_path / "t", draw()
    write_private(path, token.encode())
    assert repr(lognode.AsyncClient(f"lognode://h:1?token={path}")) == "<AsyncClient lognode://h:1>"
    with pytest.raises(InvalidArgument, match="given twice"):
        lognode.AsyncClient(f"lognode://h:1?token={path}", token=token)


def test_files_for_tls_are_given_once() -> None:
    with pytest.raises(InvalidArgument, match="given twice, in the address and as `tls`"):
        lognode.AsyncClient("lognodes://h:1?ca=a", tls=Tls(ca="b"))
    with pytest.raises(InvalidArgument, match="cannot read CA file nowhere"):
        lognode.AsyncClient("lognodes://h:1?ca=nowhere")
    assert repr(lognode.AsyncClient("h:1")) == "<AsyncClient lognode://h:1>"
    assert repr(lognode.AsyncClient("h:1", tls=Tls())) == "<AsyncClient lognodes://h:1>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", ("h", 1)),
        ("node-1.example.com:65535", ("node-1.example.com", 65_535)),
        ("node_1.lognode.svc.:4600", ("node_1.lognode.svc.", 4600)),
        ("0.0.0.0:4600", ("0.0.0.0", 4600)),
        ("[::1]:4600", ("::1", 4600)),
        ("[fe80::1%eth0.7]:4600", ("fe80::1%eth0.7", 4600)),
        (f"{'a' * 63}.{'b' * 63}:1", (f"{'a' * 63}.{'b' * 63}", 1)),
        (".".join(["a" * 49] * 5) + ".abc:1", (".".join(["a" * 49] * 5) + ".abc", 1)),
    ],
)
def test_addresses_with_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected
    assert str(split_address(text)) == text


UNUSABLE = {
    "an empty label": ("a..b:4600", "the host has an empty label"),
    "a label of 64 characters": (f"{'x' * 64}.com:4600", "has 64 characters; a label of a DNS"),
    "a name of 254 characters": (".".join(["a" * 49] * 5) + ".abcd:1", "has 254 characters"),
    "no label": (".:1", "an empty label"),
    "two dots at the end": ("h..:1", "an empty label"),
    "a zero byte": ("a\0b:1", "ASCII letters, digits"),
    "a blank": ("a b:1", "ASCII letters, digits"),
    "a blank before": (" h:1", "ASCII letters, digits"),
    "a line break": ("h\n:1", "ASCII letters, digits"),
    "other letters": ("b\u00fccher.example:1", "in its xn-- form"),
    "digits of another script": ("h:\u0663", "write a host, a colon and a port"),
    "a lone surrogate": ("\udcff:1", "ASCII letters, digits"),
    "no host": (":4600", "the host is missing"),
    "no port": ("h", "write a host, a colon and a port"),
    "an empty port": ("h:", "write a host, a colon and a port"),
    "port 0": ("h:0", "write a host, a colon and a port"),
    "port 65536": ("h:65536", "write a host, a colon and a port"),
    "a port of 5,000 digits": ("h:" + "1" * 5000, "write a host, a colon and a port"),
    "IPv6 without brackets": ("fe80::1:4600", "write an IPv6 address in brackets"),
    "a bracket only": ("[::1:4600", "write an IPv6 address in brackets"),
    "a name in brackets": ("[h]:4600", "is not an IPv6 address"),
    "a strange interface": ("[fe80::1%a b]:4600", "is not an interface"),
    "an IPv4 address of five": ("1.2.3.4.5:1", "is not an IPv4 address"),
    "an IPv4 address above 255": ("10.0.0.256:1", "is not an IPv4 address"),
    "an IPv4 address with a leading zero": ("10.0.0.010:1", "is not an IPv4 address"),
    "a number": ("2130706433:1", "is not an IPv4 address"),
    "1,000,000 characters": ("x" * 1_000_000 + ":1", "has 1000000 characters"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_an_undiallable_address_is_refused(what: str) -> None:
    text, said = UNUSABLE[what]
    with pytest.raises(InvalidArgument) as caught:
        split_address(text, "advertise")
    message = caught.value.message
    assert message.startswith("advertise ")
    assert "is not HOST:PORT with a port of 1 to 65535: " in message
    assert said in message
    assert len(message) < 500
    message.encode()
    assert message.isprintable(), "in one line, without what a terminal would not show"
    assert caught.value.fields == {"what": "advertise"}


@pytest.mark.parametrize("value", [None, 5, b"h:1", ["h:1"], {}])
def test_an_address_must_be_text(value: object) -> None:
    with pytest.raises(InvalidArgument, match="the address is not text"):
        split_address(value)


@pytest.mark.parametrize("text", [text for text, _ in UNUSABLE.values() if "," not in text])
def test_an_invalid_address_is_also_invalid_in_a_list(text: str) -> None:
    """But that there the port may be left out, and blanks around an address."""
    if text in ("h", "h:", " h:1"):
        assert parse(text)
        return
    with pytest.raises(InvalidArgument):
        parse(text)
