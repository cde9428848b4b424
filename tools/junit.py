"""Test results as JUnit XML, which Bazel, gtest and pytest all write."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Case:
    name: str
    outcome: str
    message: str = ""


def _case(element: ET.Element) -> Case:
    group, name = element.get("classname", ""), element.get("name", "")
    name = f"{group}.{name}" if group and group != name else name
    children = {child.tag: child for child in element}
    for tag in ("failure", "error"):
        if tag in children:
            child = children[tag]
            return Case(name, FAILED, child.get("message") or (child.text or "").strip())
    # gtest marks a disabled test as not run, pytest and GTEST_SKIP with an element.
    if "skipped" in children:
        return Case(name, SKIPPED, children["skipped"].get("message") or "")
    if element.get("status") == "notrun":
        return Case(name, SKIPPED)
    return Case(name, PASSED)


def read(path: Path) -> list[Case]:
    return [_case(element) for element in ET.parse(path).iter("testcase")]


def write(path: Path, suite: str, cases: list[Case]) -> None:
    root = ET.Element("testsuite", name=suite, tests=str(len(cases)))
    for case in cases:
        element = ET.SubElement(root, "testcase", name=case.name)
        if case.outcome == FAILED:
            ET.SubElement(element, "failure", message=case.message)
        elif case.outcome == SKIPPED:
            ET.SubElement(element, "skipped", message=case.message)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
