"""The keys for a store in S3: from the environment, or as the profile in the files of AWS says.

Keys in the environment come first, and keys of two sources never mix. A profile has keys, names a
program that prints keys (`credential_process`), or names a file with a web identity and the role
for it. obstore knows web identities, and asks the machine if nothing else gives keys: a container
or an instance gives the keys of its role.

A profile that logs in by a browser, or that assumes a role with other keys, is refused: both need
requests that only the tools of AWS make. `aws configure export-credentials` prints keys for such a
profile, and is a program that another profile may name.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..protocol.errors import InvalidArgument, Unauthorized

_KEYS: Final = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "token": "aws_session_token",
}
"""Names in obstore, and in the files of AWS."""
_PRINTED: Final = {
    "access_key_id": "AccessKeyId",
    "secret_access_key": "SecretAccessKey",
    "token": "SessionToken",
}
"""Names in obstore, and in what a program prints."""
_IDENTITY: Final = {
    "web_identity_token_file": "aws_web_identity_token_file",
    "role_arn": "aws_role_arn",
    "role_session_name": "aws_role_session_name",
}
"""Names in the files of AWS, and in obstore."""
_LOG_INS: Final = {
    "sso_session": "logs in by single sign-on",
    "sso_start_url": "logs in by single sign-on",
    "sso_account_id": "logs in by single sign-on",
    "login_session": "logs in by a browser",
    "role_arn": "assumes a role with other keys",
}
"""Settings of a profile that only the tools of AWS can follow."""
_PROGRAM_S: Final = 60.0
_PRINTED_CHARS_MAX: Final = 1 << 16
_TOLD_CHARS_MAX: Final = 200

Keys = dict[str, str | datetime | None]
"""Keys as obstore takes them; `expires_at` None: the keys stay valid."""


class CredentialProcess:
    """A program that prints keys, and prints newer keys before the last ones end."""

    def __init__(self, profile: str, command: str) -> None:
        """Raises InvalidArgument for a command with an open quote, or without a word."""
        self._profile = profile
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise self._bad(f"is not a command ({error})") from None
        if not any(self._words[:1]):
            raise self._bad("is empty")

    def _bad(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"credential_process of profile {self._profile!r} {why}. Write the program and its "
            "arguments, with quotes around words that have spaces",
            what="store",
        )

    def keys(self) -> Keys:
        """Run the program, which blocks for at most a minute. Raises Unauthorized if the program
        prints no keys. Nothing that the program printed beside errors is in the text."""
        try:
            done = subprocess.run(
                self._words, capture_output=True, timeout=_PROGRAM_S, check=False
            )  # fmt: skip
        except OSError as error:
            raise self._failed(f"did not start ({error.strerror})") from None
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end in {_PROGRAM_S:.0f} s") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "")
            plain = "".join(c if c.isprintable() else " " for c in last)[:_TOLD_CHARS_MAX]
            raise self._failed(f"ended with code {done.returncode}{f' ({plain})' if plain else ''}")
        return self._read(done.stdout)

    def _read(self, printed: bytes) -> Keys:
        found: Any = None
        if len(printed) <= _PRINTED_CHARS_MAX:
            try:
                found = json.loads(printed)
            except ValueError:
                found = None
        if type(found) is not dict or found.get("Version") != 1:
            raise self._failed("printed something else")
        keys: Keys = {}
        for name, field in _PRINTED.items():
            value = found.get(field)
            if not (type(value) is str and value) and not (name == "token" and value is None):
                raise self._failed(f"printed no {field}")
            keys[name] = value
        return keys | {"expires_at": self._end(found.get("Expiration"))}

    def _end(self, text: Any) -> datetime | None:
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
        except (TypeError, ValueError):
            raise self._failed("printed an Expiration that is not a time in ISO 8601") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def _failed(self, why: str) -> Unauthorized:
        return Unauthorized(
            f"the program of profile {self._profile!r} {why}; credential_process must name a "
            "program that prints keys as JSON of Version 1. Run the program by hand: "
            f"{shlex.join(self._words)[:_TOLD_CHARS_MAX]}",
            outcome="not_applied",
        )


def static_keys(environment: Mapping[str, str], profile: Mapping[str, str]) -> Keys | None:
    """Return the keys of the environment or else of the profile, None without keys in both.

    Raises InvalidArgument for half of a key."""
    lower = {name.lower(): value for name, value in environment.items()}
    source = lower if in_environment(environment) else profile
    if not source.get("aws_access_key_id"):
        return None
    if not source.get("aws_secret_access_key"):
        raise InvalidArgument(
            "aws_access_key_id has no aws_secret_access_key beside it. Give both", what="store"
        )
    keys: Keys = {name: source.get(key) or None for name, key in _KEYS.items()}
    return keys | {"expires_at": None}


def in_environment(environment: Mapping[str, str]) -> bool:
    """Whether the environment has keys, so that the profile's do not matter."""
    return any(value for name, value in environment.items() if name.lower() == "aws_access_key_id")


def web_identity(profile_name: str, profile: Mapping[str, str]) -> dict[str, str]:
    """Return the web identity of the profile as obstore takes it, or nothing. Raises
    InvalidArgument for a web identity without a role."""
    if not profile.get("web_identity_token_file"):
        return {}
    if not profile.get("role_arn"):
        raise InvalidArgument(
            f"profile {profile_name!r} has a web_identity_token_file and no role_arn. Give both",
            what="store",
        )
    return {key: profile[name] for name, key in _IDENTITY.items() if profile.get(name)}


def refuse_log_ins(name: str, profile: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a profile that only the tools of AWS can follow."""
    for setting, why in _LOG_INS.items():
        if profile.get(setting) and not profile.get("web_identity_token_file"):
            command = f"aws configure export-credentials --profile {shlex.quote(name)}"
            raise InvalidArgument(
                f"profile {name!r} has {setting}: the profile {why}. lognode takes keys, "
                "credential_process, a web identity, and the role of a container or machine. Run "
                f'eval "$({command} --format env)", or name a profile with '
                f"`credential_process = {command}`",
                what="store",
            )
