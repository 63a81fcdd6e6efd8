"""Each way to get keys for S3, with a server that checks signatures: what works, and what is said.

obstore reads the environment of its process by itself, so each test runs a process.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from key_givers import CONTAINER_TOKEN, IDENTITY_TOKEN, ROLE, key_giver, printed
from pki import pki
from s3_servers import S3Server, made_role, s3_server

pytestmark = pytest.mark.cluster
PROGRAM = """
import sys, time
from lognode.client.objects import places
store = places.opened(sys.argv[1], endpoint=sys.argv[2], patience_s=6)
for at in range(int(sys.argv[3])):
    if at:
        time.sleep(float(sys.argv[4]))
    try:
        print(store.put(f"{sys.argv[5]}/{at}", b"content"))
    except Exception as error:
        print(type(error).__name__, error)
"""
EXPORTED = "aws configure export-credentials --profile work"


@dataclass(frozen=True)
class Guarded:
    """A server that takes only these keys, which are those of a role for some time."""

    server: S3Server
    keys: Mapping[str, str]


@pytest.fixture(scope="module")
def guarded(module_path: Path) -> Iterator[Guarded]:
    with s3_server(module_path) as server:
        if server.kind != "moto":
            pytest.skip("only moto's server makes roles for these tests")
        server.bucket("guarded")
        keys = made_role(server)
        server.refuse_strangers()
        yield Guarded(server, keys)


@dataclass(frozen=True)
class Home:
    """A home directory whose user puts objects."""

    path: Path
    guarded: Guarded

    def config(self, text: str) -> None:
        (self.path / ".aws").mkdir(exist_ok=True)
        (self.path / ".aws" / "config").write_text(text)

    def put(self, *, times: int = 1, pause_s: float = 0, **environment: str) -> list[str]:
        """Put objects in a process; return what the process printed."""
        plain = {"PATH": os.environ["PATH"], "HOME": str(self.path),
                 "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "s3://guarded/x", self.guarded.server.endpoint,
             str(times), str(pause_s), self.path.name],
            env={**plain, **environment}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout.splitlines()

    def refused(self, *, kind: str, **environment: str) -> str:
        """Put an object, which fails at once; return the error's text."""
        began = time.monotonic()
        (line,) = self.put(**environment)
        assert line.startswith(f"{kind} "), line
        assert time.monotonic() - began < 5, "nothing was repeated"
        return line


@pytest.fixture
def home(tmp_path: Path, guarded: Guarded) -> Home:
    return Home(tmp_path, guarded)


def test_keys_of_the_environment_and_of_a_profile_work(home: Home) -> None:
    keys = home.guarded.keys
    assert home.put(**keys) == ["True"]
    lines = [f"{name.lower()} = {value}" for name, value in keys.items()]
    home.config("\n".join(["[profile work]", *lines, ""]))
    assert home.put(AWS_PROFILE="work", times=1, pause_s=0) == ["False"], "put already"
    wrong = {**keys, "AWS_SECRET_ACCESS_KEY": "wrong"}
    assert "SignatureDoesNotMatch" in home.refused(kind="Unauthorized", **wrong)


def test_a_program_gives_keys_and_is_asked_again_before_they_end(home: Home) -> None:
    """The keys last long for the server; the program says that they end soon."""
    script, calls = home.path / "give keys.py", home.path / "calls"
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    script.write_text(
        f"import sys\nopen({str(calls)!r}, 'a').write(sys.argv[1] + '\\n')\n"
        f"print({printed(home.guarded.keys, soon)!r})\n"
    )
    home.config(f'[default]\ncredential_process = {sys.executable} "{script}" "an argument"\n')
    assert home.put(times=3, pause_s=2) == ["True"] * 3
    asked = calls.read_text().splitlines()
    assert len(asked) >= 2
    assert set(asked) == {"an argument"}
    calls.unlink()
    script.write_text(script.read_text().replace(f', "Expiration": "{soon}"', ""))
    assert home.put(times=3) == ["False"] * 3
    assert len(calls.read_text().splitlines()) == 1, "keys without an end are asked for once"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('a secret'); sys.exit('log in\\x1b first')",
         "ended with code 1 (log in  first)"),
        ("print('a secret')", "printed something else"),
        ("print('{\"Version\": 1, \"AccessKeyId\": \"a secret\"}')", "printed no SecretAccessKey"),
    ],
    ids=["fails", "no JSON", "half of the keys"],
)  # fmt: skip
def test_a_program_that_gives_no_keys_is_named(home: Home, program: str, said: str) -> None:
    script = home.path / "program.py"
    script.write_text(program)
    home.config(f"[profile work]\ncredential_process = {sys.executable} {script}\n")
    error = home.refused(kind="Unauthorized", AWS_PROFILE="work")
    assert f"the program of profile 'work' {said}; credential_process must name" in error
    assert f"Run the program by hand: {sys.executable} {script}" in error
    assert "a secret" not in error


def test_a_program_that_is_missing_is_named(home: Home) -> None:
    home.config("[default]\ncredential_process = /not/there\n")
    error = home.refused(kind="Unauthorized")
    assert "did not start (No such file or directory)" in error


def test_an_instance_gives_keys(home: Home) -> None:
    with key_giver(home.guarded.keys) as (address, given):
        assert home.put(AWS_METADATA_ENDPOINT=address) == ["True"]
    assert given == ["instance"]


def test_a_container_gives_keys(home: Home) -> None:
    token = home.path / "token"
    token.write_text(CONTAINER_TOKEN)
    with key_giver(home.guarded.keys) as (address, given):
        environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        }
        assert home.put(**environment) == ["True"]
    assert given == ["container"]


@pytest.mark.parametrize("source", ["environment", "profile"])
def test_a_web_identity_gives_keys(home: Home, source: str) -> None:
    token = home.path / "identity"
    token.write_text(IDENTITY_TOKEN)
    made = pki(home.path / "ca")
    sts = made.node("sts")
    settings = {"web_identity_token_file": str(token), "role_arn": ROLE,
                "role_session_name": "nightly"}  # fmt: skip
    environment = {"AWS_CA_BUNDLE": str(made.ca)}
    if source == "profile":
        lines = [f"{name} = {value}" for name, value in settings.items()]
        home.config("\n".join(["[profile pod]", *lines, ""]))
        environment["AWS_PROFILE"] = "pod"
    else:
        environment |= {f"AWS_{name.upper()}": value for name, value in settings.items()}
    with key_giver(home.guarded.keys, (str(sts.cert), str(sts.key))) as (address, given):
        assert home.put(AWS_ENDPOINT_URL_STS=address, **environment) == ["True"]
    assert given == ["web identity"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("sso_session = corp\nsso_account_id = 1\nsso_role_name = Admin",
         "has sso_session: the profile logs in by single sign-on"),
        ("sso_start_url = https://d-1.awsapps.com/start", "logs in by single sign-on"),
        ("login_session = arn:aws:iam::1:user/ann", "logs in by a browser"),
        (f"role_arn = {ROLE}\nsource_profile = base\naws_access_key_id = a\n"
         "aws_secret_access_key = s", "has role_arn: the profile assumes a role with other keys"),
    ],
    ids=["sso", "old sso", "browser", "role"],
)  # fmt: skip
def test_a_profile_that_only_the_tools_of_aws_follow_is_refused(
    home: Home, settings: str, why: str
) -> None:
    home.config(f"[profile work]\n{settings}\n[profile base]\naws_access_key_id = a\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home.path), "AWS_PROFILE": "work"}
    done = subprocess.run(
        [Path(sys.executable).with_name("lognode"), "backup", "list", "s3://guarded/x"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert why in done.stderr
    assert f'Run eval "$({EXPORTED} --format env)"' in done.stderr
    assert f"`credential_process = {EXPORTED}`" in done.stderr
    assert home.put(AWS_PROFILE="work", **home.guarded.keys) == ["True"], "keys come first"


def test_the_advice_of_a_refused_profile_works(home: Home) -> None:
    """A program `aws` that prints the keys of a profile stands for the tools of AWS."""
    (home.path / "bin").mkdir()
    program = home.path / "bin" / "aws"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "assert sys.argv[1:] == ['configure', 'export-credentials', '--profile', 'work']\n"
        f"print({printed(home.guarded.keys)!r})\n"
    )
    program.chmod(0o755)
    home.config(
        f"[profile work]\nsso_session = corp\n[profile backups]\ncredential_process = {EXPORTED}\n"
    )
    path = f"{program.parent}:{os.environ['PATH']}"
    assert home.put(AWS_PROFILE="backups", PATH=path) == ["True"]
