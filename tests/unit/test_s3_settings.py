"""Region, endpoint and credentials of a store in S3: where they come from, and what is refused."""

from pathlib import Path

import pytest

from lognode.client.objects import places
from lognode.client.objects.s3_credentials import CredentialProcess
from lognode.client.objects.s3_errors import refusal
from lognode.client.objects.s3_settings import settings
from lognode.client.protocol.errors import InvalidArgument

ENV_KEYS = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "env secret"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home has both files of AWS."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = file\naws_secret_access_key = file%secret\n"
        "aws_session_token = file token\n[other]\naws_access_key_id = other\n"
        "aws_secret_access_key = other secret\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\naws_access_key_id = config\n"
        "[profile other]\nregion = eu-north-1\nendpoint_url = https://s3.example.org/\n"
    )
    return {"HOME": str(tmp_path)}


def keys(access: str, secret: str, token: str | None = None) -> dict[str, str | None]:
    return {
        "access_key_id": access, "secret_access_key": secret, "token": token, "expires_at": None,
    }  # fmt: skip


def test_the_default_profile_is_read_from_both_files(home: dict[str, str]) -> None:
    found = settings(home)
    assert found.credentials == keys("file", "file%secret", "file token")
    assert (found.region, found.endpoint) == ("eu-west-1", None)
    assert "secret" not in repr(found)


def test_a_named_profile_is_read(home: dict[str, str]) -> None:
    found = settings(home | {"AWS_PROFILE": "other"})
    assert found.credentials == keys("other", "other secret")
    assert (found.region, found.endpoint) == ("eu-north-1", "https://s3.example.org")
    with pytest.raises(InvalidArgument, match=r"names the profile 'third'.*Name another profile"):
        settings(home | {"AWS_PROFILE": "third"})


def test_flags_come_before_the_environment_and_the_environment_before_files(
    home: dict[str, str],
) -> None:
    given = home | ENV_KEYS | {
        "AWS_PROFILE": "other", "AWS_DEFAULT_REGION": "r2", "AWS_ENDPOINT_URL": "http://all:1",
    }  # fmt: skip
    found = settings(given)
    assert found.credentials == keys("env", "env secret"), "no token of the files"
    assert (found.region, found.endpoint) == ("r2", "http://all:1")
    given |= {"AWS_REGION": "r1", "AWS_ENDPOINT_URL_S3": "http://s3:1"}
    assert (settings(given).region, settings(given).endpoint) == ("r1", "http://s3:1")
    found = settings(given, region="flag", endpoint="http://flag:1")
    assert (found.region, found.endpoint) == ("flag", "http://flag:1")


def test_a_token_of_the_environment_is_not_mixed_with_keys_of_files(home: dict[str, str]) -> None:
    found = settings(home | {"AWS_SESSION_TOKEN": "stray", "AWS_PROFILE": "other"})
    assert found.credentials == keys("other", "other secret")


def test_files_of_other_places_are_read(tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / "mine").write_text("[default]\naws_access_key_id=m\naws_secret_access_key=s\n")
    given = home | {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "mine"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }
    assert settings(given).credentials == keys("m", "s")
    assert settings(given).region == "us-east-1"


def test_without_keys_the_machine_is_asked(tmp_path: Path) -> None:
    assert settings({"HOME": str(tmp_path)}).credentials is None


def profile(tmp_path: Path, text: str) -> dict[str, str]:
    """An environment whose default profile has these settings."""
    (tmp_path / "config").write_text(f"[default]\n{text}\n")
    return {"HOME": str(tmp_path), "AWS_CONFIG_FILE": str(tmp_path / "config")}


def test_keys_come_before_a_program_and_a_web_identity_before_keys(tmp_path: Path) -> None:
    program = "credential_process = print-keys"
    own = "aws_access_key_id = a\naws_secret_access_key = s"
    assert isinstance(settings(profile(tmp_path, program)).credentials, CredentialProcess)
    assert settings(profile(tmp_path, f"{program}\n{own}")).credentials == keys("a", "s")
    pod = "web_identity_token_file = /token\nrole_arn = arn"
    found = settings(profile(tmp_path, f"{pod}\n{own}"))
    assert found.credentials is None
    assert found.identity == {"aws_web_identity_token_file": "/token", "aws_role_arn": "arn"}
    found = settings(profile(tmp_path, pod) | ENV_KEYS)
    assert (found.credentials, found.identity) == (keys("env", "env secret"), {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('credential_process = say "no end', "is not a command .* with quotes around words"),
        ('credential_process = ""', "is empty. Write the program"),
        ("web_identity_token_file = /token", "and no role_arn. Give both"),
        ("sso_session = a b", "has sso_session: .* export-credentials --profile default --format"),
    ],
)
def test_an_unusable_profile_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"profile 'default'.* {said}"):
        settings(profile(tmp_path, text))
    settings(profile(tmp_path, text) | ENV_KEYS)


def test_unusable_settings_are_named(tmp_path: Path) -> None:
    nobody = {"HOME": str(tmp_path)}
    with pytest.raises(InvalidArgument, match=r"no aws_secret_access_key beside it\. Give both"):
        settings(nobody | {"AWS_ACCESS_KEY_ID": "a"})
    (tmp_path / "bad").write_text("no section\n")
    with pytest.raises(InvalidArgument, match="bad is not a readable file of AWS settings"):
        settings(nobody | {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "bad")})
    with pytest.raises(InvalidArgument, match=r"AWS_CA_BUNDLE names .*none.*Name a file"):
        settings(nobody | {"AWS_CA_BUNDLE": str(tmp_path / "none")})
    for endpoint in ("host:9000", "ftp://host", "http://", "http://h:99999", "http://u:p@h",
                     "http://h?x=1", "http://h/a b", "http://h/ü"):  # fmt: skip
        with pytest.raises(InvalidArgument, match="is not the URL of an endpoint; write https"):
            settings(nobody, endpoint=endpoint)


@pytest.mark.parametrize(
    "place", ["s3://", "s3:///x", "s3://a b", "s3://bucket/../x", "s3://bucket/a//b", "gs://b"]
)
def test_a_place_without_a_store_is_refused(place: str) -> None:
    with pytest.raises(InvalidArgument):
        places.opened(place, environment=ENV_KEYS)


def test_an_error_of_an_unknown_form_counts_as_a_fault_that_passes() -> None:
    told = refusal(RuntimeError("never seen \x1b[31m before\nDebug source:\nx"))
    assert told.passes
    assert told.text == "never seen [31m before Debug source: x"
    long = refusal(RuntimeError("status code: 403 Forbidden: <Code>A</Code>" + "x" * 9_999))
    assert not long.passes
    assert len(long.text) <= 300
