"""That the benchmark of comm measures everything; how fast anything is does not matter here."""

import pytest
from comm_series import Series

UNITS = {
    "bulk_vs_iperf": "bytes/s",
    "bulk_default_vs_iperf": "bytes/s",
    "bulk_tls_vs_openssl": "bytes/s",
    "rtt_vs_echo": "s",
    "apply_vs_kernels": "s",
    "scale_1024": "/s",
    "worker_kib": "KiB",
    "overlap": "steps/s",
}


def test_every_measure_and_its_limit_are_kept(comm):
    results = comm.results
    assert set(results["measured"]) == set(results["ratios"]) == set(UNITS)
    for name, unit in UNITS.items():
        seen = results["measured"][name]
        assert seen["unit"] == unit
        assert seen["measured"] > 0
        assert seen["roof"] > 0
        rounds = len(results["by_round"][name])
        assert len(seen["measured_by_round"]) == len(seen["roof_by_round"]) == rounds


def test_congestion_control_is_the_one_asked_for_and_the_systems(comm):
    system = comm.results["machine"]["congestion_control"]["system"]
    assert comm.results["measured"]["bulk_vs_iperf"]["congestion"] == "cubic"
    assert comm.results["measured"]["bulk_default_vs_iperf"]["congestion"] == system


def test_tls_is_measured_against_the_cipher_that_was_agreed_on(comm):
    assert "AES" in comm.results["measured"]["bulk_tls_vs_openssl"]["cipher"]


def test_a_small_exchange_is_about_1_kib(comm):
    seen = comm.results["measured"]["rtt_vs_echo"]
    assert 900 <= seen["bytes_there"] + seen["bytes_back"] <= 1200


def test_exchanges_and_p99_are_reported_for_every_number_of_workers(comm):
    by_workers = comm.results["measured"]["scale_1024"]["by_workers"]
    assert len(by_workers) == 4
    for count, seen in by_workers.items():
        assert seen["exchanges"] > 0
        assert seen["exchanges_per_s"] > 0
        assert seen["p99_us"] >= seen["p50_us"] > 0
        assert f"{count} {seen['exchanges_per_s']:,.0f}/s" in " ".join(comm.printed.split())


def test_memory_of_a_worker_is_in_kib_and_has_a_most(comm):
    assert comm.results["at_most"] == ["worker_kib"]
    seen = comm.results["measured"]["worker_kib"]
    assert comm.results["ratios"]["worker_kib"] == pytest.approx(seen["measured"], abs=1e-3)


def test_the_loop_has_exchanges_under_way(comm):
    seen = comm.results["measured"]["overlap"]
    assert seen["exchanges_per_s"] > 0
    assert 0 < seen["step_call_share"] < 1
    assert seen["wall_ratio"] > 0
    assert f"over {seen['link']}" in " ".join(comm.printed.split())


def test_more_is_better_of_rates_and_less_of_times():
    assert Series.of_rates("/s", [(9, 10), (5, 10)]).by_round == [0.9, 0.5]
    assert Series.of_times([(4, 2), (2, 2)]).by_round == [0.5, 1]


def test_missing_programs_say_what_to_run(fails, tmp_path):
    assert "run make bench-comm" in fails("comm.py", "--quick", f"--bin={tmp_path}")


def test_a_full_run_wants_optimised_programs(fails, comm_programs):
    assert "was compiled without -c opt" in fails("comm.py", f"--bin={comm_programs}")


def test_program_that_fails_is_an_error(fails, broken, comm_programs, tmp_path):
    (tmp_path / "comm").symlink_to(comm_programs / "comm")
    said = fails("comm.py", "--quick", f"--bin={tmp_path}")
    assert f"{broken} ended with status 3 and said: out of luck" in said
