"""Where tests of tlrun find tl-aggregator."""

import pytest
from integration import processes


@pytest.fixture(scope="session")
def programs() -> str:
    """The folder of tl-aggregator, for TL_PROGRAMS."""
    return str(processes.folder_of_programs())
