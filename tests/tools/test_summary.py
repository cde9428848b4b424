"""The counts that `make test` ends with."""

import importlib.util
import json
from pathlib import Path

import junit
import pytest
from junit import FAILED, PASSED, SKIPPED, Case


@pytest.fixture(scope="module")
def test_py():
    # Not `import test`: Python has a package of that name.
    path = Path(junit.__file__).with_name("test.py")
    spec = importlib.util.spec_from_file_location("tools_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GTEST = """<testsuites><testsuite name="Select">
  <testcase name="KeepsLargest" status="run" result="completed" classname="Select"/>
  <testcase name="Breaks" status="run" classname="Select"><failure message="1 vs 2"/></testcase>
  <testcase name="DISABLED_Old" status="notrun" classname="Select"/>
  <testcase name="NeedsAvx512" status="run" classname="Select"><skipped message="no"/></testcase>
</testsuite></testsuites>"""


def events(folder, *results, extra=()):
    """A Bazel report with one test for each (label, status, xml or None)."""
    lines = list(extra)
    for number, (label, status, xml) in enumerate(results):
        outputs = []
        if xml:
            path = folder / f"{number}.xml"
            path.write_text(xml)
            outputs = [{"name": "test.xml", "uri": path.as_uri()}]
        lines += [
            configured(label),
            {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True}},
            {
                "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": 1}},
                "testResult": {"status": status, "testActionOutput": outputs},
            },
        ]
    report = folder / "report"
    report.write_text("\n".join(json.dumps(line) for line in lines))
    return report


def configured(label):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "MEDIUM"}}


def stage(test_py, read):
    return test_py.Stage("stage", [], read)


def test_gtest_cases_are_told_apart(tmp_path):
    path = tmp_path / "test.xml"
    path.write_text(GTEST)
    assert junit.read(path) == [
        Case("Select.KeepsLargest", PASSED),
        Case("Select.Breaks", FAILED, "1 vs 2"),
        Case("Select.DISABLED_Old", SKIPPED),
        Case("Select.NeedsAvx512", SKIPPED, "no"),
    ]


def test_written_cases_are_read_back(tmp_path):
    cases = [Case("a", PASSED), Case("b", FAILED, "why"), Case("c", SKIPPED)]
    junit.write(tmp_path / "x.xml", "suite", cases)
    assert junit.read(tmp_path / "x.xml") == cases


def test_bazel_cases_carry_their_label(test_py, tmp_path):
    cases = test_py.read_bazel(events(tmp_path, ("//a:b", "FAILED", GTEST)))
    assert test_py.summary(cases) == "1 passed, 1 failed, 2 skipped"
    assert cases[1].name == "//a:b Select.Breaks"


def test_a_test_that_times_out_without_a_failing_case_is_a_failure(test_py, tmp_path):
    assert test_py.read_bazel(events(tmp_path, ("//a:b", "TIMEOUT", None))) == [
        Case("//a:b", FAILED, "timeout")
    ]


def test_a_test_that_does_not_compile_is_a_failure(test_py, tmp_path):
    broken = {"id": {"targetCompleted": {"label": "//a:broken"}}, "completed": {}}
    report = events(tmp_path, ("//a:b", "FAILED", GTEST), extra=[configured("//a:broken"), broken])
    cases = test_py.read_bazel(report)
    assert cases[-1] == Case("//a:broken", FAILED, "does not build")
    assert test_py.summary(cases) == "1 passed, 2 failed, 2 skipped"


def test_a_test_without_its_toolkit_is_skipped(test_py, tmp_path):
    skipped = {"id": {"targetCompleted": {"label": "//a:cuda"}}, "aborted": {"reason": "SKIPPED"}}
    report = events(tmp_path, extra=[configured("//a:cuda"), skipped])
    assert test_py.read_bazel(report) == [Case("//a:cuda", SKIPPED, test_py.LACKING)]


def test_a_stage_that_fails_without_a_failing_case_is_one_failure(test_py, tmp_path):
    report = tmp_path / "report"
    junit.write(report, "stage", [Case("a", PASSED)])
    cases = test_py.judge(stage(test_py, junit.read), 2, report)
    assert test_py.summary(cases) == "1 passed, 1 failed"


@pytest.mark.parametrize("text", [None, "", "<testsuite>", "{"])
@pytest.mark.parametrize("reader", ["xml", "bazel"])
def test_a_missing_or_broken_report_is_one_failure(test_py, tmp_path, text, reader):
    report = tmp_path / "report"
    if text is not None:
        report.write_text(text)
    read = junit.read if reader == "xml" else test_py.read_bazel
    assert test_py.summary(test_py.judge(stage(test_py, read), 0, report)) == "0 passed, 1 failed"


def test_a_stage_that_ran_nothing_is_one_failure(test_py, tmp_path):
    junit.write(tmp_path / "report", "stage", [])
    cases = test_py.judge(stage(test_py, junit.read), 0, tmp_path / "report")
    assert test_py.summary(cases) == "0 passed, 1 failed"
