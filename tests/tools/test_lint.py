"""What lint remembers as clean, and when it looks again."""

import lint
import pytest

ENTRY = {"file": "tools/fuzz/replay_main.cc", "arguments": ["clang++", "-c"]}


@pytest.mark.parametrize("name", ["version", "configuration"])
def test_another_tool_or_configuration_means_looking_again(monkeypatch, name):
    before = lint.key(ENTRY)
    assert lint.key(ENTRY) == before
    now = getattr(lint, name)()
    monkeypatch.setattr(lint, name, lambda: now[:-1])
    assert lint.key(ENTRY) != before


def test_other_flags_mean_looking_again_but_another_clones_folders_do_not():
    flags = ENTRY["arguments"]
    bazel = {**ENTRY, "arguments": [*flags, "-I/somewhere/external/googletest"]}
    assert lint.key(bazel) == lint.key(ENTRY)
    assert lint.key({**ENTRY, "arguments": [*flags, "-O3"]}) != lint.key(ENTRY)
