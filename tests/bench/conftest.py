import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))


@dataclass(frozen=True)
class Reported:
    """What a quick run has printed, and the JSON that it wrote."""

    printed: str
    results: dict


def run(script: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, f"bench/{script}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def build(*targets: str, flags: Sequence[str] = ()) -> Path:
    """Has Bazel build something, and says where it is."""
    subprocess.run(["bazel", "build", "--noshow_progress", *flags, *targets], cwd=ROOT, check=True)
    # Not .bazel/bin: that follows whatever was built last, by anyone.
    where = ["bazel", "info", *flags, "bazel-bin"]
    shown = subprocess.run(where, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Path(shown.stdout.strip())


def quick(script: str, path: Path, *arguments: str) -> Reported:
    ran = run(script, "--quick", f"--json={path}", *arguments)
    assert ran.returncode == 0, ran.stderr
    return Reported(ran.stdout, json.loads(path.read_text()))


@pytest.fixture(scope="session")
def bench() -> Callable[..., subprocess.CompletedProcess]:
    """Runs a script of bench/, and gives its status and output."""
    return run


@pytest.fixture
def broken(tmp_path) -> Path:
    """The program bench/comm, or any other, that fails."""
    program = tmp_path / "bench/comm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def fails(bench, tmp_path) -> Callable[..., str]:
    """Runs a script of bench/ that has to end with 1 and without results; what it says."""

    def failing(script: str, *arguments: str) -> str:
        results = tmp_path / "no.json"
        ran = bench(script, *arguments, f"--json={results}")
        assert ran.returncode == 1
        assert "Traceback" not in ran.stderr
        assert not results.exists()
        return ran.stderr

    return failing


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> Reported:
    folder = build("//bench:kernels", flags=["-c", "opt"])
    path = tmp_path_factory.mktemp("bench") / "new folder" / "kernels.json"
    return quick("kernels.py", path, f"--binary={folder / 'bench/kernels'}")


@pytest.fixture(scope="session")
def comm_programs() -> Path:
    """Without -c opt: that everything works is seen as well without compiling it all again."""
    return build("//bench:comm", "//comm/tools:tl-aggregator", "//comm/tools:tl-load")


@pytest.fixture(scope="session")
def comm(tmp_path_factory, comm_programs) -> Reported:
    path = tmp_path_factory.mktemp("bench") / "comm.json"
    return quick("comm.py", path, f"--bin={comm_programs}")
