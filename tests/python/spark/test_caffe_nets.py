"""Prototxt as trees, and Caffe's files made fit for Spark's tasks. Needs no Caffe."""

import random
import string

import numpy as np
import pytest
import tf_library
from tensorlightning.caffe import prototxt, wire
from tensorlightning.caffe.models import read_blob
from tensorlightning.caffe.prototxt import Field, Message, ParseError, Word
from tensorlightning.spark.caffe_nets import Net, caffe_shape
from tensorlightning.spark.caffe_solvers import SolverFile
from tensorlightning.spark.caffe_transform import Transform

LENET = tf_library.ROOT / "examples/caffe_lenet"

# ---- The text format. ----------------------------------------------------------------------------


def tree(*fields) -> Message:
    return Message([Field(name, value) for name, value in fields])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", tree()),
        ("a: 1", tree(("a", Word("1")))),
        ("a: 1 a: 2", tree(("a", Word("1")), ("a", Word("2")))),
        ("a: [1, 2]", tree(("a", Word("1")), ("a", Word("2")))),
        ("a: []", tree()),
        ("a [{b: 1}]", None),
        ("a: [{ b: 1 }, { }]", tree(("a", tree(("b", Word("1")))), ("a", tree()))),
        ("a { b { } }", tree(("a", tree(("b", tree()))))),
        ("a: { b: TRAIN }", tree(("a", tree(("b", Word("TRAIN")))))),
        ("a < b: -1e-3 >", tree(("a", tree(("b", Word("-1e-3")))))),
        ("a: - 1", tree(("a", Word("-1")))),
        ("a: 1; b: 2, c { };", tree(("a", Word("1")), ("b", Word("2")), ("c", tree()))),
        ("a: 'x' \"y\" # z\n'#'", tree(("a", "xy#"))),
        (r"""a: "\"\\\n\101\x41\u00e9" """, tree(("a", '"\\\nAAé'))),
        ("# nothing { but\n a: 'é' # remarks", tree(("a", "é"))),
    ],
)
def test_reads(content, expected):
    if expected is None:
        with pytest.raises(ParseError):
            prototxt.parse(content)
    else:
        assert prototxt.parse(content) == expected


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("a", 1, "neither ':' nor '{'"),
        ("\na:", 2, "where a value was expected"),
        ("a: 1\n\nb {\n c: 2", 3, "there is no '}'"),
        ("a: 'x\ny'", 1, "does not end on its line"),
        ("\n\na: 'x", 3, "does not end on its line"),
        ("a: '\\q'", 1, "stands for nothing"),
        ("a: 1 }", 1, "} where a field's name was expected"),
        ("x < a: 1\n}", 2, "} where a field's name was expected"),
        ("a: [1\n2]", 2, "in a list"),
        ("a: [1", 1, "in a list"),
        ("1a: 2", 1, "where a field's name was expected"),
        ("a: 1\n@", 2, "'@'"),
        ("a: \0", 1, "nothing of its kind"),
        ("[ext.ension] { }", 1, "where a field's name was expected"),
        ("a {" * 200, 1, "more than 100 messages"),
    ],
)
def test_says_file_line_and_what_is_wrong(content, line, what):
    with pytest.raises(ParseError, match=rf"^n\.prototxt:{line}: ") as caught:
        prototxt.parse(content, "n.prototxt")
    assert what in str(caught.value)


def some_tree(source: random.Random, depth: int = 0) -> Message:
    def value():
        kind = source.choice(["word", "text", "message"] if depth < 4 else ["word", "text"])
        if kind == "message":
            return some_tree(source, depth + 1)
        if kind == "word":
            return Word(source.choice(["0", "-1.5e-7", "true", "LMDB", "1f", "nan", "0x1F"]))
        characters = string.printable + "é\u20ac\U0001f600\0\x7f\udcff"
        return "".join(source.choices(characters, k=source.randrange(6)))

    names = source.choices(["a", "top", "batch_size", "_x1"], k=source.randrange(5))
    return tree(*((name, value()) for name in names))


def test_what_was_written_is_read_as_the_same_tree():
    for seed in range(500):
        made = some_tree(random.Random(seed))
        assert prototxt.parse(prototxt.text(made)) == made, seed


def spoiled(content: str, source: random.Random) -> str:
    for _ in range(source.randrange(1, 4)):
        place = source.randrange(len(content))
        content = content[:place] + source.choice("{}[]:,'\"\\#@\0 1a") + content[place + 1 :]
    return content


def test_nonsense_is_a_parse_error_and_nothing_else():
    whole = (LENET / "net.prototxt").read_text()
    wrong = 0
    for seed in range(500):
        try:
            made = prototxt.parse(spoiled(whole, random.Random(seed)))
        except ParseError:
            wrong += 1
        else:
            assert prototxt.parse(prototxt.text(made)) == made, seed
    assert 50 < wrong < 500


def test_values_are_pythons():
    message = prototxt.parse("i: 3 f: 0.5f s: '7' w: LMDB t: true i: 4 m { x: 1 }")
    assert message.values("i") == [3, 4] and message.value("i") == 4
    assert [message.value(name) for name in "fswt"] == [0.5, "7", "LMDB", True]
    assert message.value("none", "default") == "default"
    assert message.message("m").value("x") == 1 and message.message("none") == Message()


# ---- Nets. ---------------------------------------------------------------------------------------

REST = """
layer { name: "scores" type: "InnerProduct" bottom: "data" top: "scores"
  inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }
"""
DATA = """layer { name: "in" type: "Data" top: "data" top: "label" %s
  data_param { source: "x" batch_size: 8 backend: LMDB } }"""


def layers_of(text: str) -> list[Message]:
    return prototxt.parse(text).messages("layer")


def sizes(layer: Message) -> list[int]:
    param = layer.message("memory_data_param")
    return [param.value(name) for name in ("batch_size", "channels", "height", "width")]


def test_of_lenet_only_the_data_layers_change():
    text = (LENET / "net.prototxt").read_text()
    memory = Net(text).from_memory((1, 28, 28))
    before, after = layers_of(text), layers_of(memory.text)
    assert after[2:] == before[2:] and len(after) == len(before)
    assert prototxt.parse(memory.text).value("name") == "LeNet"
    for layer, phase, batch in zip(after[:2], ("TRAIN", "TEST"), (64, 100), strict=True):
        assert layer.value("type") == "MemoryData" and layer.value("name") == "data"
        assert layer.values("top") == ["data", "label"]
        assert layer.message("include").value("phase") == phase
        assert sizes(layer) == [batch, 1, 28, 28]
        assert layer.message("transform_param") == layer.message("data_param") == Message()
    assert (memory.train.batch_size, memory.test.batch_size) == (64, 100)
    assert memory.train.transform == Transform(scale=0.00390625)
    assert memory.labelled and memory.blob == "ip2"


@pytest.mark.parametrize(
    ("layer", "batch"),
    [
        ('type: "Data" data_param { batch_size: 5 source: "x" }', 5),
        ('type: "HDF5Data" hdf5_data_param { batch_size: 5 source: "x" shuffle: true }', 5),
        ('type: "ImageData" image_data_param { batch_size: 5 source: "x" }', 5),
        ('type: "SocketData" data_param { batch_size: 5 } input_param { shape { dim: 4 } }', 5),
        (
            'type: "MemoryData" memory_data_param { batch_size: 5 channels: 4 height: 1 width: 1 }',
            5,
        ),
        ('type: "Input" input_param { shape { dim: 5 dim: 4 } shape { dim: 5 } }', 5),
    ],
)
def test_every_kind_of_data_layer_is_replaced(layer, batch):
    net = Net(f'layer {{ name: "in" top: "data" top: "label" {layer} }} {REST}')
    memory = net.from_memory((4, 1, 1))
    first = layers_of(memory.text)[0]
    assert sizes(first) == [batch, 4, 1, 1]
    assert {each.name for each in first.fields} == {"name", "top", "type", "memory_data_param"}
    assert net.shape in (None, (4, 1, 1))
    assert memory.blob == "scores"


def test_a_net_may_say_the_shape_of_rows():
    assert Net(DATA % "" + REST).shape is None
    socket = 'type: "SocketData" data_param { batch_size: 5 } input_param { shape { dim: [2, 3] } }'
    assert Net(f'layer {{ top: "data" top: "label" {socket} }} {REST}').shape == (1, 2, 3)


def test_a_layer_of_both_phases_stays_one():
    memory = Net(DATA % "" + REST).from_memory((4, 1, 1), batch_size=3)
    assert [layer.value("type") for layer in layers_of(memory.text)][:2] == [
        "MemoryData",
        "InnerProduct",
    ]
    assert memory.train == memory.test and memory.train.batch_size == 3


def test_without_data_in_phase_test_that_of_train_is_for_both():
    memory = Net(DATA % "include { phase: TRAIN }" + REST).from_memory((4, 1, 1))
    assert layers_of(memory.text)[0].messages("include") == []


def test_phases_may_be_excluded():
    text = DATA % "exclude { phase: TEST }" + DATA % "exclude { phase: TRAIN }" + REST
    memory = Net(text.replace("batch_size: 8", "batch_size: 9", 1)).from_memory((4, 1, 1))
    assert (memory.train.batch_size, memory.test.batch_size) == (9, 8)


def test_two_layers_of_one_top_each_become_one():
    inputs = "".join(
        f'layer {{ name: "{top}" type: "Input" top: "{top}" input_param {{ shape {{ dim: 6 }} }} }}'
        for top in ("data", "label")
    )
    first, second, *_ = layers_of(Net(inputs + REST).from_memory((4, 1, 1)).text)
    assert first.values("top") == ["data", "label"] and second.value("name") == "scores"


def test_a_net_without_labels_gets_one_that_nobody_uses():
    layer = (DATA % "").replace('top: "label"', "")
    loss = 'layer { name: "l" type: "EuclideanLoss" bottom: "data" bottom: "data" top: "l" }'
    memory = Net(layer + loss).from_memory((4, 1, 1))
    assert not memory.labelled
    assert len(layers_of(memory.text)[0].values("top")) == 2


def test_without_a_loss_the_last_output_predicts():
    text = DATA % "" + REST.replace("SoftmaxWithLoss", "Softmax")
    assert Net(text).from_memory((4, 1, 1)).blob == "loss"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "n: there is no layer"),
        ("\nlayers { type: DATA }", "n:2: layers is Caffe's old format"),
        (REST, "n: no layer of phase TRAIN reads data"),
        (DATA % "include { phase: TEST }" + REST, "n: no layer of phase TRAIN reads data"),
        ("\n" + DATA % 'top: "third"' + REST, "n:2: in: 3 tops"),
        ("\n" + (DATA % "").replace("batch_size: 8", "") + REST, "n:2: 'in' has no batch_size"),
        (DATA % "transform_param { blur: 3 }" + REST, "n:1: 'in': transform_param has blur"),
        (DATA % "transform_param { crop_size: 5 }" + REST, "n:1: 'in': crop_size 5 of rows of 2 x"),
        (DATA % "transform_param { mean_value: [1, 2] }" + REST, r"n:1: 'in': a mean of shape \(2"),
        (DATA % "transform_param { mean_file: 'no/such' }" + REST, "n:1: 'in': .*no/such"),
    ],
)
def test_nets_that_rows_can_not_feed(text, what):
    with pytest.raises(ValueError, match=what):
        Net(text, "n").from_memory((1, 2, 2))


def test_rows_become_what_caffe_knows():
    assert [caffe_shape(shape) for shape in [(), (4,), (2, 3), (1, 2, 3)]] == [
        (1, 1, 1),
        (4, 1, 1),
        (1, 2, 3),
        (1, 2, 3),
    ]
    with pytest.raises(ValueError, match="at most"):
        caffe_shape((1, 2, 3, 4))


def test_what_is_for_files_of_images_is_left_out_with_a_word():
    layer = 'layer { name: "in" type: "ImageData" top: "data" top: "label" %s }'
    text = layer % "image_data_param { batch_size: 5 new_height: 9 }"
    with pytest.warns(UserWarning, match="new_height of layer 'in' is left out"):
        Net(text + REST).from_memory((4, 1, 1))


# ---- Transforms. ---------------------------------------------------------------------------------

ROWS = np.random.default_rng(1).integers(0, 256, (20, 2, 5, 4)).astype(np.uint8)


def transform(text: str) -> Transform:
    return Transform.read(prototxt.parse(text))


def test_scale_and_mean_values():
    rows = ROWS.copy()
    made = transform("scale: 0.5 mean_value: [10, 20]")(rows)
    expected = (ROWS - np.array([10.0, 20.0]).reshape(2, 1, 1)) * 0.5
    np.testing.assert_allclose(made, expected)
    assert made.dtype == np.float32 and np.array_equal(rows, ROWS)
    np.testing.assert_allclose(transform("mean_value: 3")(rows), ROWS - 3.0)


def test_without_any_rows_of_floats_are_not_copied():
    rows = ROWS.astype(np.float32)
    assert transform("")(rows) is rows


def test_a_mean_image_is_where_the_pixel_was(tmp_path):
    mean = np.random.default_rng(2).normal(size=(2, 5, 4)).astype(np.float32)
    blob = wire.field(5, mean.tobytes()) + wire.field(7, wire.field(1, bytes([1, 2, 5, 4])))
    file = tmp_path / "mean.binaryproto"
    file.write_bytes(blob)
    np.testing.assert_array_equal(read_blob(file)[0], mean)
    made = transform(f"mean_file: '{file}' crop_size: 2")(ROWS)
    np.testing.assert_allclose(made, (ROWS - mean)[:, :, 1:3, 1:3], rtol=1e-6)
    file.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"no \.binaryproto"):
        transform(f"mean_file: '{file}'")


def test_crops_and_mirrors_at_random_only_in_training():
    crop = transform("crop_size: 3 mirror: true")
    assert crop.shape_after((2, 5, 4)) == (2, 3, 3)
    np.testing.assert_array_equal(crop(ROWS), ROWS[:, :, 1:4, 0:3])
    windows = np.lib.stride_tricks.sliding_window_view(ROWS, (3, 3), axis=(2, 3))
    seen = set()
    for made, all_of_row in zip(crop(ROWS, np.random.default_rng(3)), windows, strict=True):
        found = [
            (y, x, mirrored)
            for y in range(3)
            for x in range(2)
            for mirrored in (False, True)
            if np.array_equal(made, all_of_row[:, y, x, :, :: -1 if mirrored else 1])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 6


# ---- Solvers. ------------------------------------------------------------------------------------


def test_of_lenets_solver_what_trains_stays():
    steps = SolverFile((LENET / "solver.prototxt").read_text()).for_tasks(epochs=2)
    kept = [each.name for each in prototxt.parse(steps.text).fields]
    assert kept == [
        *("base_lr", "momentum", "weight_decay", "lr_policy", "gamma", "power"),
        *("solver_mode", "random_seed", "tensorlightning_param"),
    ]
    assert steps.iterations is None and steps.iter_size == 1 and steps.rate_changes


def test_max_iter_counts_without_epochs_and_where_the_rate_ends():
    assert SolverFile("max_iter: 7 lr_policy: 'fixed'").for_tasks(None).iterations == 7
    assert not SolverFile("max_iter: 7 lr_policy: 'fixed'").for_tasks(None).rate_changes
    poly = SolverFile("max_iter: 7 lr_policy: 'poly'").for_tasks(3)
    assert poly.iterations == 7 and "max_iter: 7" in poly.text
    with pytest.raises(ValueError, match="s: how long is it to train"):
        SolverFile("base_lr: 1", "s").for_tasks(None)


def test_settings_of_the_block_are_the_trainers():
    solver = SolverFile("tensorlightning_param { period: 20 policy: 'local' model: 'own' }")
    assert solver.settings == {"period": 20, "policy": "local"}
    block = prototxt.parse(solver.for_tasks(1).text).message("tensorlightning_param")
    assert block == tree(("model", "own"))
    with pytest.raises(ValueError, match="s:2: tensorlightning_param has rank"):
        SolverFile("\ntensorlightning_param { rank: 1 }", "s")


def test_a_solver_knows_its_net_and_weights():
    assert SolverFile("net: 'a'").net == "a" and SolverFile("").net is None
    assert SolverFile("net_param { name: 'a' }").net == tree(("name", "a"))
    assert SolverFile("weights: 'a, b' weights: 'c'").weights == ["a", "b", "c"]
