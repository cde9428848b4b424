"""tl.Checkpoint: Keras's ModelCheckpoint, for the centre."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from tensorlightning import environment, trainings


class Checkpoint(keras.callbacks.ModelCheckpoint):
    """Saves what all workers have learned: rank 0 does, the others do nothing.

    >>> model.fit(x, y, callbacks=[tl.Elastic(), tl.Checkpoint("best.keras", save_best_only=True)])

    Takes what keras.callbacks.ModelCheckpoint takes. A model is written beside its place and then
    moved there, so that there is always a whole one. To go on from it, with any number of workers:

    >>> model = keras.models.load_model("best.keras")
    >>> model.fit(x, y, callbacks=[tl.Elastic()])
    """

    def save_now(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Whatever the frequency says."""
        self._save_model(epoch=epoch, batch=None, logs=dict(logs or {}))

    def _save_model(self, epoch: int, batch: int | None, logs: dict[str, Any]) -> None:
        if environment.rank() != 0:
            return
        path = Path(self._get_file_path(epoch, batch, logs))
        if not self._should_save_model(epoch, batch, logs, str(path)):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Keras tells formats by how names end.
        ending = ".weights.h5" if self.save_weights_only else path.suffix
        draft = path.with_name(f".{path.name}.draft{ending}")
        with trainings.centre_of(self.model):
            save = self.model.save_weights if self.save_weights_only else self.model.save
            save(draft, overwrite=True)
        draft.replace(path)
