"""To whom a joining node tells the secret of its invitation (X4): to nodes whose certificate leads
to the authority that the invitation names, and of its cluster, and to nobody else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pki import Pki, pki

from lognode.client import tokens
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.invitation import NO_CA, Invitation
from lognode.client.protocol import Operation, by_number
from lognode.client.protocol.errors import InvalidArgument, LognodeError, Unauthorized, Unavailable
from lognode.client.protocol.private_files import write_private
from lognode.client.protocol.wire import Hello, Welcome
from lognode.node.certificates.ca import Issued
from lognode.node.certificates.tls import NodeTls
from lognode.node.config import Config
from lognode.node.joining.admission import Admission
from lognode.node.joining.attempt import Attempt
from lognode.node.joining.joining import join
from lognode.node.metrics import Metrics

CLUSTER = "0123456789abcdef" * 2
OTHER_CLUSTER = "fedcba9876543210" * 2


class Listener:
    """Answers as a node of the cluster would, and notes all that it is told."""

    def __init__(self, cluster: str | None = CLUSTER) -> None:
        self.cluster = cluster
        self.heard: list[Any] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        self.heard.append(hello)
        node = None if self.cluster is None else 1
        return Welcome(
            nonce=nonce, version=hello.agreed_version(), cluster=self.cluster, node=node
        )  # fmt: skip

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        """Anybody is welcome."""

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        found = by_number(number)
        assert found is not None
        return found

    def request(self, request: Request) -> Any:
        self.heard.append(request.body.get("invitation"))
        raise Unauthorized("heard")

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """It refuses nobody."""

    def opened(self, connection: ServerConnection) -> None:
        """Somebody has dialled."""

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        """Somebody has gone."""

    def message(self, connection: ServerConnection, operation: Operation, body: Any) -> None:
        raise AssertionError(operation)

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(f"operation {number}: {error!r}")


class Place:
    """Two authorities that both sign nodes of cluster `test`, and a CA file that has them both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.right, self.wrong = pki(root / "right"), pki(root / "wrong")
        self.both = root / "both.crt"
        self.both.write_bytes(self.wrong.ca.read_bytes() + self.right.ca.read_bytes())
        self.token = tokens.draw()
        self.mine = self.right.node("n9")

    @property
    def invitation(self) -> Invitation:
        return Invitation(self.token, CLUSTER, self.right.authority.issued.certificate.key)

    def tls(self, issued: Issued, ca: Path | None = None) -> NodeTls:
        return NodeTls(issued.cert, issued.key, ca or self.both, "optional", Metrics())

    def admission(self, invitation: Invitation | None, tls: NodeTls | None) -> Admission:
        path = self.root / "invitation"
        if invitation is not None:
            path.unlink(missing_ok=True)
            write_private(path, invitation.text().encode())
        return Admission(Config(invitation=None if invitation is None else path), tls)

    def told(
        self, listener: Listener, signer: Pki | None, invitation: Invitation | None
    ) -> LognodeError:
        """Join where the listener has a certificate of the signer; why that has failed."""

        async def main() -> None:
            theirs = None if signer is None else self.tls(signer.node("n1"))
            admission = self.admission(invitation, None if signer is None else self.tls(self.mine))
            server = await acceptor.serve(listener, "127.0.0.1", 0, secret=None, tls=theirs)
            config = Config(join=(f"127.0.0.1:{server.port}",), join_timeout=0.0)
            try:
                await join(config, None, admission, Attempt(5, 6, ""), str)
            finally:
                await server.close()

        with pytest.raises(LognodeError) as caught:
            asyncio.run(main())
        assert self.token.partition(".")[2] not in f"{caught.value!r} {caught.value.fields}"
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_X4_the_secret_goes_to_nobody_of_another_authority(place: Place) -> None:
    """The CA file of the joining node trusts both. The node told the secret to the wrong one."""
    listener = Listener()
    error = place.told(listener, place.wrong, place.invitation)
    assert isinstance(error, Unauthorized)
    assert f"trusts only the CA with the key {place.invitation.ca})" in error.message
    assert listener.heard == [], "not even a hello"


def test_the_secret_goes_to_a_node_of_the_right_authority(place: Place) -> None:
    listener = Listener()
    assert place.told(listener, place.right, place.invitation).message == "heard"
    assert listener.heard[1:] == [place.token]


def test_without_an_invitation_every_authority_of_the_file_is_trusted(place: Place) -> None:
    listener = Listener()
    assert place.told(listener, place.wrong, None).message == "heard"
    assert listener.heard[1:] == [None]


@pytest.mark.parametrize("cluster", [None, OTHER_CLUSTER])
def test_the_secret_goes_to_no_other_cluster(place: Place, cluster: str | None) -> None:
    listener = Listener(cluster)
    error = place.told(listener, place.right, place.invitation)
    assert isinstance(error, Unauthorized if cluster else Unavailable)
    assert len(listener.heard) == 1, "the hello"


def test_without_tls_the_secret_stays_on_this_machine(place: Place) -> None:
    plain = place.invitation._replace(ca=NO_CA)
    listener = Listener()
    assert place.told(listener, None, plain).message == "heard"
    assert listener.heard[1:] == [place.token]
    admission = place.admission(plain, None)
    with pytest.raises(InvalidArgument, match="and others could read its secret"):
        admission.shown_to("db1.example", CLUSTER)
    file = place.root / "invitation"
    admission = Admission(Config(invitation=file, insecure="on"), None)
    assert admission.shown_to("db1.example", CLUSTER) == {"invitation": place.token}


def test_an_invitation_that_is_of_no_use_here_is_refused_at_once(place: Place) -> None:
    tls = place.tls(place.mine)
    for invitation, given, said in (
        (place.invitation, None, "this node has no TLS"),
        (place.invitation._replace(ca=NO_CA), tls, "a cluster without TLS"),
        (place.invitation._replace(ca="ab" * 32), tls, "whose CA has the key abab"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            place.admission(invitation, given)


def test_an_invitation_names_the_authority_that_signed_the_node(place: Place) -> None:
    """Both authorities have the same name here, and the wrong one stands first in the file."""
    for signer in (place.right, place.wrong):
        assert place.tls(signer.node("n1")).authority == signer.authority.issued.certificate.key
    reverse = place.root / "reverse.crt"
    reverse.write_bytes(place.right.ca.read_bytes() + place.wrong.ca.read_bytes())
    for signer in (place.right, place.wrong):
        made = place.tls(signer.node("n2"), reverse)
        assert made.authority == signer.authority.issued.certificate.key
