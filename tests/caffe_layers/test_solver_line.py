"""The one line in solver.prototxt, with the stock caffe binary."""

import re
from pathlib import Path

import caffe_stock
import numpy as np
import pytest
from caffe_layers.workplace import CLASSES, FEATURES, PARAMETERS, Workplace, dense
from tensorlightning.caffe import read_caffemodel, wire

pytestmark = caffe_stock.needed
LINE = "tensorlightning_param { }"
# What each wants to be told.
SOLVERS = {
    "SGD": {},
    "Nesterov": {},
    "AdaGrad": {"momentum": 0},
    "RMSProp": {"momentum": 0, "rms_decay": 0.9, "base_lr": 0.005},
    "AdaDelta": {"delta": 1e-6, "base_lr": 1},
    "Adam": {"base_lr": 0.01, "momentum2": 0.99},
}


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path)


def of_type(kind: str) -> dict:
    return {"type": f'"{kind}"', **SOLVERS[kind]}


@pytest.mark.parametrize("kind", SOLVERS)
def test_alone_it_is_plain_caffe_to_the_bit(place, kind):
    fields = {"max_iter": 40, "weight_decay": 0.001, "iter_size": 2, "clip_gradients": 1}
    place.write_solver(**of_type(kind), **fields)
    assert place.train(plugin=False).status == 0
    plain = (place.folder / "shot_iter_40.caffemodel").read_bytes()
    place.write_solver(LINE, **of_type(kind), **fields)
    ran = place.train()
    assert ran.status == 0, ran.text
    assert f"worker 0 of 1 exchanges {PARAMETERS} parameters, policy elastic" in ran.text
    assert (place.folder / "shot_iter_40.caffemodel").read_bytes() == plain


@pytest.mark.parametrize("kind", SOLVERS)
def test_two_workers_learn_with_every_solver(place, kind):
    place.write_solver(LINE, **of_type(kind), max_iter=200, test_interval=200)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    assert ran.accuracy > 0.8
    assert "worker 1 of 2 exchanges" in ran.text


@pytest.mark.parametrize("policy", ["local", "dense", "gradient", "gradient-async"])
def test_two_workers_learn_with_every_policy(place, policy):
    density = "density: 0.3 reply_density: 0.5"
    line = f'tensorlightning_param {{ policy: "{policy}" period: 4 {density} }}'
    # Gradients that come too late and have momentum, too, make it wobble.
    fields = {"momentum": 0} if policy == "gradient-async" else {}
    place.write_solver(line, max_iter=200, test_interval=200, **fields)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    assert ran.accuracy > (0.6 if fields else 0.8)


def test_dense_gradients_of_two_are_those_of_one_with_twice_the_rows(place):
    line = 'tensorlightning_param { policy: "gradient" density: 1 reply_density: 1 bits: 32 }'
    fields = {"max_iter": 30, "test_interval": 30, "weight_decay": 0.01}
    place.write_solver(line, **fields)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    # What two workers read in a step, every other row each, one reads in two halves.
    place.write_solver(**fields, iter_size=2)
    assert ran.accuracy == pytest.approx(place.train(plugin=False).accuracy, abs=0.011)


def test_only_rank_0_tests_and_writes(place):
    place.write_solver(LINE, max_iter=60, snapshot=20, test_interval=20)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    assert ran.tested_at == [0, 20, 40, 60]
    assert not re.search(r"^\[1\].*(Testing|Snapshotting)", ran.text, re.MULTILINE)
    shots = {path.name for path in place.folder.glob("shot_*")}
    for step in (20, 40, 60):
        assert {f"shot_iter_{step}.caffemodel", f"shot_iter_{step}.solverstate"} <= shots
    # The last one is of the centre, and its own model is the same.
    own = {f"shot_iter_{step}.solverstate.tensorlightning.0" for step in (20, 40)}
    assert {name for name in shots if "tensorlightning" in name} == own


def test_each_worker_reads_its_own_rows(place):
    """Rank 0 gets every other row, and with them two of four classes."""
    random = np.random.default_rng(6)
    x = random.normal(size=(2048, FEATURES))
    truth = random.normal(size=(FEATURES, CLASSES))
    classes = np.argmax(x @ truth, axis=1)
    even, odd = x[classes < 2], x[classes >= 2]
    rows = min(len(even), len(odd))
    mixed = np.stack([even[:rows], odd[:rows]], axis=1).reshape(-1, FEATURES)
    place.write_data("train", mixed, truth)
    place.write_data("test", random.normal(size=(400, FEATURES)), truth)
    own = 'tensorlightning_param { model: "own" period: 1000000 }'
    place.write_solver(own, max_iter=200, test_interval=200)
    alone = place.tlrun()
    assert alone.status == 0, alone.text
    assert alone.accuracy < 0.65
    both = 'tensorlightning_param { policy: "gradient" density: 0.3 reply_density: 0.5 }'
    place.write_solver(both, max_iter=100, test_interval=100)
    assert place.tlrun().accuracy > 0.75


def test_training_goes_on_from_a_snapshot(place):
    place.write_solver(LINE, max_iter=60, snapshot=40)
    assert place.tlrun().status == 0
    own = place.folder / "shot_iter_40.solverstate.tensorlightning.0"
    assert own.exists()
    ran = place.tlrun("--snapshot=shot_iter_40.solverstate")
    assert ran.status == 0, ran.text
    steps = [int(step) for step in re.findall(r"step (\d+),", ran.text)]
    assert max(steps) == 20
    own.write_bytes(b"no state")
    ran = place.tlrun("--snapshot=shot_iter_40.solverstate")
    assert ran.status == 1
    assert "shot_iter_40.solverstate.tensorlightning.0 " in ran.text


def test_a_snapshot_is_of_the_centre_and_rank_0_goes_on_from_its_own_model(place):
    place.write_solver("tensorlightning_param { period: 1 }", max_iter=60, snapshot=40)
    assert place.tlrun().status == 0
    shot = place.folder / "shot_iter_40.caffemodel"
    own = wire.fields((place.folder / "shot_iter_40.solverstate.tensorlightning.0").read_bytes())
    own = [wire.numbers(wire.fields(wire.bytes_of(b)), 5, np.dtype("<f4")) for b in own]
    assert np.abs(flat(shot) - np.concatenate(own)).max() > 1e-5
    # A step that changes nothing.
    place.write_solver('tensorlightning_param { model: "own" }', max_iter=41, base_lr=0, momentum=0)
    ran = place.train("--snapshot=shot_iter_40.solverstate")
    assert ran.status == 0, ran.text
    assert np.array_equal(flat(place.folder / "shot_iter_41.caffemodel"), np.concatenate(own))


def flat(caffemodel: Path) -> np.ndarray:
    layers = read_caffemodel(caffemodel).values()
    return np.concatenate([blob.ravel() for blobs in layers for blob in blobs])


def test_training_starts_from_given_weights(place):
    place.write_solver(max_iter=150, test_interval=150)
    assert place.train(plugin=False).accuracy > 0.8
    place.write_solver(LINE, max_iter=1, base_lr=1e-6, test_interval=1)
    ran = place.tlrun("--weights=shot_iter_150.caffemodel")
    assert ran.status == 0, ran.text
    assert ran.accuracy > 0.8


def test_stages_work_with_the_plugin_and_without(place):
    stages = 'stage: "tensorlightning.period=5" stage: "tensorlightning.policy=local"'
    place.write_solver(f"train_state {{ {stages} }}", max_iter=20)
    assert place.train(plugin=False).status == 0
    ran = place.train()
    assert ran.status == 0
    assert "policy local, every 5 iterations" in ran.text


def test_without_the_line_the_plugin_changes_nothing(place):
    """Not even the names of snapshots that have none: they are the solver file's."""
    solver = place.folder / "solver.prototxt"
    for prefix in ('snapshot_prefix: "shot"\n', ""):
        place.write_solver(max_iter=20)
        solver.write_text(solver.read_text().replace('snapshot_prefix: "shot"\n', prefix))
        names = []
        for plugin in (False, True):
            for path in place.folder.glob("*iter_20*"):
                path.unlink()
            ran = place.train(plugin=plugin)
            assert ran.status == 0
            assert "tensorlightning:" not in ran.text
            names.append({path.name for path in place.folder.glob("*iter_20*")})
        assert len(names[0]) == 2
        assert names[0] == names[1]


def test_layers_of_the_same_name_are_told_apart(tmp_path):
    layers = "\n".join(
        [
            dense("same", "data", FEATURES, top="first"),
            dense("same", "first", FEATURES, top="second"),
            dense("scores", "second", CLASSES),
        ]
    )
    place = Workplace(tmp_path, layers)
    place.write_solver(LINE, max_iter=20)
    ran = place.tlrun()
    assert ran.status == 0, ran.text


def test_what_another_training_left_beside_a_snapshot_is_not_restored(place):
    place.write_solver(LINE, max_iter=60, snapshot=40)
    assert place.tlrun().status == 0
    own = place.folder / "shot_iter_40.solverstate.tensorlightning.0"
    assert own.exists()
    place.write_solver(LINE, max_iter=40)
    assert place.tlrun().status == 0
    assert not own.exists()


def test_shared_blobs_are_sent_once(tmp_path):
    shared = 'param { name: "w" } param { name: "b" }'
    layers = "\n".join(
        [
            dense("first", "data", FEATURES, shared),
            'layer { name: "relu" type: "ReLU" bottom: "first" top: "first" }',
            dense("second", "first", FEATURES, shared),
            dense("scores", "second", CLASSES),
        ]
    )
    place = Workplace(tmp_path, layers)
    place.write_solver(LINE, max_iter=20)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    count = FEATURES * FEATURES + FEATURES + FEATURES * CLASSES + CLASSES
    assert f"exchanges {count} parameters" in ran.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tensorlightning_param { perod: 3 }", "solver.prototxt:11: there is no setting 'perod'"),
        ("tensorlightning_param {\n\n density: 2 }", "solver.prototxt:13: density=2"),
        ('tensorlightning_param { policy: "best" }', "solver.prototxt:11: "),
        ("tensorlightning_param { period: 3", "solver.prototxt:11: tensorlightning_param is not"),
        ("tensorlightning_param: 3", "solver.prototxt:11: tensorlightning_param is a block"),
        ('type: "Mine"\n' + LINE, 'solver.prototxt: type: "Mine" can\'t exchange'),
        ("nonsense: 3\n" + LINE, "solver.prototxt:11:9: "),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(place, line, said):
    place.write_solver(line, max_iter=20)
    ran = place.train()
    assert ran.status == 1
    assert said in ran.text
    assert "Check failed" not in ran.text


def test_a_solver_file_that_is_not_there(place):
    ran = place.train()
    assert ran.status == 1
    assert "tensorlightning: solver.prototxt: can't be read" in ran.text


def test_a_solver_file_that_is_a_folder(place):
    (place.folder / "solver.prototxt").mkdir()
    ran = place.train()
    assert ran.status == 1
    assert "tensorlightning: solver.prototxt: is a folder" in ran.text


def test_what_the_environment_says_wrong_is_not_blamed_on_the_file(place):
    place.write_solver(LINE, max_iter=20)
    ran = place.train(TL_DENSITY="7")
    assert ran.status == 1
    said = "solver.prototxt: by TL_* variables, or tlrun's options: density=7: above 0, at most 1"
    assert said in ran.text


def test_workers_without_the_line_are_told_that_they_are_no_team(place):
    place.write_solver(max_iter=20, test_interval=20)
    ran = place.tlrun()
    assert ran.status == 0, ran.text
    said = "solver.prototxt has no tensorlightning_param { }: 2 workers train without each other"
    assert said in ran.text
    place.write_solver(LINE, max_iter=20, test_interval=20)
    assert "without each other" not in place.tlrun().text
