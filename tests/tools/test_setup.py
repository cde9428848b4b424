"""tools/setup.sh on copies of the few files that it reads, with a cache of their own."""

import os
import re
import shutil
import subprocess
import time

import pytest

LISTS = ["requirements.txt", "requirements-spark4.txt"]

# pip is replaced: what is tested is when setup calls it, not what pip does.
FAKE_PIP = """
import pathlib, sys
with open(pathlib.Path(sys.prefix).parent / "installs", "a") as log:
    log.write(f"{sys.argv[-1]}\\n")
sys.exit(1 if (pathlib.Path(sys.prefix).parent / "broken").exists() else 0)
"""

# And so is what installs Caffe: it does what the file "caffe" beside its prefix says.
FAKE_CAFFE = """#!/bin/bash
status=$(cat "$(dirname "$1")/caffe" 2>/dev/null || echo 0)
((status == 0)) || exit "$status"
mkdir -p "$1" && touch "$1/.complete"
"""


@pytest.fixture
def clone(root, tmp_path):
    """Makes clones which share one cache."""

    def make(name="clone"):
        folder = tmp_path / name
        (folder / "tools/caffe").mkdir(parents=True)
        installer = folder / "tools/caffe/install.sh"
        installer.write_text(FAKE_CAFFE)
        installer.chmod(0o755)
        for file in ("tools/setup.sh", "packages.txt", *LISTS):
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
        env={k: v for k, v in os.environ.items() if k != "CAFFE_ROOT"}
        | {"XDG_CACHE_HOME": str(folder.parent / "cache")}
        | environment,
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
    return log.read_text().split() if log.exists() else []


def test_the_second_time_does_nothing_and_is_quick(clone):
    folder = clone()
    assert setup(folder)[0] == 0
    link, bazelrc = (folder / ".venv").readlink(), (folder / "user.bazelrc").stat().st_mtime_ns
    begin = time.monotonic()
    status, output = setup(folder)
    assert time.monotonic() - begin < 2
    assert status == 0
    assert re.findall(r"^setup (\d)/", output, re.MULTILINE) == ["1"]
    assert installs(folder) == LISTS
    assert (folder / ".venv").readlink() == link
    assert (folder / "user.bazelrc").stat().st_mtime_ns == bazelrc


def test_a_second_clone_reuses_the_venv(clone):
    first, second = clone("first"), clone("second")
    assert setup(first)[0] == setup(second)[0] == 0
    assert installs(first) == LISTS
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
    assert installs(clones[0]) == LISTS


def test_an_interrupted_install_is_redone(clone):
    folder = clone()
    broken = folder.parent / "cache/tensorlightning/broken"
    broken.parent.mkdir(parents=True)
    broken.touch()
    assert setup(folder)[0] != 0
    assert not (folder / ".venv").exists()
    broken.unlink()
    assert setup(folder)[0] == 0
    assert installs(folder) == LISTS[:1] + LISTS


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


def caffe_of(folder) -> str:
    settings = (folder / "user.bazelrc").read_text()
    return re.search(r"^common --repo_env=CAFFE_ROOT=(.*)$", settings, re.MULTILINE)[1]


def test_caffe_is_installed_once_and_bazel_told_where(clone):
    first, second = clone("first"), clone("second")
    status, output = setup(first)
    assert status == 0
    assert "Caffe, as Debian built it" in output
    assert caffe_of(first) == str((first / ".caffe").readlink())
    status, output = setup(second)
    assert status == 0
    assert "Caffe, as Debian built it" not in output
    assert caffe_of(second) == caffe_of(first)


def test_a_caffe_that_cannot_be_had_is_done_without(clone):
    folder = clone()
    assert setup(folder)[0] == 0
    (folder / "tools/caffe/install.sh").write_text(FAKE_CAFFE + "# another\n")
    told = folder.parent / "cache/tensorlightning/caffe"
    told.write_text("75")
    status, output = setup(folder)
    assert status == 0
    assert "goes on without Caffe" in output
    assert not (folder / ".caffe").exists()
    assert caffe_of(folder) == ""
    told.write_text("0")
    assert setup(folder)[0] == 0
    assert caffe_of(folder) == str((folder / ".caffe").readlink())


def test_an_installation_of_caffe_that_fails_is_an_error(clone):
    folder = clone()
    cache = folder.parent / "cache/tensorlightning"
    cache.mkdir(parents=True)
    (cache / "caffe").write_text("1")
    status, output = setup(folder)
    assert status != 0
    assert "Caffe could not be installed" in output


def test_a_caffe_of_ones_own_is_used(clone, tmp_path):
    folder, own = clone(), tmp_path / "own"
    own.mkdir()
    assert setup(folder, CAFFE_ROOT=str(own))[0] == 0
    assert caffe_of(folder) == str(own) == str((folder / ".caffe").readlink())
    status, output = setup(folder, CAFFE_ROOT=str(tmp_path / "none"))
    assert status != 0
    assert "is no folder" in output


def test_the_second_venv_borrows_from_the_first_and_follows_it(clone):
    folder = clone()
    assert setup(folder)[0] == 0
    first, second = (folder / ".venv").readlink(), (folder / ".venv-spark4").readlink()
    (lent,) = second.glob("lib/python*/site-packages/lent.pth")
    assert lent.read_text() == f"{first}/lib/python3.11/site-packages\n"
    with (folder / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert setup(folder)[0] == 0
    assert (folder / ".venv").readlink() != first
    assert (folder / ".venv-spark4").readlink() != second


@pytest.mark.parametrize("file", LISTS)
def test_every_requirement_is_pinned(root, file):
    lines = (root / file).read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines if line[:1] != "#")
