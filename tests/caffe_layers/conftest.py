"""Stock Caffe for the tests of its layers; without it they are skipped."""

import caffe_stock
import pytest
from caffe_layers.stock import Caffe


@pytest.fixture
def caffe(tmp_path):
    if not caffe_stock.PREFIX.exists():
        pytest.skip("there is no Caffe here: make setup says why")
    started = []

    def start(net: str, name: str = "job", **options) -> Caffe:
        started.append(Caffe(tmp_path / name, net, **options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
