"""Builds the wheel: the Python package with the ops, tl-aggregator and tlrun.

In a folder of its own, so that nothing of an earlier build gets in. Downloads nothing.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/tensorlightning"
LIBRARY = "libtensorlightning_tf.so"
AGGREGATOR = "bin/tl-aggregator"


def stage(folder: Path, library: Path, aggregator: Path) -> None:
    """The sources and what was built, as they will be in the wheel."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", LIBRARY, "bin")
    shutil.copytree(ROOT / "python", folder, ignore=ignored)
    for text in ("LICENSE", "README.md"):
        shutil.copy(ROOT / text, folder)
    for built, place in ((library, LIBRARY), (aggregator, AGGREGATOR)):
        copy = folder / "tensorlightning" / place
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(built, copy)
        copy.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)


def build(folder: Path, out: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="tensorlightning-wheel-") as made:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made]
        ran = subprocess.run([*command, str(folder)], capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"wheel: it does not build\n{ran.stdout}{ran.stderr}")
        (wheel,) = Path(made).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, default=PACKAGE / LIBRARY)
    parser.add_argument("--aggregator", type=Path, default=PACKAGE / AGGREGATOR)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel")
    options = parser.parse_args()
    for built in (options.library, options.aggregator):
        if not built.is_file():
            parser.error(f"{built} is not there: run `make tf`")
    with tempfile.TemporaryDirectory(prefix="tensorlightning-wheel-") as folder:
        staged = Path(folder) / "python"
        stage(staged, options.library, options.aggregator)
        wheel = build(staged, options.out)
    print(f"wheel: {wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
