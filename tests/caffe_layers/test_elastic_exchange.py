"""The layer ElasticExchange in the stock caffe binary, with plain solvers."""

import contextlib
import re
import time

import numpy as np
import pytest
from caffe_layers.stock import FED, FIXED, REST, ended
from integration.processes import Aggregator
from tensorlightning.caffe.feed import Feeder

STEPS = 300

MADE = """
layer {
  name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {
    shape { dim: 8 dim: 16 } shape { dim: 8 }
    data_filler { type: "gaussian" mean: 1 std: 0.5 } data_filler { type: "constant" value: 1 }
  }
}
"""
EXCHANGE = """
layer { name: "exchange" type: "ElasticExchange" python_param { param_str: "%s" } }
"""


def feed_in_step(feeders: list[Feeder]) -> None:
    """Images of one class to each of them, a batch at a time: all are in the same step.

    One more than there are steps: Caffe runs the net once more to display the last loss.
    """
    images = np.random.default_rng(0).integers(100, 256, (STEPS + 1, 20, 4, 4), np.uint8)
    for batch in images:
        for rank, feeder in enumerate(feeders):
            feeder.send(batch, np.full(20, rank))
        time.sleep(0.005)


def test_nets_that_learn_different_things_end_with_the_same_weights(caffe, tmp_path):
    settings = f"period=5 policy=local density=1 reply_density=1 bits=32 steps={STEPS - 1}"
    # Whoever ends first misses little.
    options = {"iterations": STEPS, "solver": 'lr_policy: "poly" power: 2'}
    tops = {"data": ((4, 4), "uint8"), "label": ((), "float32")}

    def trained(layer: str, **variables: str) -> float:
        """By how much the weights of two workers differ in the end."""
        with contextlib.ExitStack() as stack:
            feeders = [
                stack.enter_context(Feeder(f"unix:{tmp_path}/{rank}.sock", **tops))
                for rank in range(2)
            ]
            net = layer + FED % f"unix:{tmp_path}/{{rank}}.sock" + REST
            name = variables.get("TL_SIZE", "alone")
            pair = [
                caffe(net, f"{name}.{rank}", TL_RANK=str(rank), **variables, **options)
                for rank in range(2)
            ]
            feed_in_step(feeders)
            ends = [one.end() for one in pair]
        assert [status for status, _ in ends] == [0, 0], ends
        if layer:
            for _, log in ends:
                assert "exchanges 51 parameters, policy local, every 5 forward passes" in log
                assert int(re.search(r'"exchanges": ?(\d+)', log)[1]) > 10
        return float(np.abs(pair[0].weights() - pair[1].weights()).max())

    apart = trained("")
    with Aggregator() as aggregator:
        together = trained(EXCHANGE % settings, TL_SIZE="2", TL_AGGREGATOR=aggregator.endpoint)
    assert together < 0.1 * apart


def test_net_that_is_destroyed_leaves_with_a_last_exchange(caffe):
    running = caffe(EXCHANGE % "period=1" + MADE + REST, iterations=10)
    status, log = running.end()
    assert status == 0, log
    assert "worker 0 of 1 exchanges 51 parameters" in log
    assert "no last exchange" not in log


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("policy=gradient", "gradients are averaged by the solver"),
        ("steps=0", "steps=0: it is a whole number, 1 or more"),
        ("perod=3", "there is no setting 'perod'"),
    ],
)
def test_mistakes_in_its_settings_are_named(caffe, settings, message):
    assert message in ended(caffe, EXCHANGE % settings + MADE + REST)


def test_not_beside_a_solver_that_exchanges(caffe):
    said = ended(caffe, EXCHANGE % "" + MADE + REST, solver=FIXED + "tensorlightning_param { }")
    assert "the solver exchanges already" in said


def test_there_is_one_in_a_net(caffe):
    second = EXCHANGE.replace('"exchange"', '"second"')
    said = ended(caffe, EXCHANGE % "" + second % "" + MADE + REST)
    assert 'layer "second", ElasticExchange: there is another one in this net' in said


def test_ctrl_c_ends_a_wait_for_others(caffe):
    told = {"TL_AGGREGATOR": "127.0.0.1:9", "TL_SIZE": "2", "TL_RANK": "1"}
    running = caffe(EXCHANGE % "" + MADE + REST, TL_PATIENCE="600", **told)
    assert running.interrupted_when("Starting Optimization")
    status, log = running.end()
    assert status == 1
    assert "ElasticExchange: interrupted while it joined the others" in log
