"""Addresses of a cluster with certificates and tokens, and what of them is kept."""

import asyncio
import os
from pathlib import Path

import pytest

from lognode.chaos import store
from lognode.chaos.credentials import FOLDER, Credentials
from lognode.client.protocol.address import tls_of, token_file_of
from lognode.client.protocol.errors import InvalidArgument, Unavailable


def test_an_address_names_files_in_any_folder(tmp_path: Path) -> None:
    """A folder is named after its nemeses, such as `append-kill+pause-3`."""
    given = Credentials(tmp_path / "append-kill+pause-3 & more", {})
    address = given.address("127.0.0.1:1,127.0.0.1:2", given.workload_token)
    assert address.startswith("lognodes://127.0.0.1:1,127.0.0.1:2?ca=")
    assert token_file_of(address) == given.workload_token
    tls = tls_of(address)
    assert tls is not None
    files = [Path(str(file)) for file in (tls.ca, tls.cert, tls.key)]
    assert files == [given.ca, given.cert, given.key]


def test_a_refusal_of_the_command_line_is_reported(tmp_path: Path) -> None:
    given = Credentials(tmp_path, os.environ)
    asyncio.run(given.make([1]))
    flags = given.flags(1, is_founder=True)
    assert all(Path(file).exists() for file in (*flags[1:6:2], given.cert, given.key))
    assert "--invitation" not in flags
    assert "--invitation" in given.flags(2, is_founder=False)
    with pytest.raises(Unavailable, match=r"`lognode ca init` failed: .*ca\.crt exists"):
        asyncio.run(given.make([1]))


def test_a_founder_without_a_token_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read token file .*admin\.token"):
        Credentials(tmp_path, {}).keep_admin_token(tmp_path)


def test_no_secret_is_kept_of_a_valid_test(tmp_path: Path) -> None:
    folder = tmp_path / store.CLUSTER_FOLDER / FOLDER
    folder.mkdir(parents=True)
    (folder / "node1.key").write_text("secret")
    store.drop_data(tmp_path)
    assert not folder.exists()
