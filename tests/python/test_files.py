"""Libraries and programs of a package in an archive, as a wheel of Spark's --py-files is."""

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tensorlightning import _files

DEADLINE_S = 120
PROGRAM = b"#!/bin/sh\necho it runs\n" + b"# long, so that writing it takes a while\n" * 100_000
FIND = """
from tensorlightning.launch.programs import find_program
print(find_program("tl-aggregator"))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """The package's modules, and a program, in one file."""
    made = tmp_path_factory.mktemp("archive") / "tensorlightning-1.whl"
    package = Path(_files.__file__).parent
    with zipfile.ZipFile(made, "w") as whole:
        for module in package.rglob("*.py"):
            whole.write(module, module.relative_to(package.parent))
        whole.writestr("tensorlightning/bin/tl-aggregator", PROGRAM)
    return made


@pytest.fixture
def temporary(tmp_path) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    return made


def start(archive: Path, temporary: Path, program: str = FIND) -> subprocess.Popen:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TL_")}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=kept | {"PYTHONPATH": str(archive), "TMPDIR": str(temporary)},
        cwd=temporary,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def succeed(process: subprocess.Popen) -> str:
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    return output.strip()


def test_a_program_in_an_archive_is_unpacked_for_this_user_alone(archive, temporary):
    found = Path(succeed(start(archive, temporary)))
    assert found.is_relative_to(temporary)
    assert found.read_bytes() == PROGRAM
    ran = subprocess.run([found], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.stdout == "it runs\n"
    for path in (found, *found.parents[:2]):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_several_at_once_find_one_whole_file(archive, temporary):
    processes = [start(archive, temporary) for _ in range(4)]
    (found,) = {succeed(process) for process in processes}
    assert Path(found).read_bytes() == PROGRAM
    assert [path.name for path in Path(found).parent.iterdir()] == ["tl-aggregator"]


def test_a_second_time_unpacks_nothing(archive, temporary):
    first = Path(succeed(start(archive, temporary)))
    before = first.stat()
    assert Path(succeed(start(archive, temporary))) == first
    assert first.stat().st_ino == before.st_ino


def test_an_archive_may_be_on_the_path_as_spark_puts_it_there(archive, temporary):
    name = f"./{archive.name}"
    (temporary / name).symlink_to(archive)
    process = start(temporary, temporary, f"import sys; sys.path.insert(0, {name!r}){FIND}")
    assert Path(succeed(process)).read_bytes() == PROGRAM


def test_another_content_is_another_file(monkeypatch, temporary):
    monkeypatch.setattr(_files.tempfile, "tempdir", str(temporary))
    one, other = _files.keep("name", b"one"), _files.keep("name", b"another")
    assert (one.name, one.read_bytes()) == ("name", b"one")
    assert (other.name, other.read_bytes()) == ("name", b"another")


def test_what_was_cut_short_is_written_anew(monkeypatch, temporary):
    monkeypatch.setattr(_files.tempfile, "tempdir", str(temporary))
    kept = _files.keep("name", b"the whole of it")
    kept.write_bytes(b"the wh")
    assert _files.keep("name", b"the whole of it").read_bytes() == b"the whole of it"


def test_a_folder_that_others_can_write_to_is_refused(archive, temporary):
    (temporary / f"tensorlightning-{os.getuid()}").mkdir()
    (temporary / f"tensorlightning-{os.getuid()}").chmod(0o777)
    process = start(archive, temporary)
    assert "only this user can write to; remove it, or set TMPDIR" in process.communicate()[1]
    assert process.returncode == 1


def test_a_link_to_another_folder_is_refused(archive, temporary, tmp_path):
    (temporary / f"tensorlightning-{os.getuid()}").symlink_to(tmp_path)
    process = start(archive, temporary)
    assert "only this user can write to" in process.communicate()[1]
    assert process.returncode == 1


def test_what_is_not_in_the_archive_is_told_as_everywhere(archive, temporary):
    process = start(archive, temporary, "from tensorlightning import _library; _library.path()")
    assert "TensorLightning's ops are not built" in process.communicate()[1]
    assert list(temporary.iterdir()) == []


def test_installed_files_are_used_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "PACKAGE", tmp_path)
    assert _files.archive() is None
    assert _files.find("library.so") is None
    (tmp_path / "library.so").touch()
    assert _files.find("library.so") == tmp_path / "library.so"
