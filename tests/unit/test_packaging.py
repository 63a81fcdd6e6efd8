"""The wheel: what `pip install` brings is what the repository has."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from lognode.node.runtime.compiled import MODULES

ROOT = Path(__file__).resolve().parents[2]
NOT_SHIPPED = {"tests", "scripts", "docs"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has, so that nothing is written into the tree."""
    source = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout  # fmt: skip
    for name in tracked.decode().split("\0"):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    for arguments in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "--quiet", "-m", "First"),
    ):
        subprocess.run(["git", "-C", str(source), *arguments], check=True, timeout=60)
    return source


def commit_of(source: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(source), "rev-parse", "--short=12", "HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(place), str(source)],
        check=True, timeout=120,
    )  # fmt: skip
    (built,) = place.glob("*.whl")
    return built


def test_the_description_for_package_indexes_has_no_link_that_breaks_there() -> None:
    """An index shows the description alone, so that a relative link or picture leads nowhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text("utf-8")
    assert not re.findall(r"\]\((?!https://)", text)
    assert not re.findall(r"(?:src|href)=", text)
    for name in re.findall(r"`((?:docs|scripts)/[\w./-]+)`", text):
        assert (ROOT / name).is_file(), name


def test_every_extra_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs/versions.md").read_text("utf-8")
    explained = re.findall(r"^\| `lognode\[(\w+)\]` \|", page, re.MULTILINE)
    assert sorted(explained) == sorted(project["optional-dependencies"])


@pytest.mark.slow
def test_the_sdist_has_the_documents_and_all_that_the_wheel_is_made_of(
    source: Path, tmp_path: Path
) -> None:
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-c", code], cwd=source, check=True, timeout=120, capture_output=True
    )
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
        (root,) = {name.partition("/")[0] for name in archive.getnames()}
        kept = archive.extractfile(f"{root}/node/runtime/commit.txt")
        assert kept is not None
        assert kept.read().decode().strip() == commit_of(source)
    wanted = {
        path.relative_to(source).as_posix()
        for pattern in ("docs/**/*", "*.md", "client/**/*.py", "node/**/*.py", "*/**/*.[ch]")
        for path in source.glob(pattern)
        if path.is_file()
    }
    assert {"docs/tutorial.md", "docs/picture.svg", "README.md"} <= wanted
    wanted |= {"mkdocs.yml", "scripts/site", "deploy/systemd/lognode.service"}
    assert not wanted - found


@pytest.mark.slow
def test_the_wheel_holds_every_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {
        f"lognode/{path.relative_to(ROOT).as_posix()}"
        for path in ROOT.rglob("*.py")
        if not (set(path.relative_to(ROOT).parts[:1]) & NOT_SHIPPED)
        and not any(part.startswith(".") or part == "build" for part in path.parts)
        and path != ROOT / "setup.py"
    }
    # Where a compiler is, and only there, the wheel has the compiled modules.
    compiled = {name for name in shipped if name.endswith(".so")}
    names = {re.sub(r".*/(\w+)\.[^/]*", r"\1", name) for name in compiled}
    wanted = set(MODULES) if shutil.which("cc") else set()
    assert names == wanted
    # Spark looks for a module of that name outside of all packages.
    files = (ROOT / "node" / "web" / "console").iterdir()
    console = {f"lognode/node/web/console/{path.name}" for path in files}
    assert {"lognode/node/web/console/index.html"} < console
    others = {"lognode/py.typed", "lognode/node/runtime/commit.txt", "pyspark_lognode.py"}
    assert shipped - compiled == modules | console | others


@pytest.mark.slow
def test_the_wheel_runs(source: Path, wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        (entry_points,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(entry_points).decode())
    assert set(scripts["console_scripts"]) == {"lognode", "lognode-chaos"}
    for target, arguments, expected in (
        (
            scripts["console_scripts"]["lognode"],
            ["--version"],
            f"lognode 0.1.0 ({commit_of(source)})\n",
        ),
        (scripts["console_scripts"]["lognode-chaos"], ["sim", "--seed", "1"], "seed=1 ok"),
    ):
        module, function = target.split(":")
        done = subprocess.run(
            [sys.executable, "-c", f"import sys, {module} as m; sys.exit(m.{function}())",
             *arguments],
            capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert expected in done.stdout, done.stdout + done.stderr
