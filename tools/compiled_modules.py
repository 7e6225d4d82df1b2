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
from concurrent.futures import ThreadPoolExecutor
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
        for extension in compile_modules(sources, self.config["modules"], self._made):
            build_data["force_include"][str(extension)] = extension.relative_to(self._made / "lib").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # theirs
        """Remove what the wheel has taken."""
        if self.target_name == "wheel" and version != "editable":
            shutil.rmtree(self._made)


def compile_modules(sources: Path, modules: list[str], into: Path) -> list[Path]:
    """Compile modules, named by their paths below `sources`; returns the extensions, which are below `into/lib`."""
    # of the build alone, and only where something is compiled
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution, Extension  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    class BuildOnAllCores(build_ext):
        """Compiles the C files of one extension at the same time; setuptools does so for extensions only."""

        def build_extension(self, ext: Extension) -> None:
            def compile_one(source: str) -> list[str]:
                arguments = {"include_dirs": ext.include_dirs, "extra_postargs": ext.extra_compile_args}
                return list(self.compiler.compile([source], output_dir=self.build_temp, **arguments))

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = list(pool.map(compile_one, ext.sources))
            ext.extra_objects = [*ext.extra_objects, *(file for files in compiled for file in files)]
            ext.sources = []
            super().build_extension(ext)

    with chdir(sources), _caching_in(into / "mypy"):
        # The package imports `mailboat.library` for type checkers, and so the whole engine, whose libraries a build
        # does not have: `make lint` reports the errors of modules that are not compiled.
        options = ["--config-file", str(Path.cwd().parent / "pyproject.toml"), "--follow-imports=silent"]
        extensions = mypycify(
            [*options, *modules],
            opt_level="3",
            debug_level="0",
            multi_file=True,
            target_dir=str(into / "c"),
        )
        distribution = Distribution({"name": "mailboat", "ext_modules": extensions})
        command = BuildOnAllCores(distribution)
        command.ensure_finalized()
        command.build_lib, command.build_temp = str(into / "lib"), str(into / "objects")
        command.run()
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
