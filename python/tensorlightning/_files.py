"""Libraries and programs of the package, as files that the system can load and run.

Installed, they are beside the modules. A wheel on the path (Spark's --py-files) is an archive that
Python imports from as it is, but nobody can load a library out of it: what is asked for is
unpacked, once per content, into a folder of this user's among the temporary ones.
"""

import functools
import hashlib
import os
import pkgutil
import stat
import tempfile
import zipimport
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def find(name: str) -> Path | None:
    """Where the package's file of this name is, as in "bin/tl-aggregator"; None if it has none."""
    beside = PACKAGE / name
    return beside if beside.is_file() else unpacked(name)


def archive() -> Path | None:
    """The archive that the package is imported from; None where it is installed."""
    loader = __spec__.loader
    return Path(loader.archive) if isinstance(loader, zipimport.zipimporter) else None


def keep(name: str, data: bytes) -> Path:
    """The data as a file of this name, that only this user can read, run and change.

    Whoever else does the same, at the same time or later, gets the same file; it stays.
    """
    folder = _own_folder() / hashlib.sha256(data).hexdigest()[:32]
    folder.mkdir(mode=0o700, exist_ok=True)
    wanted = folder / name
    if not wanted.is_file() or wanted.stat().st_size != len(data):
        # Aside first: another process may look at any time, and must find all of it or nothing.
        number, draft = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            Path(draft).chmod(0o700)
            Path(draft).replace(wanted)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    return wanted


@functools.cache
def unpacked(name: str) -> Path | None:
    """The same for what is in the archive; None where the package is installed."""
    if archive() is None:
        return None
    try:
        data = pkgutil.get_data(__package__, name)
    except OSError:
        return None
    return keep(Path(name).name, data)


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir()).resolve() / f"tensorlightning-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # Among the temporary files, anyone may have made it: we would run what they put there.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ImportError(
            f"{folder} is no folder that only this user can write to; remove it, or set TMPDIR"
        )
    return folder
