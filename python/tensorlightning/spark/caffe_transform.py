"""What transform_param of a data layer does to images, done to rows.

    Transform.read(layer.message("transform_param"))(rows, random)

As in Caffe: cropped, mirrored, then (row - mean) * scale. In phase TRAIN, which is where there is
`random`, places of crops and who is mirrored are random; else crops are from the middle.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorlightning.caffe.models import Floats, read_blob
from tensorlightning.caffe.prototxt import Message

_KNOWN = ("scale", "mirror", "crop_size", "mean_file", "mean_value")
# These are about files of images.
_LEFT_OUT = ("force_color", "force_gray")


@dataclass(frozen=True)
class Transform:
    scale: float = 1.0
    mirror: bool = False
    crop: int = 0
    # (channels or 1, 1, 1), or of the shape of a row.
    mean: Floats | None = None

    @classmethod
    def read(cls, param: Message) -> "Transform":
        """A ValueError for what it can't do, an OSError for a mean_file that can't be read."""
        names = {each.name for each in param.fields}
        if unknown := sorted(names - {*_KNOWN, *_LEFT_OUT}):
            raise ValueError(f"transform_param has {unknown[0]}, which is not known here")
        for name in sorted(names & set(_LEFT_OUT)):
            warnings.warn(f"{name} is left out: rows are as they are", stacklevel=5)
        return cls(
            scale=float(param.value("scale", 1.0)),
            mirror=bool(param.value("mirror", False)),
            crop=int(param.value("crop_size", 0)),
            mean=_mean(param),
        )

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of a row, (channels, height, width). A ValueError if it can't be transformed."""
        channels, height, width = shape
        if self.crop > min(height, width):
            raise ValueError(f"crop_size {self.crop} of rows of {height} x {width}")
        if self.mean is not None:
            try:
                fits = np.broadcast_shapes(self.mean.shape, shape) == shape
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(f"a mean of shape {self.mean.shape} for rows of shape {shape}")
        return (channels, self.crop, self.crop) if self.crop else shape

    def __call__(
        self, rows: NDArray[Any], random: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """Of (count, channels, height, width). The rows stay as they are."""
        changed = self.mean is not None or self.scale != 1.0 or self.mirror
        out = rows.astype(np.float32) if changed else np.asarray(rows, np.float32)
        if self.mean is not None:
            out -= self.mean
        if self.crop:
            out = self._cropped(out, random)
        if self.mirror and random is not None:
            chosen = random.integers(0, 2, len(out)).astype(bool)
            out[chosen] = out[chosen][..., ::-1]
        if self.scale != 1.0:
            out *= np.float32(self.scale)
        return np.ascontiguousarray(out)

    def _cropped(
        self, rows: NDArray[np.float32], random: np.random.Generator | None
    ) -> NDArray[np.float32]:
        room = np.array(rows.shape[2:]) - self.crop
        if random is None:
            top, left = room // 2
            return rows[:, :, top : top + self.crop, left : left + self.crop]
        out = np.empty((*rows.shape[:2], self.crop, self.crop), np.float32)
        corners = random.integers(0, room + 1, (len(rows), 2))
        for cropped, row, (top, left) in zip(out, rows, corners, strict=True):
            cropped[...] = row[:, top : top + self.crop, left : left + self.crop]
        return out


def _mean(param: Message) -> Floats | None:
    file, values = param.value("mean_file"), param.values("mean_value")
    if file and values:
        raise ValueError("transform_param has both mean_file and mean_value")
    if file:
        image = read_blob(file)
        return image.reshape(image.shape[-3:])
    return np.array(values, np.float32).reshape(-1, 1, 1) if values else None
