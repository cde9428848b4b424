"""A venv with elephas in the user's cache, beside the project's own, which lends it TensorFlow."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "spark_peer_requirements.txt"
INSTALL_SECONDS = 600
# Written last: a venv without it was interrupted, and is made anew.
COMPLETE = ".complete"
CHECK = "import elephas.spark_model"


class PeerMissingError(Exception):
    """elephas can't be had here; says why."""


def python() -> Path:
    """The interpreter that has elephas."""
    lender = sysconfig.get_path("purelib")
    wanted = REQUIREMENTS.read_text() + sys.version + lender
    key = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    try:
        cache = _cache()
        with (cache / "venv-elephas.lock").open("w") as lock:
            # Two may want it at once: the second waits, and then finds it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _made(cache / f"venv-elephas-{key}", lender)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerMissingError(f"elephas can't be installed: {_reason(error)}") from error


def _made(folder: Path, lender: str) -> Path:
    interpreter = folder / "bin/python"
    if (folder / COMPLETE).exists():
        return interpreter
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    _run([interpreter, "-m", "pip", "install", "--no-deps", "-r", REQUIREMENTS])
    # Only now: pip must not see what is lent.
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "lent.pth").write_text(lender + "\n")
    _run([interpreter, "-c", CHECK])
    (folder / COMPLETE).touch()
    return interpreter


def _run(command: list[object]) -> None:
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    subprocess.run(
        [str(word) for word in command],
        env=os.environ | quiet,
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
    )


def _cache() -> Path:
    """As tools/setup.sh has it."""
    above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(above) / "tensorlightning"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _reason(error: Exception) -> str:
    said = (getattr(error, "stderr", None) or "").strip()
    return said.splitlines()[-1] if said else str(error)
