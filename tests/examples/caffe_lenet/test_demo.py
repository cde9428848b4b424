"""The LeNet example and its demo, at small size, with the stock Caffe."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import caffe_stock
import pytest
from PIL import Image

pytestmark = caffe_stock.needed
EXAMPLE = caffe_stock.ROOT / "examples/caffe_lenet"


def demo(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(EXAMPLE / "demo.py"), *map(str, arguments)]
    environment = caffe_stock.environment()
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    plot = tmp_path_factory.mktemp("demo") / "demo.png"
    ran = demo("--quick", f"--plot={plot}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, plot


def row(printed: str, name: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.strip().startswith(f"{name}  ")]
    return line.strip().removeprefix(name).split()


def test_one_line_makes_the_difference():
    plain, ours = (
        (EXAMPLE / name).read_text().splitlines()
        for name in ("solver_plain.prototxt", "solver.prototxt")
    )
    changed = [line for line in difflib.ndiff(plain, ours) if line[0] != " "]
    assert changed == ["+ tensorlightning_param { }"]


def test_table_has_accuracy_time_and_bytes_of_all(shown):
    printed, _ = shown
    assert row(printed, "one worker")[0].endswith("%")
    *_, dense = row(printed, "2 workers, dense averaging")
    for name in ("2 workers, TensorLightning", "4 workers, TensorLightning"):
        *_, ours, fewer = row(printed, name)
        assert 0 < float(ours) < float(dense)
        assert float(fewer) == pytest.approx(float(dense) / float(ours), abs=1)


def test_commands_and_the_line_are_shown(shown):
    printed, _ = shown
    assert "$ tlrun -np 4 caffe train --solver=solver.prototxt" in printed
    assert "tensorlightning_param { }" in printed


def test_plot_is_an_image_of_some_size(shown):
    with Image.open(shown[1]) as image:
        assert image.format == "PNG"
        assert image.width >= 1000


def test_what_it_trained_is_a_model_for_stock_caffe(shown):
    """`caffe test`, without the plugin, classifies as well as the training said."""
    (model,) = Path(EXAMPLE / "out").glob("lenet_iter_20.caffemodel")  # Four workers', 20 steps.
    command = [caffe_stock.program(), "test", "--model=net.prototxt", f"--weights={model}"]
    environment = caffe_stock.environment()
    del environment["TL_CAFFE_PLUGIN"]
    ran = subprocess.run(
        [*command, "--iterations=100"],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    # The last line of its kind is the mean of all batches.
    accuracy = float(re.findall(r"accuracy = ([\d.e-]+)", ran.stderr)[-1])
    assert f"accuracy {accuracy:.2%}" in shown[0]


def test_without_caffe_it_says_what_to_run():
    code = f"import sys; sys.argv = ['demo']; sys.path.insert(0, {str(EXAMPLE)!r}); import demo; "
    code += "from pathlib import Path; demo.CAFFE = Path('/nowhere'); sys.exit(demo.main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "run make demo-caffe" in ran.stderr
