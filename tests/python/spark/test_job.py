"""What a job makes of errors, without a cluster."""

from tensorlightning.spark import job

PYTHON_ERROR = """An exception was thrown from the Python worker.
  File "/usr/lib/spark/python/pyspark/serializers.py", line 471, in loads
ModuleNotFoundError: No module named 'numpy'
"""


def test_a_python_that_lacks_something_is_told_of():
    assert "no module 'numpy': the variable PYSPARK_PYTHON" in job._missing_module(PYTHON_ERROR)
    assert job._missing_module("java.net.SocketException: Socket is closed") == ""
