"""Two workers, in processes of their own, train one model."""

import keras
import numpy as np
import pytest

from . import models

AVERAGING = ["elastic", "local", "dense"]
GRADIENT = ["gradient", "gradient-async"]


def run(nursery, aggregator, function, arguments=None, size=2, **variables):
    """What the workers have returned, by rank."""
    variables = {"TL_AGGREGATOR": aggregator.endpoint, "TL_JOB": "test"} | variables
    fleet = nursery.fleet(function, arguments, size=size, **variables)
    return [worker.finish() for worker in fleet]


def test_one_fit_after_another_ends_with_the_same_model_in_all_workers(nursery, aggregator):
    policies = AVERAGING + GRADIENT
    options = {"policies": policies, "period": 2, "density": 0.1, "reply_density": 0.2, "bits": 4}
    results = run(nursery, aggregator, "fits", options)
    for policy in policies:
        mine, other = (result[policy] for result in results)
        assert mine["digest"] == other["digest"], policy
        # Gradients that come too late, with momentum, make it wobble.
        assert mine["accuracy"] > (0.5 if policy == "gradient-async" else 0.75), policy
        for account in (mine, other):
            assert account["statistics"]["policy"] == policy
            assert account["statistics"]["exchanges"] > 1
            assert account["statistics"]["bytes_received"] > 0


@pytest.mark.parametrize("build", ["normalised", "subclassed", "odd"])
def test_weights_without_gradients_and_those_made_late_are_shared_too(nursery, aggregator, build):
    options = {"policies": ["local", "gradient"], "build": build, "period": 2}
    results = run(nursery, aggregator, "fits", options, size=2)
    for policy in ("local", "gradient"):
        assert len({result[policy]["digest"] for result in results}) == 1, policy


@pytest.mark.parametrize("optimizer_too", [False, True])
def test_unpruned_gradients_are_those_of_one_worker_with_all_the_data(
    nursery, aggregator, optimizer_too
):
    momentum = 0.9
    options = {"momentum": momentum, "optimizer_too": optimizer_too}
    results = run(nursery, aggregator, "exact_gradients", options)
    optimizer = keras.optimizers.SGD(0.05, momentum=momentum, weight_decay=0.01)
    plain = models.compiled(models.dense(seed=10), optimizer)
    plain.fit(*models.data(), batch_size=16, epochs=2, shuffle=False, verbose=0)
    for weights in results:
        for weight, expected in zip(weights, plain.weights, strict=True):
            np.testing.assert_allclose(weight, expected, rtol=1e-3, atol=1e-4)


def test_all_kinds_of_optimizers_are_hooked_and_plain_in_files(nursery, aggregator, tmp_path):
    folder = {"SCENARIO_FOLDER": str(tmp_path)}
    mine, other = run(nursery, aggregator, "many_optimizers", **folder)
    for name, result in mine.items():
        assert result["digest"] == other[name]["digest"], name
        assert result["plain"], name
    assert mine["nesterov"]["momentum"] == 0.9
    assert mine["clipped"]["xla"] is True  # Again, after fit.


def test_loops_without_fit_work_too(nursery, aggregator):
    mine, other = run(nursery, aggregator, "loops")
    for kind, result in mine.items():
        assert result["accuracy"] > 0.7, kind
        assert result["statistics"]["steps"] == 64, kind
    for kind in ("exchanger", "gradient"):
        assert mine[kind]["digest"] == other[kind]["digest"], kind


def test_a_checkpoint_is_the_centre_and_goes_on_with_fewer_workers(
    nursery, aggregator, ops, tmp_path
):
    path = tmp_path / "model.keras"
    results = run(nursery, aggregator, "saves_the_centre", {"path": str(path)}, size=3)
    saved = keras.models.load_model(path)
    assert {result["digest"] for result in results} == {models.digest(saved)}
    assert any(result["differed"] for result in results)

    import tensorlightning as tl

    saved.fit(*models.data(), epochs=2, verbose=0, callbacks=[tl.Elastic()])
    assert models.accuracy(saved) >= results[0]["accuracy"] - 0.05


def test_workers_may_keep_their_own_models(nursery, aggregator):
    mine, other = run(nursery, aggregator, "keeps_its_own")
    assert mine["digest"] != other["digest"]
    assert min(mine["accuracy"], other["accuracy"]) > 0.7


def test_the_aggregator_may_live_in_the_first_worker(nursery, free_port):
    where = {"TL_AGGREGATOR": f"127.0.0.1:{free_port}", "TL_JOB": "test"}
    fleet = [
        nursery.start(
            "fits",
            {"policies": ["local", "gradient"], "period": 2},
            TL_RANK=str(rank),
            TL_SIZE="2",
            **where,
            **({"TL_EMBED": where["TL_AGGREGATOR"]} if rank == 0 else {}),
        )
        for rank in range(2)
    ]
    results = [worker.finish() for worker in fleet]
    for policy in ("local", "gradient"):
        assert len({result[policy]["digest"] for result in results}) == 1, policy
