"""That the benchmark of the kernels measures, and says what it can't."""


def test_json_has_the_times_and_rates(kernels):
    results = kernels.results
    for name in results["ratios"]:
        assert results["ms"][name] > 0
        assert results["roof_ms"][name] > 0
        assert results["rates"][name].endswith(("GB/s", "M entries/s"))


def test_json_says_what_was_measured(kernels):
    facts = kernels.results["machine"]
    assert facts["entries"] == 1_000_000
    assert facts["instruction_set"] in ("scalar", "avx2", "avx512")


def test_missing_binary_says_what_to_run(fails, tmp_path):
    assert "run make bench-kernels" in fails("kernels.py", f"--binary={tmp_path / 'nothing'}")


def test_binary_that_fails_is_an_error(fails, broken):
    said = fails("kernels.py", "--quick", f"--binary={broken}")
    assert "status 3 and said: out of luck" in said


def test_entries_must_be_positive(bench):
    ran = bench("kernels.py", "--entries=0")
    assert ran.returncode == 2
    assert "0 is not a positive number" in ran.stderr
