import pytest
from PIL import Image


@pytest.fixture(scope="module")
def shown(demo, binary, tmp_path_factory):
    """What a quick demo printed, and where its plot is."""
    plot = tmp_path_factory.mktemp("demo") / "out" / "demo.png"
    ran = demo("--quick", f"--binary={binary}", f"--plot={plot}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, plot


def test_table_has_densities_and_codes_with_their_costs(shown):
    printed, _ = shown
    for word in ("0.1%", "1.0%", "3.0%", "10.0%", "float32", "bfloat16", "8 bits", "4 bits"):
        assert word in printed
    for heading in ("size", "smaller", "GB/s", "of roof", "index bits", "entropy"):
        assert heading in printed
    assert printed.count("2 bits") == 4


def test_plot_is_an_image_of_some_size(shown):
    _, plot = shown
    with Image.open(plot) as image:
        assert image.format == "PNG"
        assert image.width >= 1000
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 20)) > 50


def test_demo_says_where_the_plot_is_and_what_was_shown(shown):
    printed, plot = shown
    assert f"The plot is in {plot}" in printed
    words = " ".join(printed.split())
    assert "add up to the gradient to the bit" in words
    assert "on Fashion-MNIST for 3 steps" in words


def test_missing_data_names_the_package(demo, binary, tmp_path):
    ran = demo(
        "--quick", f"--binary={binary}", f"--data={tmp_path}", f"--plot={tmp_path / 'p.png'}"
    )
    assert ran.returncode == 1
    assert "dataset-fashion-mnist" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_missing_binary_says_what_to_run(demo, tmp_path):
    ran = demo("--quick", f"--binary={tmp_path / 'nothing'}")
    assert ran.returncode == 1
    assert "run make demo-kernels" in ran.stderr


def test_help_explains_the_options(demo):
    ran = demo("--help")
    assert ran.returncode == 0
    for option in ("--quick", "--data", "--plot"):
        assert option in ran.stdout
