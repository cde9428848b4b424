"""What is to be had by importing, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorlightning as tl
from tensorlightning import _files, _library


def test_importing_it_does_not_import_tensorflow():
    program = "import sys, tensorlightning; tensorlightning.size(); print(sorted(sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(Path(tl.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "'tensorlightning'" in shown.stdout
    assert "'tensorflow'" not in shown.stdout and "'numpy'" not in shown.stdout


def test_everything_public_is_there_and_explained():
    for name in tl.__all__:
        assert getattr(tl, name).__doc__, name
        assert name in dir(tl)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Elastik'"):
        tl.Elastik  # noqa: B018


def test_a_library_that_is_not_there_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("TL_TF_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(ImportError, match=r"TL_TF_LIBRARY=.*none.so names no file"):
        _library.path()
    monkeypatch.delenv("TL_TF_LIBRARY")
    monkeypatch.setattr(_files, "PACKAGE", tmp_path)
    with pytest.raises(ImportError, match="make tf"):
        _library.path()


def test_a_library_that_does_not_fit_says_so(monkeypatch, tmp_path):
    (tmp_path / "broken.so").write_text("this is no library")
    monkeypatch.setenv("TL_TF_LIBRARY", str(tmp_path / "broken.so"))
    with pytest.raises(ImportError, match="make tf"):
        _library.load.__wrapped__()
