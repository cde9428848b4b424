"""Programs are built before the first test; after each test, those that it forgot are ended."""

import pytest
from integration import processes


@pytest.fixture(scope="session", autouse=True)
def programs_are_built() -> None:
    processes.folder_of_programs()


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    before = list(processes.alive)  # Of a fixture that outlives the test.
    yield
    for program in list(processes.alive):
        if program not in before:
            program.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    for program in processes.alive:
        log = program.log()[-processes.LOG_END_BYTES :]
        report.sections.append((f"log of {program.name}, process {program.pid}", log))
