"""The content id of a file."""

import hashlib
from pathlib import Path


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
