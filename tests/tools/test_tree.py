"""What must hold for every file of the repository."""

import re

# The brackets keep this file from naming what it looks for.
MACHINE_PATHS = re.compile(rb"(?<![\w.$}])/(r[o]ot|h[o]me|w[o]rk|m[n]t)/\w")
HOSTS = re.compile(rb"py[p]i\.org|python[h]osted|deb[.]debian")


def tracked(root, run):
    files = run("git", "ls-files", "-z").stdout.split("\0")
    return [root / file for file in files if file and (root / file).is_file()]


def test_no_file_names_a_path_of_a_machine_or_a_registry(root, run):
    files = tracked(root, run)
    assert files
    wrong = [
        f"{file.relative_to(root)}: {match[0].decode()}"
        for file in files
        for pattern in (MACHINE_PATHS, HOSTS)
        for match in pattern.finditer(file.read_bytes())
    ]
    assert not wrong


def test_scripts_are_executable(root, run):
    scripts = [file for file in tracked(root, run) if file.read_bytes().startswith(b"#!")]
    assert [str(file) for file in scripts if not file.stat().st_mode & 0o111] == []
