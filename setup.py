"""Put the commit into what is built: an installed wheel has no repository to ask."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

_ROOT = Path(__file__).resolve().parent
_OF = runpy.run_path(str(_ROOT / "node" / "runtime" / "commit.py"))


def _write(folder: Path) -> None:
    """Write the commit of this checkout, or of the source distribution that this is, if known."""
    found = _OF["of_checkout"](_ROOT) or _OF["of_file"](_ROOT / "node" / "runtime")
    if found:
        (folder / _OF["FILE"]).write_text(f"{found}\n", "utf-8")


class _Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            _write(Path(self.build_lib) / "lognode" / "node" / "runtime")

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Leave out this file, which lies in the folder of the package `lognode`."""
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if Path(each[2]).resolve() != _ROOT / "setup.py"]


class _Source(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _write(Path(base_dir) / "node" / "runtime")


setup(cmdclass={"build_py": _Build, "sdist": _Source})
