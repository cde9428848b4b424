"""The layer SocketData in the stock caffe binary, and the Feeder that feeds it."""

import re
import socket
import struct
import subprocess
import threading

import numpy as np
import pytest
from caffe_layers.stock import FED, FIXED, REST, ended
from tensorlightning.caffe.feed import Feeder


def digits(records=60):
    """Three classes that a linear model tells apart."""
    random = np.random.default_rng(0)
    labels = np.arange(records) % 3
    images = random.integers(0, 60, (records, 4, 4), np.uint8)
    images[np.arange(records), labels] += 150
    return images, labels.astype(np.float32)


def feeder_at(address, image=((4, 4), "uint8"), **options) -> Feeder:
    return Feeder(address, data=image, label=((), "float32"), patience=20, **options)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("image", ["uint8", "float32"])
def test_learns_from_what_a_feeder_sends(caffe, tmp_path, kind, image):
    images, labels = digits()
    address = f"unix:{tmp_path}/feed.sock" if kind == "unix" else "tcp:127.0.0.1:0"
    with feeder_at(address, image=((4, 4), image)) as feeder:
        running = caffe(FED % feeder.address + REST)
        epochs = feeder.serve(images, labels)
        status, log = running.end()
    assert status == 0, log
    losses = running.losses(log)
    assert losses[-1] < 0.5 * losses[0]
    # 100 iterations of 20 records, of which an epoch has 60; and what was read ahead.
    assert epochs >= 33
    assert "data has read all of epoch 33" in log
    assert "data has read all of epoch 34" not in log


def test_batches_are_the_records_in_their_order_across_epochs(caffe, tmp_path):
    """With a loss that depends on which records are in a batch."""
    values = np.arange(30, dtype=np.float32)
    net = """
        layer { name: "data" type: "SocketData" top: "data"
                data_param { source: "%s" batch_size: 20 } input_param { shape { dim: 1 } } }
        layer { name: "sum" type: "Reduction" bottom: "data" top: "sum" loss_weight: 1
                reduction_param { operation: MEAN } }
    """
    with Feeder(f"unix:{tmp_path}/feed.sock", data=((1,), "float32")) as feeder:
        running = caffe(net % feeder.address, iterations=3, display=1)
        feeder.serve(values[:, None], epochs=3, seed=None)
        status, log = running.end()
    assert status == 0, log
    twice = np.concatenate([values, values])
    means = [twice[i : i + 20].mean() for i in (0, 20, 40)]
    assert running.losses(log)[:3] == pytest.approx(means, abs=1e-3)


def test_training_and_test_have_a_feeder_each(caffe, tmp_path):
    images, labels = digits()
    accuracy = 'layer { name: "a" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }'
    with (
        feeder_at(f"unix:{tmp_path}/train.sock") as train,
        feeder_at(f"unix:{tmp_path}/test.sock") as test,
    ):
        threads = [threading.Thread(target=f.serve, args=(images, labels)) for f in (train, test)]
        for thread in threads:
            thread.start()
        phases = [
            (FED % feeder.address).replace("data_param", f"include {{ phase: {p} }} data_param")
            for feeder, p in ((train, "TRAIN"), (test, "TEST"))
        ]
        running = caffe(
            "".join(phases) + REST + accuracy, solver=FIXED + " test_iter: 3 test_interval: 50"
        )
        status, log = running.end()
        for thread in threads:
            thread.join()
    assert status == 0, log
    assert re.findall(r"accuracy = (\S+)", log)[-1] == "1"


def test_wrong_shape_is_an_error_at_once(caffe, tmp_path):
    with feeder_at(f"unix:{tmp_path}/feed.sock", image=((4, 5), "uint8")) as feeder:
        thread = threading.Thread(target=feeder.accept)
        thread.start()
        said = ended(caffe, FED % feeder.address + REST)
        thread.join()
    assert "top 0 is 4x5, and the net says that it is 4x4" in said


def test_nobody_listens(caffe, tmp_path):
    said = ended(caffe, FED % f"unix:{tmp_path}/none.sock" + REST, TL_PATIENCE="1")
    assert "no feeder has listened there within 1" in said
    assert "none.sock: " in said and "TL_PATIENCE" in said


def test_feeder_that_comes_late_is_waited_for(caffe, tmp_path):
    images, labels = digits()
    running = caffe(FED % f"unix:{tmp_path}/feed.sock" + REST, iterations=5)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(1)
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        feeder.serve(images, labels)
    assert running.end()[0] == 0


def test_feeder_that_dies_in_the_middle_of_a_record(caffe, tmp_path):
    images, labels = digits()
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        running = caffe(FED % feeder.address + REST)
        feeder.send(images, labels)
        feeder._write(struct.pack("<B3xI", 1, 5) + bytes(7))
        feeder.close()
        status, log = running.end()
    assert status == 1
    assert "record 61: the feeder has closed the connection" in log


def test_feeder_that_falls_silent(caffe, tmp_path):
    images, labels = digits()
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        running = caffe(FED % feeder.address + REST, TL_PATIENCE="1")
        feeder.send(images, labels)
        status, log = running.end()
    assert status == 1
    assert "after record 60: the feeder has sent nothing for 1" in log


def test_feeder_that_fails_says_why(caffe, tmp_path):
    images, labels = digits()
    with (
        pytest.raises(KeyError),
        feeder_at(f"unix:{tmp_path}/feed.sock") as feeder,
    ):
        running = caffe(FED % feeder.address + REST)
        feeder.send(images, labels)
        raise KeyError("partition 7")
    status, log = running.end()
    assert status == 1
    assert "the feeder has failed: KeyError: 'partition 7'" in log


def test_end_of_the_data_before_the_end_of_the_training(caffe, tmp_path):
    images, labels = digits()
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        running = caffe(FED % feeder.address + REST)
        assert feeder.serve(images[:50], labels[:50], epochs=1) == 1
        status, log = running.end()
    assert status == 1
    assert "ended its data after 50 records, 10 of which do not fill a batch of 20" in log


def test_not_a_number(caffe, tmp_path):
    images, labels = digits()
    labels[3] = np.nan
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        running = caffe(FED % feeder.address + REST)
        feeder.send(images, labels)
        status, log = running.end()
    assert status == 1
    assert "record 4: value 0 of top 1 is nan" in log


def test_placeholders_are_this_workers(caffe, tmp_path):
    images, labels = digits()
    with feeder_at(f"unix:{tmp_path}/feed.1.of.2") as feeder:
        net = FED % f"unix:{tmp_path}/feed.{{rank}}.of.{{size}}" + REST
        running = caffe(net, iterations=5, TL_RANK="1", TL_SIZE="2")
        feeder.serve(images, labels)
        assert running.end()[0] == 0
    assert "TL_RANK does not say" in ended(caffe, net)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("unix:", "lmdb/"), "a feeder's address is unix:/path or tcp:host:port"),
        ((" shape { } }", " }"), "it has 2 tops and 1 shapes"),
        (("dim: 4 dim: 4", "dim: 4 dim: 0"), "dim: 0 is out of range"),
        (("batch_size: 20", ""), "batch_size must be 1 or more, and prefetch 1 to 1000"),
        (("scale: 0.00390625", "mirror: true"), "of transform_param it knows scale only"),
    ],
)
def test_mistakes_in_the_net_are_named(caffe, change, message):
    assert message in ended(caffe, (FED % "unix:/nowhere").replace(*change) + REST)


def test_stranger_that_is_no_feeder(caffe):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = caffe(FED % f"tcp:127.0.0.1:{listener.getsockname()[1]}" + REST)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            status, log = running.end()
    assert status == 1
    assert "this is no feeder" in log


def test_more_batches_ahead_than_there_is_memory_are_refused(caffe, tmp_path):
    net = FED.replace("batch_size: 20", "batch_size: 20 prefetch: 4000000000")
    assert "prefetch 1 to 1000" in ended(caffe, net % f"unix:{tmp_path}/feed.sock" + REST)


def test_ctrl_c_ends_a_wait_for_a_feeder(caffe, tmp_path):
    running = caffe(FED % f"unix:{tmp_path}/none.sock" + REST, TL_PATIENCE="600")
    assert running.interrupted_when("Creating layer data")
    status, log = running.end()
    assert status == 1
    assert "interrupted while no feeder listened there" in log


def test_ctrl_c_ends_a_wait_for_a_feeder_that_is_silent(caffe, tmp_path):
    images, labels = digits()
    with feeder_at(f"unix:{tmp_path}/feed.sock") as feeder:
        running = caffe(FED % feeder.address + REST, TL_PATIENCE="600", display=1)
        feeder.send(images, labels)
        assert running.interrupted_when("Iteration 2 ")
        status, log = running.end()
    assert status == 1
    assert "interrupted while the feeder sent nothing" in log
