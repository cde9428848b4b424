"""The wheel, installed into a venv of its own, far from the clone.

TensorFlow, numpy and rich are not installed there again (250 MB): a .pth file lends those of the
venv that runs the tests. What is tested is what the wheel brings; that pip would get its
dependencies is not.
"""

import os
import re
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 300

TRAIN = """
import json, sys
import keras, numpy as np
import tensorlightning as tl

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((8, 4), "float32")
before = model.get_weights()[0].copy()
model.fit(x, x[:, :1], batch_size=8, epochs=1, verbose=0, callbacks=[tl.Elastic()])
assert not np.allclose(model.get_weights()[0], before)
print(json.dumps({"file": tl.__file__, "rank": tl.rank(), "size": tl.size()}))
"""


def run(*command, cwd: Path, **variables) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TL_", "PYTHON", "VIRTUAL"))}
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=clean | {"TF_CPP_MIN_LOG_LEVEL": "2"} | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def succeed(*command, cwd: Path, **variables) -> str:
    ran = run(*command, cwd=cwd, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of a venv with the wheel, and with a .pth to the tests' TensorFlow."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps"]
    succeed(*pip, "--disable-pip-version-check", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_it_is_for_this_platform_and_any_python_3(wheel):
    version = re.search(r'^__version__ = "(.+)"', _package("__init__.py"), re.MULTILINE)[1]
    assert wheel.name == f"tensorlightning-{version}-py3-none-linux_x86_64.whl"


def _package(name: str) -> str:
    return (ROOT / "python/tensorlightning" / name).read_text()


def test_it_holds_the_package_the_ops_the_aggregator_and_the_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    for name in ("py.typed", "_ops.pyi", "libtensorlightning_tf.so", "bin/tl-aggregator"):
        assert f"tensorlightning/{name}" in names
    sources = (ROOT / "python/tensorlightning").rglob("*.py")
    assert {str(s.relative_to(ROOT / "python")) for s in sources} <= set(names)
    assert {n.split("/")[0].split("-")[0] for n in names} == {"tensorlightning"}
    assert "Requires-Dist: numpy" in told
    assert "Requires-Dist: rich" in told


def test_its_extras_name_the_tensorflow_that_it_is_built_for(wheel):
    pinned = (ROOT / "requirements.txt").read_text()
    minor = re.search(r"^tensorflow_cpu==(\d+\.\d+)", pinned, re.MULTILINE)[1]
    with zipfile.ZipFile(wheel) as archive:
        told = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    for name in ("tensorflow", "tensorflow-cpu"):
        assert re.search(rf"^Requires-Dist: {name} ?==?{re.escape(minor)}\.\*", told, re.MULTILINE)


def test_its_extra_for_spark_takes_those_that_are_tested(wheel):
    with zipfile.ZipFile(wheel) as archive:
        told = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    allowed = re.search(r"^Requires-Dist: pyspark ?\(?([<>=.,\d]+)", told, re.MULTILINE)[1]
    assert sorted(allowed.split(",")) == ["<5", ">=3.5"]
    for name in ("requirements.txt", "requirements-spark4.txt"):
        assert re.search(r"^pyspark==(3\.5|4)\.", (ROOT / name).read_text(), re.MULTILINE)


def test_installed_outside_of_the_clone_it_trains_a_step(installed, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    told = succeed(installed / "python", "train.py", cwd=tmp_path)
    assert str(installed.parent) in told
    assert '"size": 1' in told


def test_its_tlrun_starts_workers_and_its_own_aggregator(installed, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    tlrun = [installed / "tlrun", "-np", "2", installed / "python", "train.py"]
    # Nothing but the system on PATH: what it starts is its own.
    told = succeed(*tlrun, cwd=tmp_path, PATH="/usr/bin:/bin")
    assert sorted(re.findall(r'"rank": (\d), "size": 2', told)) == ["0", "1"]


def test_without_tensorflow_it_says_what_to_install(installed, tmp_path):
    ran = run(
        *(installed / "python", "-c"),
        "import sys; sys.modules['tensorflow'] = None; "
        "import tensorlightning._library as library; library.load()",
        cwd=tmp_path,
    )
    assert ran.returncode == 1
    assert "TensorLightning needs TensorFlow 2.21: pip install tensorflow-cpu==2.21.*" in ran.stderr


def test_with_another_tensorflow_it_names_both(installed, tmp_path):
    other = tmp_path / "tensorflow"
    other.mkdir()
    (other / "__init__.py").write_text('__version__ = "2.99.1"\n')
    ran = run(
        *(installed / "python", "-c", "import tensorlightning._library as l; l.load()"),
        cwd=tmp_path,
    )
    assert ran.returncode == 1
    assert "was built for TensorFlow 2.21.0, and here is 2.99.1" in ran.stderr
