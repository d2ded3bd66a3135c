"""The wheel that is built from this checkout, and the files that belong in it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

NOT_INSTALLED = {"tests", "benchmarks", "servers"}
_LEFT_BEHIND = {"__pycache__", "build", "dist", "run"}


def project_files() -> list[PurePosixPath]:
    """Return the files of the working directory's project: as git lists them, or else all files that are not by-products."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    asked = subprocess.run(command, capture_output=True, check=False) if Path(".git").exists() else None
    if asked is not None and asked.returncode == 0:
        names = [PurePosixPath(name.decode()) for name in asked.stdout.split(b"\0") if name]
    else:
        names = [PurePosixPath(each.relative_to(Path())) for each in Path().rglob("*") if not each.is_dir() or each.is_symlink()]
        names = [each for each in names if not any(_is_left_behind(part) for part in each.parts)]
    return [each for each in names if Path(each).is_file() or Path(each).is_symlink()]


def packages_of(files: Collection[PurePosixPath]) -> set[str]:
    """Return the top-level packages of the service."""
    return {each.parts[0] for each in files if each.parts[1:] == ("__init__.py",)} - NOT_INSTALLED


def runtime_files() -> set[str]:
    """Return the files that a wheel must hold besides its description: all modules and data in the packages."""
    files = project_files()
    packages = packages_of(files)
    linked = {f"notification_service/{each}" for each in files if each.parts[0] == "conf"}
    return linked | {str(each) for each in files if each.parts[0] in packages and not Path(each).is_symlink()}


def copy_project(to: Path) -> None:
    for each in project_files():
        (to / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(each, to / each, follow_symlinks=False)


def let_in(directory: Path, ignore_file: Path) -> list[PurePosixPath]:
    """Return the files of a directory that a `.dockerignore` lets into the build context. Of the patterns that
    match a file or a folder of it, the last one counts.
    """
    lines = ignore_file.read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    files = [
        PurePosixPath(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir() or each.is_symlink()
    ]
    return [each for each in files if _is_let_in(each, patterns)]


def build_wheel(source: Path, to: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--use-pep517", "--wheel-dir", str(to), str(source)]
    subprocess.run(command, check=True)
    return the_wheel_in(to)


def the_wheel_in(directory: Path) -> Path:
    (wheel,) = directory.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of the packages in the wheel: all except its description and its record."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def description(wheel: Path) -> set[str]:
    """Return the names in the `dist-info` of the wheel."""
    with ZipFile(wheel) as archive:
        return {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}


def _is_left_behind(part: str) -> bool:
    return part.startswith(".") or part.endswith(".egg-info") or part in _LEFT_BEHIND


def _is_let_in(file: PurePosixPath, patterns: Sequence[str]) -> bool:
    is_in = True
    for pattern in patterns:
        if any(_matches(str(each), pattern.removeprefix("!")) for each in (file, *file.parents)):
            is_in = pattern.startswith("!")
    return is_in


def _matches(name: str, pattern: str) -> bool:
    parts = re.split(r"(\*\*/|\*)", pattern)
    return re.fullmatch("".join({"**/": "(.*/)?", "*": "[^/]*"}.get(each, re.escape(each)) for each in parts), name) is not None
