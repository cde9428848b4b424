"""The demo at small size, with everything that a person sees of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent.parent.parent
DEMO = "examples/fashion_mnist_demo/demo.py"


def demo(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, DEMO, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built():
    """The environment in which everything is found that was built without -c opt."""
    targets = ["//tf_ops:libtensorlightning_tf.so", "//comm/tools:tl-aggregator"]
    subprocess.run(["bazel", "build", "--noshow_progress", *targets], cwd=ROOT, check=True)
    where = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    folder = Path(where.stdout.strip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TL_TF_LIBRARY", str(folder / "tf_ops/libtensorlightning_tf.so"))
        patch.setenv("TL_PROGRAMS", str(folder / "comm/tools"))
        yield


@pytest.fixture(scope="module")
def shown(built, tmp_path_factory):
    """What a quick demo printed, and where its plot is."""
    plot = tmp_path_factory.mktemp("demo") / "out" / "demo.png"
    ran = demo("--quick", f"--plot={plot}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, plot


def row(printed: str, name: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.strip().startswith(f"{name}  ")]
    return line.strip().removeprefix(name).split()


def test_table_has_accuracy_time_and_bytes_of_all_three(shown):
    printed, _ = shown
    accuracy, *_ = row(printed, "one worker")
    assert accuracy.endswith("%")
    *_, dense = row(printed, "2 workers, dense averaging")
    *_, ours, fewer = row(printed, "2 workers, TensorLightning")
    assert 0 < float(ours) < float(dense)
    assert float(fewer) == pytest.approx(float(dense) / float(ours), rel=0.2)


def test_commands_that_a_person_would_type_are_shown(shown):
    printed, _ = shown
    for command in ("-np 1 python", "-np 2 --policy dense python", "-np 2 python"):
        assert f"$ tlrun {command} train.py" in printed
    assert "callbacks=[tl.Elastic()]" in printed


def test_plot_is_an_image_of_some_size(shown):
    printed, plot = shown
    assert f"The plot is in {plot}" in printed
    with Image.open(plot) as image:
        assert image.format == "PNG"
        assert image.width >= 1000
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 20)) > 50


def test_missing_ops_say_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TL_TF_LIBRARY", str(tmp_path / "nothing.so"))
    ran = demo("--quick", f"--plot={tmp_path / 'p.png'}")
    assert ran.returncode == 1
    assert "run make demo" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_plot_must_be_a_picture(tmp_path):
    ran = demo("--quick", f"--plot={tmp_path / 'p.txt'}")
    assert ran.returncode == 1
    assert "must end in .png" in ran.stderr
