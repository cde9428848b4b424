"""tools/setup.sh on copies of the few files that it reads, with a cache of their own."""

import os
import re
import shutil
import subprocess
import time

import pytest

# pip is replaced: what is tested is when setup calls it, not what pip does.
FAKE_PIP = """
import pathlib, sys
with open(pathlib.Path(sys.prefix).parent / "installs", "a") as log:
    log.write("install\\n")
sys.exit(1 if (pathlib.Path(sys.prefix).parent / "broken").exists() else 0)
"""


@pytest.fixture
def clone(root, tmp_path):
    """Makes clones which share one cache."""

    def make(name="clone"):
        folder = tmp_path / name
        (folder / "tools").mkdir(parents=True)
        for file in ("tools/setup.sh", "packages.txt", "requirements.txt"):
            shutil.copy(root / file, folder / file)
        script = folder / "tools/setup.sh"
        fake = tmp_path / "pip.py"
        fake.write_text(FAKE_PIP)
        text = script.read_text().replace("-m pip", f"'{fake}'")
        script.write_text(text.replace("-m venv", "-m venv --without-pip"))
        return folder

    return make


def start(folder, **environment):
    return subprocess.Popen(
        ["tools/setup.sh"],
        cwd=folder,
        env=os.environ | {"XDG_CACHE_HOME": str(folder.parent / "cache")} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def setup(folder, **environment):
    process = start(folder, **environment)
    output = process.communicate()[0]
    return process.returncode, output


def installs(folder):
    log = folder.parent / "cache/tensorlightning/installs"
    return log.read_text().count("install") if log.exists() else 0


def test_the_second_time_does_nothing_and_is_quick(clone):
    folder = clone()
    assert setup(folder)[0] == 0
    link, bazelrc = (folder / ".venv").readlink(), (folder / "user.bazelrc").stat().st_mtime_ns
    begin = time.monotonic()
    status, output = setup(folder)
    assert time.monotonic() - begin < 2
    assert status == 0
    assert re.findall(r"^setup (\d)/", output, re.MULTILINE) == ["1"]
    assert installs(folder) == 1
    assert (folder / ".venv").readlink() == link
    assert (folder / "user.bazelrc").stat().st_mtime_ns == bazelrc


def test_a_second_clone_reuses_the_venv(clone):
    first, second = clone("first"), clone("second")
    assert setup(first)[0] == setup(second)[0] == 0
    assert installs(first) == 1
    assert (first / ".venv").readlink() == (second / ".venv").readlink()


def test_other_requirements_get_another_venv(clone):
    first, second = clone("first"), clone("second")
    with (second / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert setup(first)[0] == setup(second)[0] == 0
    assert (first / ".venv").readlink() != (second / ".venv").readlink()


def test_two_clones_at_once_install_once(clone):
    clones = [clone(name) for name in ("first", "second", "third")]
    processes = [start(folder) for folder in clones]
    assert [process.communicate() and process.returncode for process in processes] == [0, 0, 0]
    assert installs(clones[0]) == 1


def test_an_interrupted_install_is_redone(clone):
    folder = clone()
    broken = folder.parent / "cache/tensorlightning/broken"
    broken.parent.mkdir(parents=True)
    broken.touch()
    assert setup(folder)[0] != 0
    assert not (folder / ".venv").exists()
    broken.unlink()
    assert setup(folder)[0] == 0
    assert installs(folder) == 2


def test_bazel_is_told_the_venv_itself_so_that_it_notices_another(clone):
    folder = clone()
    assert setup(folder)[0] == 0
    settings = (folder / "user.bazelrc").read_text()
    told = re.findall(r"^common --repo_env=TF_PYTHON=(.+)$", settings, re.MULTILINE)
    assert told == [str((folder / ".venv").readlink() / "bin/python")]
    with (folder / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert setup(folder)[0] == 0
    assert told[0] not in (folder / "user.bazelrc").read_text()


def test_every_requirement_is_pinned(root):
    lines = (root / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines if line[:1] != "#")
