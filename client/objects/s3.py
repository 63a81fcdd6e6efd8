"""A bucket of an S3-compatible store, by obstore, which the extra `lognode[s3]` installs.

Why obstore: it binds the Rust library object_store of the Arrow project, which other data systems
use for the same purpose, and brings nothing else to a node: one wheel of 6 MB without compiled
dependencies. Requests run without Python's global lock. boto3 brings seven packages and 17 MB of
wheels. The Python client of MinIO cannot store an object only where there is none.

Each request may take a third of the patience. A request that failed by a fault that passes is
repeated, with random pauses, until the patience ends. The requests of one call, as a put and the
read back, share the patience. obstore itself repeats nothing: it would not
repeat a conditional put, since it cannot tell whose object the second put finds.

Each upload is checked. The signature covers the SHA-256 of the content, so a store that checks
signatures refuses other bytes. The ETag of the answer is the MD5 of the content in most stores; for
another ETag the object is read back and compared.
"""

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ..protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from .s3_credentials import CredentialProcess, Keys
from .s3_errors import KEYS_ENDED, Refusal, refusal
from .s3_settings import S3Settings
from .store import Listed, ObjectStore, check_name, check_range, is_name

if TYPE_CHECKING:
    from obstore.store import S3Store as Bucket

_BUCKET: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{1,254}")
_ATTEMPTS: Final = 3
"""How many requests without an answer the patience has room for."""
_CONNECT_S: Final = 5.0
_PAGE: Final = 1_000
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
T = TypeVar("T")


class _Failed(Exception):
    """A request failed; the argument is the Refusal."""


class _Unsupported(Exception):
    """The store knows no conditional put."""


class _Keys:
    """Gives obstore keys; obstore asks again before the keys end."""

    def __init__(self, credentials: Keys | CredentialProcess | None) -> None:
        self._credentials = credentials
        self._refused: LognodeError | None = None

    def __call__(self) -> Keys:
        credentials = self._credentials
        if not isinstance(credentials, CredentialProcess):
            return dict(credentials or {})
        try:
            return credentials.keys()
        except LognodeError as error:
            self._refused = error
            raise

    def refused(self) -> LognodeError | None:
        """Return the error of the program that should have printed keys since the last call."""
        found, self._refused = self._refused, None
        return found


class S3ObjectStore(ObjectStore):
    """Objects whose names in the bucket begin with a prefix. The contract is that of the folder."""

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        """Raises InvalidArgument without obstore, and for a bad bucket or prefix."""
        self.place = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        if not _BUCKET.fullmatch(bucket):
            raise InvalidArgument(
                f"{bucket[:80]!r} is not the name of a bucket; a name has 2 to 255 letters, "
                "digits, `.`, `_` and `-`. Write s3://BUCKET/PREFIX",
                what="store",
            )
        if prefix:
            check_name(prefix)
        self._prefix = prefix
        self._settings = settings
        self._where = settings.endpoint or f"AWS in {settings.region}"
        self._keys = _Keys(settings.credentials)
        self._store = self._opened(bucket)

    def _opened(self, bucket: str) -> "Bucket":
        try:
            from obstore.store import S3Store
        except ImportError:
            raise InvalidArgument(
                f"the store {self.place} needs the library obstore, which is not installed. "
                "Install lognode[s3]",
                what="store",
            ) from None
        settings = self._settings
        attempt = settings.patience_s / _ATTEMPTS
        options: dict[str, Any] = {
            "timeout": timedelta(seconds=attempt),
            "connect_timeout": timedelta(seconds=min(_CONNECT_S, attempt)),
            "allow_http": (settings.endpoint or "").startswith("http://"),
        }
        if settings.ca is not None:
            options["root_certificate"] = settings.ca
        given: dict[str, Any] = {"region": settings.region}
        if settings.credentials is not None:
            given["credential_provider"] = self._keys
        given |= settings.identity
        if settings.endpoint is not None:
            given["endpoint"] = given["aws_endpoint_url_s3"] = settings.endpoint
        return S3Store(
            bucket,
            prefix=self._prefix or None,
            client_options=options,  # type: ignore[arg-type]
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=attempt)},
            disable_bulk_delete=True,  # not every store knows the request for many objects
            **given,
        )

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        check_name(name)
        begun = time.monotonic()
        if not replace and self.conditional:
            try:
                return self._put_new(name, content, begun)
            except _Unsupported:
                self.conditional = False
        if not replace and self._repeated(lambda: self._exists(name), begun):
            return False
        tag = self._repeated(lambda: self._put_once(name, content, "overwrite"), begun)
        self._check_upload(name, content, tag, begun)
        return True

    def _put_new(self, name: str, content: bytes, begun: float) -> bool:
        """Store an object by a conditional request. Raises _Unsupported."""
        tries = 0

        def stored() -> str | None:
            nonlocal tries
            tries += 1
            return self._put_once(name, content, "create")

        tag = self._repeated(stored, begun)
        if tag is None:
            # The answer to an earlier attempt may be lost: then the object is this content.
            return tries > 1 and self._has(name, content, begun)
        self._check_upload(name, content, tag, begun)
        return True

    def _check_upload(self, name: str, content: bytes, tag: str | None, begun: float) -> None:
        """Raise CorruptData unless the store has the content."""
        plain = (tag or "").strip('"').lower()
        known = plain == hashlib.md5(content, usedforsecurity=False).hexdigest()
        if not known and not self._has(name, content, begun):
            raise self.failed(
                CorruptData, f"the store has other bytes of object {name} than it was sent. "
                "Check the store and the network, and repeat the call"
            )  # fmt: skip

    def _put_once(
        self, name: str, content: bytes, mode: Literal["create", "overwrite"]
    ) -> str | None:
        """Return the object's ETag, or None for an object that exists."""
        try:
            found = self._store.put(name, content, mode=mode, use_multipart=False)
        except Exception as error:
            told = refusal(error)
            if told.exists:
                return None
            if told.unsupported and mode == "create":
                raise _Unsupported from None
            raise _Failed(told) from None
        return found["e_tag"] or ""

    def _exists(self, name: str) -> bool:
        try:
            self._store.head(name)
        except Exception as error:
            _raise_unless_missing(error)
            return False
        return True

    def _has(self, name: str, content: bytes, begun: float) -> bool:
        """Whether the object has this content; read back after an upload."""
        try:
            return self._whole(name, len(content), begun) == content
        except CorruptData:  # the object is larger
            return False

    def get(self, name: str, bytes_max: int) -> bytes | None:
        return self._whole(check_name(name), bytes_max, time.monotonic())

    def _whole(self, name: str, bytes_max: int, begun: float) -> bytes | None:
        def read() -> bytes | None:
            found = bytearray()
            try:
                result = self._store.get(name)
                size = result.meta["size"]
                for chunk in result if size <= bytes_max else ():
                    found += chunk
                    if len(found) > size:
                        break
            except Exception as error:
                _raise_unless_missing(error)
                return None
            if size > bytes_max:
                raise self.too_large(name, bytes_max)
            if len(found) != size:
                raise _Failed(Refusal("", 0, "", f"the answer for {name} has another length"))
            return bytes(found)

        return self._repeated(read, begun)

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        check_name(name)
        check_range(begin, end)

        def read() -> bytes | None:
            try:
                return bytes(self._store.get_range(name, start=begin, end=end))
            except Exception as error:
                if refusal(error).status == 416:
                    return b""
                _raise_unless_missing(error)
                return None

        found = self._repeated(read)
        if found is not None and len(found) != end - begin:
            raise self.too_short(name, end)
        return found

    def objects(self, folder: str = "") -> Iterator[Listed]:
        if folder:
            check_name(folder)
        last: str | None = None
        while True:
            page = self._repeated(partial(self._page, folder, last))
            for listed in page:
                if is_name(listed.name):
                    yield listed
            if not page:
                return
            last = page[-1].name

    def _page(self, folder: str, after: str | None) -> list[Listed]:
        """Return the first objects behind `after`: at most a page."""
        try:
            stream = self._store.list(folder or None, offset=after, chunk_size=_PAGE)
            found = next(iter(stream), [])
        except Exception as error:
            raise _Failed(refusal(error)) from None
        page = sorted(Listed(each["path"], each["size"]) for each in found)
        if page and after is not None and page[0].name <= after:
            raise self.failed(
                InvalidArgument,
                f"{self._where} repeats names in a listing; a listing must go on behind a given "
                "name. Use another store",
                what="store",
            )
        return page

    def delete(self, name: str) -> None:
        check_name(name)

        def deleted() -> None:
            try:
                self._store.delete(name)
            except Exception as error:
                _raise_unless_missing(error)

        self._repeated(deleted)

    def _repeated(self, call: Callable[[], T], begun: float | None = None) -> T:
        """Return the result of the call. Repeat the call after faults that pass.

        The patience counts from `begun`, or from now. No attempt begins when too little is left.
        """
        if begun is None:
            begun = time.monotonic()
        room = self._settings.patience_s * (1 - 1 / _ATTEMPTS)
        pause = _PAUSE_S
        if time.monotonic() - begun > room:
            raise self._too_late(begun, "the request before took all the time")
        while True:
            try:
                return call()
            except _Failed as failed:
                told: Refusal = failed.args[0]
            refused = self._keys.refused()
            if refused is not None:
                raise self.failed(type(refused), refused.message)
            if not told.passes:
                raise self._error(told)
            left = begun + room - time.monotonic()
            if left <= 0:
                raise self._too_late(begun, told.text)
            time.sleep(min(random.uniform(0, pause), left))
            pause = min(pause * 2, _PAUSE_MAX_S)

    def _too_late(self, begun: float, why: str) -> Exception:
        """Return the error for a store that does not answer in time."""
        return self.failed(
            Unavailable,
            f"{self._where} gave no useful answer in {time.monotonic() - begun:.0f} s: {why}. "
            "Check the endpoint and the network, then repeat the command",
        )

    def _error(self, told: Refusal) -> Exception:
        """Return the error for a refusal that does not pass."""
        if told.without_credentials:
            return self.failed(
                Unauthorized,
                "there are no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "write a profile into ~/.aws/credentials",
            )
        if told.code == "NoSuchBucket":
            return self.failed(
                NotFound, f"{self._where} has no such bucket. Create the bucket, or name another"
            )
        if told.other_region:
            return self.failed(
                InvalidArgument,
                f"the bucket is not in the region {self._settings.region}. Give the region of the "
                "bucket with --region",
                what="region",
            )
        if told.code in KEYS_ENDED:
            return self.failed(
                Unauthorized,
                f"{self._where} refused the credentials: {told.text}. The keys have ended: ask for "
                "new keys, and repeat the command",
            )
        if told.status in (401, 403):
            return self.failed(
                Unauthorized,
                f"{self._where} refused the credentials: {told.text}. Give credentials that may "
                "read, write and list the objects",
            )
        return self.failed(
            InvalidArgument, f"{self._where} refused the request: {told.text}", what="store"
        )


def _raise_unless_missing(error: Exception) -> None:
    """Return if the error says that there is no such object; raise _Failed for another error."""
    told = refusal(error)
    if told.status != 404 or told.code == "NoSuchBucket":
        raise _Failed(told) from None
