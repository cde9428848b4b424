"""Makes the LMDBs of this example, out/train_lmdb and out/test_lmdb, from Debian's Fashion-MNIST.

Caffe's own convert_mnist_data does it: the files have MNIST's format.
"""

import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONVERTER = HERE.parent.parent / ".caffe/bin/convert_mnist_data"
SOURCE = Path("/usr/share/datasets/fashion-mnist")  # Debian package dataset-fashion-mnist
PARTS = {"train": "train", "test": "t10k"}


def make(folder: Path) -> None:
    """Does nothing when they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        target = folder / f"{name}_lmdb"
        if (target / "data.mdb").exists():
            continue
        with tempfile.TemporaryDirectory(dir=folder) as made:
            files = []
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
                files.append(Path(made) / kind)
                with (
                    gzip.open(SOURCE / f"{part}-{kind}.gz") as packed,
                    files[-1].open("wb") as plain,
                ):
                    shutil.copyfileobj(packed, plain)
            lmdb = Path(made) / "lmdb"
            command = [CONVERTER, "--backend=lmdb", *files, lmdb]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            # Whole, or not at all.
            shutil.rmtree(target, ignore_errors=True)
            lmdb.rename(target)


if __name__ == "__main__":
    try:
        make(HERE / "out")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"data.py: {error} (make caffe installs Caffe and the images)")
