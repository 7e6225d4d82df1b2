"""Build hook of hatchling: the modules of the hot paths as machine code, made by mypyc from the same sources.

Off unless `HATCH_BUILD_HOOKS_ENABLE=true`, so an editable install and a plain wheel hold Python alone. With it the
wheel has, beside each module that `pyproject.toml` names, an extension of the same name, which Python prefers; the
sources stay for whoever reads a traceback. Why, and what must hold for these modules:
`docs/decisions/0016-compiled-modules.md`.

Nothing is written into the checkout: mypy, mypyc and the C compiler work in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModulesHook(BuildHookInterface[Any]):
    """Compiles `modules`, named by their paths below `sources`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extensions to a wheel. Raises: SystemExit, as mypyc's own command, after its errors."""
        if self.target_name != "wheel" or version == "editable":
            return
        sources = Path(self.root) / self.config["sources"]
        self._made = Path(tempfile.mkdtemp(prefix="mailboat-compiled-"))
        for extension in _compile(sources, self.config["modules"], self._made):
            build_data["force_include"][str(extension)] = extension.relative_to(self._made / "lib").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # theirs
        """Remove what the wheel has taken."""
        if self.target_name == "wheel" and version != "editable":
            shutil.rmtree(self._made)


def _compile(sources: Path, modules: list[str], into: Path) -> list[Path]:
    # of the build alone, and only where something is compiled
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    with chdir(sources), _caching_in(into / "mypy"):
        extensions = mypycify(
            ["--config-file", str(Path.cwd().parent / "pyproject.toml"), *modules],
            opt_level="3",
            debug_level="0",
            target_dir=str(into / "c"),
        )
        distribution = Distribution({"name": "mailboat", "ext_modules": extensions})
        command = distribution.get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(into / "lib"), str(into / "objects")
        command.parallel = os.cpu_count()
        distribution.run_command("build_ext")
    return sorted((into / "lib").rglob("*.so"))


@contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    """Mypy's cache elsewhere than in the checkout."""
    before = os.environ.get("MYPY_CACHE_DIR")
    os.environ["MYPY_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MYPY_CACHE_DIR"]
        else:
            os.environ["MYPY_CACHE_DIR"] = before
