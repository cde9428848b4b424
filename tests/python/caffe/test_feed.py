"""What Feeder sends, to a layer that is just a socket here; tests/caffe_layers has the real one."""

import socket
import threading

import numpy as np
import pytest
from tensorlightning.caffe.feed import Feeder, HungUpError

LABEL = {"label": ((), "float32")}


def connected(feeder: Feeder) -> socket.socket:
    layer = socket.socket(socket.AF_UNIX)
    layer.connect(feeder.address.removeprefix("unix:"))
    return layer


@pytest.fixture
def address(tmp_path) -> str:
    return f"unix:{tmp_path}/feed.sock"


def test_bytes_are_those_of_the_readme(address):
    with Feeder(address, **LABEL) as feeder, connected(feeder) as layer:
        feeder.send([3.0])
        feeder.end()
        feeder.close()
        sent = layer.makefile("rb").read()
    assert sent == bytes.fromhex(
        "544c4644 0100 01 00 00 00 0000 01000000 01000000 00004040 03000000 00000000"
    )


def test_records_have_their_tops_one_after_the_other(address):
    tops = {"data": ((2,), "uint8"), **LABEL}
    with Feeder(address, **tops) as feeder, connected(feeder) as layer:
        feeder.send(np.array([[1, 2], [3, 4]], np.uint8), [0.0, 3.0])
        feeder.close()
        sent = layer.makefile("rb").read()
    assert sent.endswith(bytes.fromhex("0102 00000000 0304 00004040"))


def test_epochs_are_served_until_the_layer_hangs_up(address):
    with Feeder(address, **LABEL) as feeder, connected(feeder) as layer:
        done = []
        values = np.zeros(1000)
        thread = threading.Thread(target=lambda: done.append(feeder.serve(values)))
        thread.start()
        for _ in range(100):
            assert layer.recv(65536)
        layer.close()
        thread.join(20)
    assert done and done[0] > 0


def test_sending_to_nobody_is_an_error(address):
    with Feeder(address, patience=0.1, **LABEL) as feeder:
        with pytest.raises(TimeoutError, match=r"no SocketData layer has connected to .* 0.1 s"):
            feeder.send([1.0])
        connected(feeder).close()
        with pytest.raises(HungUpError, match="has closed the connection"):
            for _ in range(100):
                feeder.send(np.zeros(100_000))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([[[1, 2]]], "1 arrays for 2 tops: data, label"),
        ([np.zeros((1, 3), np.uint8), [1]], r"data has shape \(1, 3\), and should have \(1, 2\)"),
        ([np.zeros((2, 2), np.uint8), [1]], r"label has shape \(1,\), and should have \(2,\)"),
        ([np.zeros((1, 2)), [1]], "data is sent as uint8, and given as float64"),
    ],
)
def test_arrays_that_are_no_records_are_refused(address, arrays, message):
    with (
        Feeder(address, data=((2,), "uint8"), **LABEL) as feeder,
        pytest.raises(ValueError, match=message),
    ):
        feeder.send(*arrays)


@pytest.mark.parametrize("wrong", ["feed.sock", "unix:", "tcp:host", "tcp:host:port", ""])
def test_what_is_no_address_is_refused(wrong):
    with pytest.raises(ValueError, match="is no address: unix:/path or tcp:host:port"):
        Feeder(wrong, **LABEL)


def test_tops_that_cannot_be_sent_are_refused(address):
    with pytest.raises(ValueError, match="data is float64: it can be float32 or uint8"):
        Feeder(address, data=((), "float64"))
    with pytest.raises(ValueError, match="0 tops"):
        Feeder(address)


def test_epoch_without_records_is_refused(address):
    with Feeder(address, **LABEL) as feeder, pytest.raises(ValueError, match="without records"):
        feeder.end_epoch()


def test_socket_of_an_earlier_feeder_is_replaced_and_a_file_is_not(address, tmp_path):
    Feeder(address, **LABEL)._listener.close()
    Feeder(address, **LABEL).close()
    assert not (tmp_path / "feed.sock").exists()
    (tmp_path / "feed.sock").write_text("mine")
    with pytest.raises(OSError, match="in use"):
        Feeder(address, **LABEL)
    assert (tmp_path / "feed.sock").read_text() == "mine"


def test_socket_of_a_feeder_that_listens_is_not_taken_from_it(address):
    with Feeder(address, **LABEL) as feeder:
        with pytest.raises(OSError, match="another feeder listens there"):
            Feeder(address, **LABEL)
        # Nor was anybody taken for its layer.
        feeder._listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            feeder._listener.accept()
