"""Certificates: what is read from their DER bytes, and what `lognode ca` makes."""

import datetime
import ipaddress
import random
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from lognode.client.protocol import certificate
from lognode.client.protocol.errors import Conflict, InvalidArgument
from lognode.node import main
from lognode.node.certificates import ca

YEAR = datetime.timedelta(days=365)
KEYS = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


def made(
    key: object, names: list[x509.GeneralName] | None, years: int = 1, common_name: str = "n"
) -> x509.Certificate:
    """A certificate signed by its own key."""
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                      x509.NameAttribute(NameOID.COMMON_NAME, common_name)])  # fmt: skip
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())  # type: ignore[attr-defined]
        .not_valid_before(now).not_valid_after(now + years * YEAR)
    )  # fmt: skip
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KEYS)
def test_a_certificate_says_what_the_library_says(kind: str) -> None:
    key = KEYS[kind]()
    uris = ["lognode://cluster/prod/node/n1", "lognode://cluster/prod/client/app", "spiffe://x/y"]
    names: list[x509.GeneralName] = [x509.DNSName("h"), x509.IPAddress(ipaddress.ip_address("::1"))]
    names += map(x509.UniformResourceIdentifier, uris)
    theirs = made(key, names, years=40, common_name="Ünal")
    ours = certificate.parse(theirs.public_bytes(serialization.Encoding.DER))
    spki = theirs.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(spki)
    assert ours.key == digest.finalize().hex()
    assert ours.fingerprint == theirs.fingerprint(hashes.SHA256())
    assert ours.not_before == theirs.not_valid_before_utc.timestamp()
    assert ours.not_after == theirs.not_valid_after_utc.timestamp()  # after 2050: another type
    assert ours.common_name == "Ünal"
    assert list(ours.uris) == uris
    assert ours.nodes() == [("prod", "n1")]
    assert ours.clients() == [("prod", "app")]
    assert ours.clusters() == {"prod"}
    assert ours.holder == "client app"


def test_a_certificate_without_alternative_names_names_nobody() -> None:
    der = made(KEYS["P-256"](), None).public_bytes(serialization.Encoding.DER)
    assert certificate.parse(der).clusters() == set()
    assert certificate.parse(der).holder == "name n"
    assert node_certificate().holder == "node n1"


def node_certificate() -> certificate.Certificate:
    """A certificate of a node that no authority has made."""
    uri = x509.UniformResourceIdentifier("lognode://cluster/prod/node/n1")
    return certificate.parse(made(KEYS["P-256"](), [uri]).public_bytes(serialization.Encoding.DER))


@pytest.mark.parametrize(
    "uri",
    [
        "lognode://cluster/a/node/b/c", "lognode://cluster/a/node/", "lognode://cluster/a/node",
        "lognode://cluster//node/b", "lognode://cluster/a%2Fb/node/c", "LOGNODE://cluster/a/node/b",
        "http://cluster/a/node/b", "lognode://cluster/a/node/b\nc", "lognode://cluster/a/peer/b",
        "lognode://cluster/a/node/" + "b" * 65,
    ],
)  # fmt: skip
def test_a_uri_that_is_not_exact_names_nobody(uri: str) -> None:
    der = made(KEYS["P-256"](), [x509.UniformResourceIdentifier(uri)])
    assert certificate.parse(der.public_bytes(serialization.Encoding.DER)).clusters() == set()


def test_bytes_that_are_not_a_certificate_are_a_value_error() -> None:
    """And nothing else: they come from the network."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    uri = x509.UniformResourceIdentifier("lognode://cluster/a/node/b")
    der = made(KEYS["P-256"](), [uri]).public_bytes(serialization.Encoding.DER)
    for _ in range(5_000):
        data = bytearray(der)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        del data[rng.randrange(len(data)) if rng.random() < 0.3 else len(data) :]
        try:
            certificate.parse(bytes(data))
        except ValueError:
            continue
    for data in (b"", b"\x30", b"\x30\x80", b"\x30\x00", b"\x30\x02\x30\x00"):
        with pytest.raises(ValueError, match="certificate"):
            certificate.parse(bytes(data))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_authority_keeps_its_keys_to_its_owner(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "ca"
    authority = ca.Authority.create(directory, "prod", 10)
    node = authority.node("n1", ["h1.example", "10.0.0.1"], 5)
    client = authority.client("app", 5)
    assert mode(directory) == 0o700
    for issued in (authority.issued, node, client):
        assert (mode(issued.cert), mode(issued.key)) == (0o600, 0o600)
    assert node.certificate.nodes() == [("prod", "n1")]
    assert client.certificate.clients() == [("prod", "app")]
    names = x509.load_pem_x509_certificate(node.cert.read_bytes()).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["h1.example"]
    assert found.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]


def test_an_authority_overwrites_nothing(tmp_path: Path) -> None:
    authority = ca.Authority.create(tmp_path, "prod", 10)
    first = authority.node("n1", ["h"], 5)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Conflict, match=r"ca\.crt exists, and this command overwrites no file"):
        ca.Authority.create(tmp_path, "prod", 10)
    with pytest.raises(Conflict, match=r"n1\.crt exists, and this command overwrites no file"):
        authority.node("n1", ["h"], 5)
    first.cert.unlink()
    with pytest.raises(Conflict, match=r"n1\.key exists, and this command overwrites no file"):
        authority.node("n1", ["h"], 5)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {
        path: data for path, data in before.items() if path != first.cert
    }


def test_a_renewal_keeps_the_key_and_the_hosts(tmp_path: Path) -> None:
    authority = ca.Authority.create(tmp_path, "prod", 10)
    first = authority.node("n1", ["h1", "10.0.0.1"], 5)
    key = first.key.read_bytes()
    second = ca.Authority.open(tmp_path).node("n1", [], 9, renew=True)
    assert second.key.read_bytes() == key
    assert second.certificate.key == first.certificate.key
    assert second.certificate.fingerprint != first.certificate.fingerprint
    assert second.certificate.not_after > first.certificate.not_after
    hosts = [
        x509.load_pem_x509_certificate(each.cert.read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value.get_values_for_type(x509.IPAddress)
        for each in (first, second)
    ]
    assert hosts[0] == hosts[1]
    assert mode(second.cert) == 0o600
    with pytest.raises(InvalidArgument, match=r"cannot read key .*n2\.key"):
        authority.node("n2", ["h"], 5, renew=True)


def test_bad_names_hosts_and_times_are_refused(tmp_path: Path) -> None:
    authority = ca.Authority.create(tmp_path / "ca", "prod", 10)
    for name in ("", "a/b", "ä", "-a", "a b", "x" * 65):
        with pytest.raises(InvalidArgument, match="not allowed in a certificate"):
            authority.node(name, ["h"], 5)
    for host in ("", "h:4600", "a b", "ä.example", "-a", "a..b", "*", "x" * 64):
        with pytest.raises(InvalidArgument, match="neither an IP address nor a host name"):
            authority.node("n1", [host], 5)
    with pytest.raises(InvalidArgument, match="has no host"):
        authority.node("n1", [], 5)
    for days in (0, 40_000):
        with pytest.raises(InvalidArgument, match=f"the validity is {days} days; give 1 to"):
            authority.node("n1", ["h"], days)
    with pytest.raises(InvalidArgument, match="the name 'ca' is reserved"):
        authority.client("ca", 5)
    with pytest.raises(InvalidArgument, match="looks like the id of a cluster"):
        ca.Authority.create(tmp_path / "other", "0" * 32, 10)
    with pytest.raises(InvalidArgument, match=r"contains no CA \(ca\.crt\)"):
        ca.Authority.open(tmp_path)
    authority.issued.key.chmod(0o640)
    with pytest.raises(InvalidArgument, match=r"CA key .*ca\.key has mode 0640.*chmod 600"):
        ca.Authority.open(tmp_path / "ca")


def test_the_verbs_print_the_fingerprints_and_never_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "ca")
    assert main.main(["ca", "init", "--dir", place, "--cluster", "prod"]) == 0
    assert main.main(["ca", "node", "n1", "--host", "h1", "--dir", place, "--format", "json"]) == 0
    assert main.main(["ca", "client", "app", "--dir", place]) == 0
    said = capsys.readouterr()
    issued = certificate.from_pem((tmp_path / "ca" / "n1.crt").read_text())[0]
    assert issued.key in said.out
    assert issued.fingerprint.hex() in said.out
    assert "PRIVATE" not in said.out
    assert main.main(["ca", "init", "--dir", place]) == 1
    assert "exists, and this command overwrites no file" in capsys.readouterr().err
    assert main.main(["ca", "sign"]) == 2
    assert main.main(["ca", "node", "--dir", place]) == 2
