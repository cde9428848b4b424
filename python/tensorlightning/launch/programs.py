"""Where the project's own programs are: in a wheel, in a clone, or where the user says."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tensorlightning import _files
from tensorlightning._files import PACKAGE


class ProgramMissingError(LookupError):
    """A program is nowhere to be found; the text says what to do."""


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """$TL_PROGRAMS, else the wheel's own, else the clone's bin/ (make tools), else PATH."""
    given = environment.get("TL_PROGRAMS")
    folders = [Path(given)] if given else []
    folders += [PACKAGE / "bin", PACKAGE.parent.parent / "bin"]
    for folder in folders:
        if os.access(folder / name, os.X_OK) and (folder / name).is_file():
            return (folder / name).absolute()
    if archived := _files.unpacked(f"bin/{name}"):
        return archived
    if found := shutil.which(name, path=environment.get("PATH")):
        return Path(found).absolute()
    raise ProgramMissingError(
        f"{name} is neither in {' nor in '.join(map(str, folders))} nor on PATH; "
        "in a clone, `make tools` builds it; elsewhere, set TL_PROGRAMS to its folder"
    )


def package_root() -> Path | None:
    """What must be on PYTHONPATH to import this package; None where it is installed."""
    root = PACKAGE.parent
    return None if root.name in ("site-packages", "dist-packages") else root
