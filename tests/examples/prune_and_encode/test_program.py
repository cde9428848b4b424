import json

import numpy as np
import pytest

DENSITIES = [0.001, 0.01, 0.03, 0.1]
CODES = ["float32", "bfloat16", "8 bits", "4 bits", "2 bits"]
ENTRIES = 200_003


@pytest.fixture(scope="module")
def result(program, tmp_path_factory):
    values = np.random.default_rng(3).standard_normal(ENTRIES, dtype=np.float32)
    file = tmp_path_factory.mktemp("gradient") / "normal.f32"
    values.tofile(file)
    ran = program(file)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_every_density_and_code_has_a_row(result):
    rows = [(row["density"], row["code"]) for row in result["rows"]]
    assert rows == [(density, code) for density in DENSITIES for code in CODES]


def test_round_trip_is_exact(result):
    assert result["round_trip"] == "exact"
    assert result["entries"] == ENTRIES
    assert result["dense_bytes"] == 4 * ENTRIES


def test_bits_of_a_row_add_up_to_its_bytes(result):
    for row in result["rows"]:
        bits = row["value_bits"] + row["scale_bits"] + row["index_bits"]
        assert bits * row["kept"] / 8 == pytest.approx(row["bytes"], rel=1e-3)
        assert row["times_smaller"] == pytest.approx(4 * ENTRIES / row["bytes"], rel=1e-2)


def test_speeds_and_roofs_are_positive(result):
    for row in result["rows"]:
        assert row["gb_per_s"] > 0
        assert row["roof_gb_per_s"] > 0
        assert row["share_of_roof"] > 0


def test_more_entries_leave_less_behind(result):
    for code in CODES:
        errors = [row["error"] for row in result["rows"] if row["code"] == code]
        assert errors == sorted(errors, reverse=True)
        assert 0 < errors[-1] < errors[0] < 1


@pytest.mark.parametrize(
    "values", [np.zeros(5000), np.full(5000, -0.0), np.ones(1), np.full(9000, 1e-42)]
)
def test_odd_but_finite_input_is_compressed_exactly(program, tmp_path, values):
    file = tmp_path / "odd.f32"
    values.astype(np.float32).tofile(file)
    ran = program(file)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["round_trip"] == "exact"


def refused(ran) -> str:
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.startswith("prune_and_encode: ")
    return ran.stderr


def test_missing_file_is_an_error(program, tmp_path):
    assert "No such file" in refused(program(tmp_path / "nothing"))


def test_folder_is_an_error(program, tmp_path):
    assert "Is a directory" in refused(program(tmp_path))


@pytest.mark.parametrize("count", [0, 1, 4095])
def test_file_of_broken_size_is_an_error(program, tmp_path, count):
    file = tmp_path / "broken"
    file.write_bytes(bytes(count))
    assert f"has {count} bytes, which is no array" in refused(program(file))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_are_errors_that_say_where(program, tmp_path, value):
    values = np.ones(10_000, np.float32)
    values[[4321, 5000]] = value
    values.tofile(tmp_path / "bad.f32")
    said = refused(program(tmp_path / "bad.f32"))
    assert "2 values of the gradient" in said
    assert "4321" in said


def test_no_argument_gives_the_usage_as_an_error(program):
    assert "usage: prune_and_encode FILE" in refused(program())


def test_help_is_no_error(program):
    ran = program("--help")
    assert ran.returncode == 0
    assert ran.stdout.startswith("usage: prune_and_encode FILE")
