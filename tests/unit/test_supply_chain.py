"""Dependencies: bounded on both sides, and pinned with hashes for development and CI."""

import re
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUN = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(each) for each in wanted]
    for name, wanted in PROJECT["project"]["optional-dependencies"].items()
}
LOCKS = ("build", "dev", "spark")


def pins(name: str) -> dict[str, tuple[str, list[str]]]:
    """Per package of a lock file its version and hashes. Every line is understood."""
    found: dict[str, tuple[str, list[str]]] = {}
    package = ""
    for line in (ROOT / "requirements" / f"{name}.lock").read_text("utf-8").splitlines():
        pin = re.fullmatch(r"([a-z0-9.-]+)==([0-9a-z.+!]+) \\", line)
        hash_ = re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})( \\)?", line)
        if pin:
            package = pin[1]
            assert package not in found, f"{package} is pinned twice"
            found[package] = (pin[2], [])
        elif hash_:
            found[package][1].append(hash_[1])
        else:
            assert line.startswith("#"), f"{name}.lock has a line that is not a pin: {line}"
    return found


@pytest.mark.skipif(
    not (3, 11, 5) <= sys.version_info < (3, 12), reason="the locked packages are not installed"
)
def test_the_locks_fit_the_first_python_that_gets_them() -> None:
    """Debian 12 has 3.11.2: setup takes the newest versions that fit there."""
    setup = (ROOT / "scripts" / "setup").read_text("utf-8")
    (first,) = re.findall(r"\((3, \d+, \d+)\) <= sys.version_info < \(3, 12\)", setup)
    python = first.replace(", ", ".")
    pinned = {package for name in LOCKS for package in pins(name)}
    for package in sorted(pinned):
        installed = distribution(package)
        allowed = SpecifierSet(installed.metadata["Requires-Python"] or "")
        assert allowed.contains(python), f"{package} refuses Python {python}: {allowed}"
        for text in installed.requires or ():
            wanted = Requirement(text)
            marker, there = wanted.marker, {"python_full_version": python, "extra": ""}
            if marker is None or marker.evaluate(there):
                assert canonicalize_name(wanted.name) in pinned, f"{package} needs {text}"


@pytest.mark.parametrize("requirement", RUN + EXTRAS["spark"], ids=str)
def test_every_dependency_of_a_node_has_an_upper_bound(requirement: Requirement) -> None:
    operators = {each.operator for each in requirement.specifier}
    assert operators == {"=="} or operators == {">=", "<"}, "a major version may break a node"


def test_the_floor_of_aiohttp_is_above_its_known_advisories() -> None:
    (aiohttp,) = [each for each in RUN if each.name == "aiohttp"]
    assert not aiohttp.specifier.contains("3.14.4"), "docs/supply-chain.md lists the advisories"
    assert aiohttp.specifier.contains("3.14.5")
    assert not aiohttp.specifier.contains("4.0.0")


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_lock_names_an_index(name: str) -> None:
    for package, (_, hashes) in pins(name).items():
        assert hashes, f"{package} has no hash"
        assert len(set(hashes)) == len(hashes)
    assert "//" not in (ROOT / "requirements" / f"{name}.lock").read_text("utf-8")


@pytest.mark.parametrize("locks", [("build", "dev"), LOCKS], ids="+".join)
def test_the_locks_fit_pyproject(locks: tuple[str, ...]) -> None:
    """Otherwise run `scripts/lock`. The demo installs the first two files only."""
    pinned: dict[str, str] = {}
    for name in locks:
        for package, (version, _) in pins(name).items():
            assert package not in pinned, f"{package} stands in two locks"
            pinned[package] = version
    wanted = RUN + EXTRAS["dev"] + (EXTRAS["spark"] if "spark" in locks else [])
    wanted += [Requirement(each) for each in PROJECT["build-system"]["requires"]]
    for requirement in wanted:
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"no lock has {requirement.name}"
        assert requirement.specifier.contains(Version(version)), (str(requirement), version)
