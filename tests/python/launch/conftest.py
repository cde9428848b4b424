"""Where tests of tlrun find tl-aggregator. They need neither TensorFlow nor our ops."""

import pytest
from integration import processes


@pytest.fixture(scope="session", autouse=True)
def only_the_library_is_given() -> None:
    """Instead of the one for tests of the ops, which builds them."""


@pytest.fixture(scope="session")
def programs() -> str:
    """The folder of tl-aggregator, for TL_PROGRAMS."""
    return str(processes.folder_of_programs())
