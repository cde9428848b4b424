"""A driver that dies, and another that goes on: on local-cluster, in the newer pyspark, and with an
address to listen on that is not the one under which executors reach it.
"""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from cluster.wait import until
from python.spark import driving
from python.spark.living import runs
from tf_library import ROOT

SPARK4 = ROOT / ".venv-spark4/bin/python"
MASTER = "local-cluster[2,1,1024]"
SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "0.0.0.0"}
# Undisturbed it was between 0.75 and 0.80.
LEAST_ACCURACY = 0.65


def drive(**options: str) -> driving.Driver:
    more = [f"--settings={json.dumps(SETTINGS)}", f"--options={json.dumps(options)}"]
    return driving.Driver(MASTER, driving.environment(str(SPARK4)), more=more)


def aggregators_of(folder: Path) -> list[int]:
    """Processes whose command line has the folder of the snapshots."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if re.match(rb"\S*tl-aggregator\0", words) and str(folder).encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not SPARK4.exists(), reason="make setup has made no second venv")
def test_another_driver_goes_on_where_one_was_killed(tmp_path):
    killed = drive(snapshots=str(tmp_path))
    assert killed.has_begun(epochs=1.6)
    assert len(aggregators_of(tmp_path)) == 1
    pids = [place["pid"] for place in killed.places.values()]
    os.kill(killed.process.pid, signal.SIGKILL)
    assert until(lambda: not any(map(runs, pids)), driving.SECONDS), "workers end"
    assert until(lambda: not aggregators_of(tmp_path), driving.SECONDS), "and the aggregator"
    # Written every two seconds, in which such workers train an epoch.
    done = json.loads((tmp_path / "run.json").read_text())["epochs"]
    assert 0 < done < driving.EPOCHS

    rest = drive(resume=str(tmp_path)).finish()
    left = (driving.EPOCHS - done) * driving.ROWS
    assert rest["samples"] == pytest.approx(left, abs=2)
    assert rest["accuracy"] > LEAST_ACCURACY
    assert rest["spark"].startswith("4.")
