"""The golden frames are what make.py writes, and nothing else is there."""

import importlib.util
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_golden_frames_are_what_make_writes():
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    written = {kind: make.text_of(kind, says, data) for kind, (says, data) in make.frames().items()}
    assert set(written) == set(make.TYPES)
    assert {file.stem: file.read_text() for file in HERE.glob("*.hex")} == written
