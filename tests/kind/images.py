"""Images for the test cluster, built by the project's own Dockerfiles without pulling or downloading anything inside.

The base image is a small Debian with Python; the wheels of a lock are downloaded on this machine and go into the build
context. Everything is named by a digest of what it is made from, so nothing is made twice.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from builds import cache_folder, digest_of, locked, say, timed
from engine import Engine
from oci import add_bytes

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
_DEBIAN = ("--variant=minbase", "bookworm")
_DEBIAN_PACKAGES = ("python3", "python3-venv", "ca-certificates")
COMPILER = ("gcc", "libc6-dev", "python3-dev")
_DEBIAN_PYTHON = "3.11"
_SOURCES = "pyspark"
"""The one that is published as sources alone."""
OFFLINE = "--no-index --find-links requirements"
_NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)


@dataclass(frozen=True)
class Recipe:
    """An image of the project.

    Attributes:
        name: Of the image, without a tag.
        dockerfile: From the project's folder.
        sources: What is copied beside the locks.
        locks: Whose wheels are needed.
        target: The stage of the Dockerfile; empty is its last.
        agent: The image that it is made of, where that is not the base image.
        packages: Of Debian, that the base image has beside Python where nothing can be downloaded inside.
    """

    name: str
    dockerfile: str
    sources: tuple[str, ...]
    locks: tuple[str, ...]
    target: str = ""
    agent: Recipe | None = None
    packages: tuple[str, ...] = ()


AGENT = Recipe(
    "mailboat",
    "agent_image/Dockerfile",
    (
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "agent_image",
        "operator/mailboat_operator",
        "tools/compiled_modules.py",
    ),
    ("compile", "agent"),
    target="agent",
)
SPARK = Recipe(
    "mailboat-spark",
    AGENT.dockerfile,
    AGENT.sources,
    ("compile", "agent", "spark"),
    target="spark",
    packages=("openjdk-17-jre-headless",),
)
OPERATOR = Recipe("mailboat-operator", "operator/Dockerfile", (), ("operator",), agent=AGENT)


KEPT = 2
"""Images that are kept of each recipe: two checkouts may take turns."""


def name_of(recipe: Recipe) -> str:
    """The name that the image has in an engine: another one for each content."""
    arguments = {"AGENT": name_of(recipe.agent)} if recipe.agent is not None else {}
    inherited = hashlib.sha256(repr((_locks(recipe), arguments)).encode()).hexdigest()[:8]
    return f"{recipe.name}:{digest_of(*_sources(recipe))}-{inherited}"


def image(engine: Engine, recipe: Recipe) -> str:
    """The name of the image in the engine, built unless it is there. Raises: CalledProcessError, after its words."""
    arguments = {"AGENT": image(engine, recipe.agent)} if recipe.agent is not None else {}
    name = name_of(recipe)
    locks = _locks(recipe)
    with locked(cache_folder() / recipe.name):
        if not engine.has_image(name):
            wheels = {} if engine.can_pull else {lock: wheelhouse(lock) for lock in recipe.locks}
            if not engine.can_pull:
                arguments |= {"BASE": python_image(engine, recipe.packages), "PIP_OPTIONS": OFFLINE}
                if recipe.agent is None:
                    arguments["BUILDER"] = python_image(engine, COMPILER)
            say(f"building the image {name}")
            with timed(f"image {recipe.name}"):
                _build(engine, recipe, name, arguments, _context(_sources(recipe), locks, wheels))
            if not engine.can_pull:  # in an engine of the user's, images are not ours to remove
                _remove_older(engine, recipe)
    return name


def _remove_older(engine: Engine, recipe: Recipe) -> None:
    """Remove all but the newest images of a recipe. Each change of the code leaves up to 3 GB otherwise."""
    environment = {**os.environ, **engine.environment}
    listing = ["docker", "images", recipe.name, "--format", "{{.Repository}}:{{.Tag}}"]
    listed = subprocess.run(listing, env=environment, check=True, capture_output=True, text=True).stdout.split()
    for old in listed[KEPT:]:  # the newest first
        subprocess.run(["docker", "rmi", old], env=environment, check=False, stdout=subprocess.DEVNULL)
    stages = ["docker", "image", "prune", "--force", "--filter", "until=24h"]  # the builder's, without a name
    subprocess.run(stages, env=environment, check=False, stdout=subprocess.DEVNULL)


def python_image(engine: Engine, packages: tuple[str, ...] = ()) -> str:
    """The base image: Debian's Python, and the packages, on a small Debian."""
    name = f"mailboat/python:{debian_key(packages)}"
    with locked(cache_folder() / "python"):
        if not engine.has_image(name):
            say("making a small Debian with Python")
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                root = Path(folder) / "root"
                make_debian(root, packages)
                engine.import_image(root, name)
    return name


def debian_key(packages: tuple[str, ...]) -> str:
    """What a Debian with Python and these packages is called by: another text for each content."""
    return hashlib.sha256(repr((_DEBIAN, _include(packages), _NOT_NEEDED)).encode()).hexdigest()[:16]


def make_debian(root: Path, packages: tuple[str, ...]) -> None:
    """Fill a folder with a small Debian that has Python and these packages."""
    subprocess.run(["debootstrap", _include(packages), *_DEBIAN, str(root)], check=True, stdout=subprocess.DEVNULL)
    for path in _NOT_NEEDED:
        shutil.rmtree(root / path, ignore_errors=True)


def _include(packages: tuple[str, ...]) -> str:
    return f"--include={','.join((*_DEBIAN_PACKAGES, *packages))}"


def lock_content(lock: str) -> bytes:
    """A lock without its comments, which change with every dependency of the project, those of development too."""
    lines = (LOCKS / f"{lock}.txt").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#")).encode()


def wheelhouse(lock: str) -> Path:
    """A folder with the wheels of a lock, as pip of this machine finds them; their hashes are those of the lock."""
    requirements = LOCKS / f"{lock}.txt"
    folder = cache_folder() / "wheels" / f"{lock}-{hashlib.sha256(lock_content(lock)).hexdigest()[:16]}"
    with locked(folder):
        if not folder.exists():
            say(f"downloading the wheels of requirements/{lock}.txt")
            draft = Path(tempfile.mkdtemp(dir=folder.parent))
            options = ["--quiet", "--only-binary=:all:", f"--python-version={_DEBIAN_PYTHON}", "--no-deps"]
            pip = [_python_with_pip(), "-m", "pip", "download", *options, "--dest", str(draft)]
            subprocess.run([*pip, f"--no-binary={_SOURCES}", "--require-hashes", "-r", str(requirements)], check=True)
            if any(draft.glob(f"{_SOURCES}-*")):
                subprocess.run([*pip, "setuptools", "wheel"], check=True)  # what its build asks for
            draft.rename(folder)
    return folder


def _python_with_pip() -> str:
    own = ROOT / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _sources(recipe: Recipe) -> list[Path]:
    return [path for source in (recipe.dockerfile, *recipe.sources) for path in _files(ROOT / source)]


def _locks(recipe: Recipe) -> dict[str, bytes]:
    return {lock: lock_content(lock) for lock in recipe.locks}


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(item for item in path.rglob("*") if item.is_file() and "__pycache__" not in item.parts)


def _context(sources: list[Path], locks: dict[str, bytes], wheels: dict[str, Path]) -> io.BytesIO:
    """The build context as a tar archive, with fixed times and owners so that the engine finds its layers again."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as context:
        for source in sources:
            add_bytes(context, source.relative_to(ROOT).as_posix(), source.read_bytes())
        for lock, content in locks.items():
            add_bytes(context, f"requirements/{lock}.txt", content)
        for lock, folder in wheels.items():
            for wheel in sorted(folder.iterdir()):
                add_bytes(context, f"requirements/wheels/{lock}/{wheel.name}", wheel.read_bytes())
    buffer.seek(0)
    return buffer


def _build(engine: Engine, recipe: Recipe, name: str, arguments: dict[str, str], context: io.BytesIO) -> None:
    options = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    options += ["--target", recipe.target] if recipe.target else []
    command = ["docker", "build", "--quiet", "--file", recipe.dockerfile, "--tag", name, *options, "-"]
    environment = {**os.environ, **engine.environment}
    subprocess.run(command, input=context.getvalue(), env=environment, check=True, stdout=subprocess.DEVNULL)
