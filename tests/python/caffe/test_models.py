"""Files of Caffe's from and to numpy: no Caffe is needed but to judge them."""

import subprocess

import numpy as np
import pytest
from python.caffe import nets
from tensorlightning.caffe import Solver, read_caffemodel, wire, write_caffemodel


def weights():
    random = np.random.default_rng(1)
    return {
        "conv": [random.normal(size=(4, 2, 3, 3)).astype(np.float32), np.arange(4, dtype="f4")],
        "name with \u00e4": [np.float32(random.normal(size=(3, 5)))],
        "scale": [np.ones(1, np.float32)],
        "scalar": [np.array(2.5, np.float32)],
    }


def same(one, other) -> bool:
    return list(one) == list(other) and all(
        len(one[name]) == len(other[name])
        and all(
            a.dtype == np.float32 and np.array_equal(a, b) and a.shape == b.shape
            for a, b in zip(one[name], other[name], strict=True)
        )
        for name in one
    )


def test_what_was_written_is_read(tmp_path):
    write_caffemodel(tmp_path / "a", weights())
    assert same(read_caffemodel(tmp_path / "a"), weights())
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_doubles_and_other_orders_are_written_as_floats(tmp_path):
    array = np.arange(6, dtype=np.float64).reshape(2, 3).T
    write_caffemodel(tmp_path / "a", {"ip": [array]})
    assert np.array_equal(read_caffemodel(tmp_path / "a")["ip"][0], array)


def test_like_keeps_all_else(tmp_path):
    old = tmp_path / "old"
    state = wire.varint(200 << 3) + wire.varint(300)
    layer = wire.field(1, b"ip") + wire.field(2, b"InnerProduct") + wire.field(3, b"data")
    shape = wire.field(7, wire.field(1, wire.varint(2)))
    first = layer + wire.field(7, wire.field(5, np.ones(2, "<f4").tobytes()) + shape)
    other = wire.field(1, b"other") + wire.field(7, wire.field(5, bytes(8)) + shape)
    none = wire.field(1, b"relu")
    old.write_bytes(
        wire.field(1, b"net") + b"".join(wire.field(100, x) for x in (first, none, other)) + state
    )
    write_caffemodel(tmp_path / "new", {"ip": [[3, 4]]}, like=old)
    new = read_caffemodel(tmp_path / "new")
    assert same(new, {"ip": [np.float32([3, 4])], "other": [np.float32([0, 0])]})
    content = (tmp_path / "new").read_bytes()
    assert len(content) == old.stat().st_size
    assert content.startswith(wire.field(1, b"net")) and content.endswith(state)
    assert layer in content
    with pytest.raises(ValueError, match="layer 'ip' has"):
        write_caffemodel(tmp_path / "worse", {"ip": [[3, 4, 5]]}, like=old)
    with pytest.raises(ValueError, match="no parameters of a layer 'pi'"):
        write_caffemodel(tmp_path / "worse", {"pi": [[3, 4]]}, like=old)
    assert not (tmp_path / "worse").exists()


def test_old_files_are_read(tmp_path):
    """Four sizes, data not packed, in the layers of the first Caffe; and doubles."""
    sizes = b"".join(bytes([number << 3, size]) for number, size in enumerate((1, 1, 2, 3), 1))
    single = np.arange(6, dtype="<f4")
    loose = b"".join(wire.varint(5 << 3 | wire.FIXED32) + value.tobytes() for value in single)
    doubles = wire.field(8, np.arange(6, dtype="<f8").tobytes())
    layer = wire.field(4, b"ip") + wire.field(6, sizes + loose) + wire.field(6, sizes + doubles)
    (tmp_path / "old").write_bytes(wire.field(2, layer))
    one, other = read_caffemodel(tmp_path / "old")["ip"]
    assert one.shape == (1, 1, 2, 3) and np.array_equal(one.ravel(), single)
    assert np.array_equal(one, other) and other.dtype == np.float32
    write_caffemodel(tmp_path / "new", {"ip": [one[0, 0] + 1, other]}, like=tmp_path / "old")
    assert np.array_equal(read_caffemodel(tmp_path / "new")["ip"][0], one + 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"this is text",
        wire.field(1, b"a net without layers"),
        wire.field(100, b"\xff"),
        wire.field(100, wire.field(1, b"\xff\xfe")),
        wire.field(100, wire.field(7, wire.field(5, b"abc"))),
        wire.field(100, wire.field(7, wire.field(5, bytes(8)) + wire.field(7, b"\x0a\x01\x03"))),
        wire.varint(100 << 3) + b"\x05",
        b"\xff" * 20,
    ],
)
def test_what_is_no_caffemodel_is_a_value_error(tmp_path, content):
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(ValueError, match=r"broken is no \.caffemodel: "):
        read_caffemodel(tmp_path / "broken")


def test_two_layers_of_a_name_are_refused(tmp_path):
    write_caffemodel(tmp_path / "a", weights())
    (tmp_path / "twice").write_bytes(2 * (tmp_path / "a").read_bytes())
    with pytest.raises(ValueError, match=r"twice has two layers 'conv' with parameters"):
        read_caffemodel(tmp_path / "twice")


def test_every_cut_of_a_file_is_read_or_refused(tmp_path):
    write_caffemodel(tmp_path / "a", weights())
    whole = (tmp_path / "a").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut").write_bytes(whole[:length])
        try:
            found = read_caffemodel(tmp_path / "cut")
        except ValueError:
            continue
        assert set(found) < set(weights())


def test_stock_caffe_reads_what_was_written(driver, tmp_path):
    """Scores and labels come from files there, from memory here: the losses must be the same."""
    images, labels = nets.examples(nets.BATCH)
    with Solver(nets.SOLVER, nets.CONVOLUTIONAL) as solver:
        solver.feed(images, labels)
        solver.step(20)
        write_caffemodel(tmp_path / "a.caffemodel", solver.parameters)
        loss = float(solver.test(images, labels)["loss"])
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w", libver=("earliest", "v110")) as file:
        file["data"], file["label"] = images, labels.astype(np.float32)
    (tmp_path / "list").write_text(f"{tmp_path}/data.h5\n")
    memory = nets.CONVOLUTIONAL.split("layer {", 2)[1]
    source = f"""name: "data" type: "HDF5Data" top: "data" top: "label"
      hdf5_data_param {{ source: "{tmp_path}/list" batch_size: {nets.BATCH} }} }}\n"""
    (tmp_path / "net").write_text(nets.CONVOLUTIONAL.replace(memory, source))
    command = ["--model", tmp_path / "net", "--weights", tmp_path / "a.caffemodel"]
    ended = subprocess.run(
        [nets.CAFFE / "bin/caffe", "test", *command, "--iterations=1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    shown = [line for line in ended.stderr.splitlines() if "] loss = " in line][-1]
    assert abs(float(shown.split("loss = ")[1].split()[0]) - loss) < 1e-4 * max(1, loss)
