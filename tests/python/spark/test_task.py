"""What a task tells the driver of its end, without a cluster."""

from tensorlightning.spark import task

GRAPH_ERROR = """Graph execution error:

Detected at node compile_loss/sparse_softmax defined at (most recent call last):
  File "train.py", line 3, in <module>

Received a label value of 7 which is outside the valid range of [0, 3).
\t [[{{node compile_loss/sparse_softmax}}]] [Op:__inference_one_step_1234]"""


def test_of_an_error_in_a_graph_its_sentence_is_told():
    failure = task._failure(RuntimeError(GRAPH_ERROR))
    assert failure["error"] == (
        "RuntimeError: Received a label value of 7 which is outside the valid range of [0, 3)."
    )
    assert failure["fatal"] is False


def test_of_an_error_in_an_op_its_sentence_is_told():
    wrapped = (
        "{{function_node __wrapped__TlJoined_N_4}} the aggregator says no [Op:TlJoined] name: "
    )
    assert task._failure(RuntimeError(wrapped))["error"] == "RuntimeError: the aggregator says no"


def test_what_would_be_wrong_in_every_attempt_is_fatal():
    assert task._failure(ValueError("a row"))["fatal"]
    assert task._failure(type("PermissionDeniedError", (Exception,), {})("other model"))["fatal"]
    assert task._failure(type("InvalidArgumentError", (Exception,), {})("a label"))["fatal"]
    assert not task._failure(ConnectionError("lost"))["fatal"]
