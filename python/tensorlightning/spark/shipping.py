"""Has executors import this package from the archive that the driver imports it from.

Spark sends all files of --py-files to executors, but of archives it puts only these on their path,
and a wheel is none of them:
"""

from typing import TYPE_CHECKING

from tensorlightning import _files

if TYPE_CHECKING:
    from pyspark import SparkContext

ON_THE_PATH = (".zip", ".egg", ".jar")


def ship(context: "SparkContext") -> None:
    """To be called before tasks are made. Where the package is installed, executors have it too."""
    archive = _files.archive()
    if archive is None:
        return
    fits = archive.suffix in ON_THE_PATH
    name = archive.name if fits else f"{archive.stem}.zip"
    if name not in [added.rpartition("/")[2] for added in context.listFiles]:
        context.addPyFile(str(archive if fits else _files.keep(name, archive.read_bytes())))
