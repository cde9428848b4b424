"""examples/spark_caffe.py, as a user runs it: LeNet's own files, Spark on this machine."""

import os
import re
import subprocess
import sys

import caffe_stock
import tf_library
from tensorlightning.caffe import read_caffemodel

DEADLINE_S = 240


@caffe_stock.needed
def test_lenet_learns_in_spark(tmp_path):
    saved = tmp_path / "lenet.caffemodel"
    example = tf_library.ROOT / "examples/spark_caffe.py"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    ran = subprocess.run(
        [sys.executable, example, "--quick", f"--save={saved}"],
        env=clean
        | {
            "PYTHONPATH": str(tf_library.ROOT / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TL_CAFFE_DRIVER": str(caffe_stock.driver()),
            "TL_PROGRAMS": str(tf_library.aggregator().parent),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)%", ran.stdout)
    assert float(accuracy) > 40
    assert list(read_caffemodel(saved)) == ["conv1", "conv2", "ip1", "ip2"]
