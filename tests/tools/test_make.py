import re


def test_help_lists_every_target_with_one_line_each(root, run):
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    listed = [line.split()[1] for line in run("make", "help").stdout.splitlines()]
    assert listed == phony[1].split()


def test_help_is_the_default_goal(run):
    assert run("make").stdout == run("make", "help").stdout


def test_every_rule_is_phony(root):
    makefile = (root / "Makefile").read_text()
    rules = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert rules == re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
