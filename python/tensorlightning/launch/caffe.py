"""Workers that are Caffe: the plugin is loaded into the stock binary, so that nobody has to."""

from collections.abc import Mapping
from pathlib import Path

from tensorlightning import _files
from tensorlightning.launch.programs import ProgramMissingError

PLUGIN = "libtensorlightning_caffe.so"
VARIABLE = "TL_CAFFE_PLUGIN"
_ELF = b"\x7fELF"


def is_caffe(program: str) -> bool:
    """By its name: caffe, caffe.bin, caffe-d."""
    name = Path(program).name
    return name.startswith("caffe") and name[5:6] in ("", ".", "-")


def find_plugin(environment: Mapping[str, str]) -> Path:
    """$TL_CAFFE_PLUGIN, else beside the package."""
    given = environment.get(VARIABLE)
    if given and Path(given).is_file():
        return Path(given).absolute()
    if given:
        raise ProgramMissingError(f"{VARIABLE}={given} names no file")
    if own := _files.find(PLUGIN):
        return own
    raise ProgramMissingError(
        f"the plugin for Caffe is not built: there is no {_files.PACKAGE / PLUGIN}; "
        "in a clone, `make caffe` builds it"
    )


def loaded(program: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment of a program that is started; nothing unless it is Caffe.

    A script that starts Caffe must not have the plugin itself: it is told where it is, and gives it
    to Caffe as .caffe/bin/caffe does.
    """
    if not is_caffe(program):
        return {}
    plugin = str(find_plugin(environment))
    if " " in plugin or ":" in plugin:
        raise ProgramMissingError(
            f"{plugin} can't be loaded into Caffe: LD_PRELOAD takes no path with a blank or a colon"
        )
    if not _is_binary(program):
        return {VARIABLE: plugin}
    others = environment.get("LD_PRELOAD")
    return {VARIABLE: plugin, "LD_PRELOAD": f"{plugin}:{others}" if others else plugin}


def _is_binary(program: str) -> bool:
    try:
        with Path(program).open("rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False
