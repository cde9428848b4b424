import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def bench():
    """Runs bench/kernels.py, and gives its status and output."""

    def runner(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "bench/kernels.py", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    return runner


@pytest.fixture(scope="session")
def binary() -> Path:
    build = ["bazel", "build", "-c", "opt", "--noshow_progress", "//bench:kernels"]
    subprocess.run(build, cwd=ROOT, check=True)
    return (ROOT / ".bazel/bin/bench/kernels").resolve()


@pytest.fixture(scope="session")
def quick(bench, binary, tmp_path_factory):
    """A quick run: what it printed, and the JSON it wrote."""
    path = tmp_path_factory.mktemp("bench") / "new folder" / "kernels.json"
    ran = bench("--quick", f"--binary={binary}", f"--json={path}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(path.read_text())
