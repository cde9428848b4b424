"""What tlrun shows of its workers, on a terminal and elsewhere."""

import json
import re
import subprocess
import sys

import pytest
from python.launch.runs import NO_AGGREGATOR, Run, environment_with, finish, worker


def test_output_has_the_rank_before_each_line_and_stays_in_its_stream():
    code = "print('one\\ntwo'); print('bad', file=sys.stderr); sys.stdout.write('no end')"
    status, output, errors = finish("-np", "2", NO_AGGREGATOR, *worker(code))
    assert status == 0
    for rank in "01":
        mine = [line for line in output.splitlines() if line.startswith(f"[{rank}]")]
        assert mine == [f"[{rank}] one", f"[{rank}] two", f"[{rank}] no end"]
        assert f"[{rank}] bad\n" in errors


def test_output_without_prefix_is_the_workers_own():
    code = r"sys.stdout.buffer.write('größer\n'.encode() + b'\xff\n')"
    status, output, _ = finish("-np", "1", NO_AGGREGATOR, "--no-prefix", "-q", *worker(code))
    assert (status, output) == (0, "größer\n\ufffd\n")


def test_progress_bars_show_what_is_left_of_them():
    code = r"sys.stdout.write('10%\r50%\r100%\nnext\r\n')"
    assert finish("-np", "1", NO_AGGREGATOR, *worker(code))[1] == "[0] 100%\n[0] next\n"


def test_output_is_kept_in_files_of_each_worker(tmp_path):
    code = "print('out', rank); print('err', rank, file=sys.stderr)"
    folder = tmp_path / "kept"
    status, *_ = finish("-np", "2", NO_AGGREGATOR, f"--output-dir={folder}", *worker(code))
    assert status == 0
    assert (folder / "1.out").read_text() == "out 1\n"
    assert (folder / "0.err").read_text() == "err 0\n"


def test_reports_are_plain_lines_and_a_table_at_the_end(tmp_path):
    code = """
report(step=1, loss=2.5)
report(step=120, loss=0.43, metrics={"accuracy": 0.86}, steps_per_s=41.2, sent=1e6, received=2e6,
       dense=3e8, unknown=[1], done=True)
"""
    file = tmp_path / "summary.json"
    status, _, errors = finish(
        "-np", "2", NO_AGGREGATOR, "--report-every=0", f"--summary-json={file}", *worker(code)
    )
    assert status == 0
    line = "step 120, loss 0.43, accuracy 0.86, 41.2 steps/s, 3.00 MB moved, 100x fewer than dense"
    assert f"tlrun: [0] {line}\n" in errors and f"tlrun: [1] {line}\n" in errors
    assert re.search(r"^ +1 +localhost +120 +0\.43 +3\.00 +100x +0 +0$", errors, re.MULTILINE)
    written = json.loads(file.read_text())
    assert written["exit_status"] == 0
    assert written["workers"][1]["report"]["unknown"] == [1]


def test_reports_are_rate_limited_but_the_last_one_comes():
    code = """
for step in range(50):
    report(step=step)
    time.sleep(0.002)
report(step=1000, done=True)
"""
    status, _, errors = finish("-np", "1", NO_AGGREGATOR, "--report-every=3600", *worker(code))
    assert status == 0
    shown = re.findall(r"tlrun: \[0\] step ([\d,]+)", errors)
    assert len(shown) <= 2
    assert shown[-1] == "1,000"


@pytest.mark.parametrize("garbage", ["not json", "[1]", '{"step": "x", "loss": null}', "{" * 9999])
def test_reports_that_make_no_sense_do_no_harm(garbage):
    code = f"os.write(int(os.environ['TL_REPORT_FD']), b'''{garbage}\\n''')"
    status, _, errors = finish("-np", "1", NO_AGGREGATOR, *worker(code))
    assert status == 0
    assert "Traceback" not in errors


def test_worker_that_floods_its_output_does_not_stall_others():
    code = """
if rank == 0:
    line = "x" * 1000
    while True:
        print(line)
for number in range(20):
    say("number", number)
    report(step=number)
    time.sleep(0.01)
sys.exit(5)
"""
    # Its end is rank 1's, which has to come through between rank 0's lines.
    status, output, _ = finish("-np", "2", NO_AGGREGATOR, *worker(code))
    assert status == 5
    assert re.findall(r"^\[1\] number (\d+)$", output, re.MULTILINE) == [str(n) for n in range(20)]


def test_all_output_of_a_worker_comes_before_its_end():
    code = "sys.stdout.write('0123456789abcde\\n' * 100_000)"
    status, output, _ = finish("-np", "2", NO_AGGREGATOR, *worker(code))
    assert status == 0
    assert output.count("[0] 0123456789abcde\n") == output.count("[1] 0123456789abcde\n") == 100_000


def test_a_reader_that_goes_away_ends_the_run():
    endless = worker("\nwhile True: print('y')")
    tlrun = [sys.executable, "-m", "tensorlightning.launch", "-np", "1", NO_AGGREGATOR, *endless]
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -1', "sh", *tlrun],
        env=environment_with(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[0] y\n"
    assert "Traceback" not in done.stderr


def test_terminal_shows_a_live_line_per_worker_and_a_table(tmp_path):
    code = """
say("\\x1b[31mcoloured\\x1b[0m [bold]words[/bold]")
report(step=7, loss=0.5, steps_per_s=3.5)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
    go = tmp_path / "go"
    with Run("-np", "2", NO_AGGREGATOR, *worker(code, str(go)), terminal=True) as run:
        assert run.says("steps/s")
        assert run.says("[bold]words[/bold]")
        go.touch()
        assert run.wait() == 0
        assert run.says("exit status")
        assert "Traceback" not in run.screen()
