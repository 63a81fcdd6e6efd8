"""The check for Java: without Java, Spark reports only that its gateway has exited."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..protocol.errors import Unsupported

java_min: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise Unsupported unless Spark will find a Java that it can run on."""
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else "java"
    java = shutil.which(found, path=environment.get("PATH", ""))
    if java is None:
        said = (
            f"JAVA_HOME is {home}, but {found} does not exist" if home else "PATH contains no java"
        )
    else:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        version = _VERSION.search(done.stderr)
        if version is not None and int(version[1]) >= java_min:
            return
        which = f"Java {version[1]}" if version else "a Java that does not tell its version"
        said = f"{java} is {which}"
    raise Unsupported(
        f"{said}; Spark needs Java {java_min} or newer: install Java (Debian: "
        f"openjdk-{java_min}-jre-headless), or set JAVA_HOME"
    )
