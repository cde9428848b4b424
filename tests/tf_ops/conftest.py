"""The ops as tf.load_op_library() gives them."""

from pathlib import Path
from types import ModuleType

import pytest
import tf_library


@pytest.fixture(scope="session")
def library() -> Path:
    return tf_library.library()


@pytest.fixture(scope="session")
def ops(library) -> ModuleType:
    import tensorflow as tf

    return tf.load_op_library(str(library))
