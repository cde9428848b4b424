"""Where rows are kept: on a disk that is full, in a process that is killed, in little memory."""

import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tensorlightning.spark import spill
from tensorlightning.spark.feeding import Feed

PACKAGE = Path(spill.__file__).parents[2]


def test_the_folder_is_the_one_that_spark_gives(monkeypatch, tmp_path):
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/missing,{tmp_path}")
    assert spill.default_folder() == str(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/missing")
    monkeypatch.setenv("LOCAL_DIRS", str(tmp_path))
    assert spill.default_folder() == str(tmp_path)
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    monkeypatch.setenv("LOCAL_DIRS", "")
    assert Path(spill.default_folder()).is_dir()


class Grudging(io.FileIO):
    def write(self, data) -> int:
        return super().write(data[:70])


def test_a_disk_that_takes_and_gives_little_at_a_time_is_asked_again(tmp_path, monkeypatch):
    read = os.preadv
    monkeypatch.setattr(spill, "WINDOW_BYTES", 10)
    monkeypatch.setattr(spill, "_nameless", lambda folder: Grudging(f"{folder}/file", "x+"))
    monkeypatch.setattr(os, "preadv", lambda file, into, at: read(file, [into[0][:50]], at))
    numbers = np.arange(1000)
    with Feed(iter([(numbers,)]), 100, shuffle=False, folder=str(tmp_path)) as feed:
        for number in range(2):
            assert np.concatenate([batch for [batch] in feed.epoch(number)]).tolist() == [*numbers]


def child(code: str) -> subprocess.Popen:
    setup = """
        import sys
        import numpy as np
        from tensorlightning.spark.feeding import Feed

        def pieces(count):
            for number in range(count):
                yield (np.full((1024, 1024), number % 251, np.uint8), np.full(1024, number))
        """
    text = textwrap.dedent(setup) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_full_disk_is_explained(tmp_path):
    code = f"""
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))
        feed = Feed(pieces(100), 64, folder={str(tmp_path)!r})
        try:
            for batch in feed.epoch(0):
                pass
        except OSError as error:
            print(type(error).__name__, error)
        """
    said, _ = child(code).communicate(timeout=60)
    assert said.startswith("OSError [Errno 27] the rows of this partition can't be spilled to"), (
        said
    )
    assert f"spilled to {tmp_path}: File too large, after 63 MiB." in said
    assert "spark.local.dir" in said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "WINDOW_BYTES", 10)
    with (
        Feed(iter([(np.zeros(10),)]), 1, folder=f"{tmp_path}/missing") as feed,
        pytest.raises(OSError, match=r"can't be spilled to .*/missing: No such file or directory"),
    ):
        list(feed.epoch(0))


def test_nothing_is_left_of_a_killed_process(tmp_path):
    code = f"""
        feed = Feed(pieces(120), 64, folder={str(tmp_path)!r})
        for number in range(10**6):
            for batch in feed.epoch(number):
                if number == 1:
                    print("spilled", flush=True)
        """
    process = child(code)
    assert process.stdout.readline() == "spilled\n"
    opened = [link.readlink() for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert len([file for file in opened if file.is_relative_to(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_partition(tmp_path):
    """Of 512 MiB of rows, less than 200 are in memory: mapped files would count, too."""
    code = f"""
        from pathlib import Path

        def most() -> int:
            [line] = [x for x in Path("/proc/self/status").open() if x.startswith("VmHWM")]
            return int(line.split()[1]) >> 10

        before = most()
        with Feed(pieces(512), 64, folder={str(tmp_path)!r}) as feed:
            for number in range(2):
                rows = sum(len(batch[0]) for batch in feed.epoch(number))
                assert rows == 512 * 1024, rows
                print(most() - before, flush=True)
        """
    said, _ = child(code).communicate(timeout=120)
    first, second = map(int, said.split())
    assert 64 < first < 200 and first <= second < 200
