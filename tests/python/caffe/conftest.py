"""The driver that these tests load: $TL_CAFFE_DRIVER, or what Bazel builds now."""

from pathlib import Path

import caffe_stock
import pytest


@pytest.fixture(scope="session")
def built_driver() -> Path:
    return caffe_stock.driver()


@pytest.fixture
def driver(built_driver, no_settings_from_outside, monkeypatch) -> Path:
    """For this process, and those that it starts."""
    monkeypatch.setenv("TL_CAFFE_DRIVER", str(built_driver))
    return built_driver
