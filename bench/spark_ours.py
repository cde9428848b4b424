"""The driver of our side: tl.spark.ElasticTrainer, and how fast rows are fed."""

import functools
from collections.abc import Callable

import spark_data
import spark_feed
from spark_data import WORKERS
from spark_driver import SparkDriver


class Ours(SparkDriver):
    def prepare_ours(self, request: dict) -> Callable[[], object]:
        """From Parquet, which every executor can read."""
        return self._trainer(request, self.spark.read.parquet(request["folder"]))

    prepare_ours_often = prepare_silent = prepare_ours  # With other settings.

    def prepare_ours_from_driver(self, request: dict) -> Callable[[], object]:
        """From arrays in the driver."""
        import pandas

        images, labels = spark_data.training(request["rows"])
        columns = {"image": [row.tobytes() for row in images], "label": labels}
        return self._trainer(request, self.spark.createDataFrame(pandas.DataFrame(columns)))

    def _trainer(self, request: dict, frame) -> Callable[[], object]:
        from tensorlightning.spark import ElasticTrainer

        trainer = ElasticTrainer(
            functools.partial(
                spark_data.build_model, request["seed"], request["rate"], request["steps"]
            ),
            workers=WORKERS,
            epochs=request["epochs"],
            batch_size=request["batch"],
            features="image",
            label="label",
            seed=request["seed"],
            progress=False,
            **request["settings"],
        )

        def fit():
            fitted = trainer.fit(frame)
            trained = fitted.record["samples"]
            if trained != request["rows"] * request["epochs"]:
                raise RuntimeError(f"only {trained} samples were trained on")
            return fitted.model

        return fit

    def feed(self, request: dict) -> dict:
        frame = self.spark.read.parquet(request["folder"])
        return spark_feed.measure(frame, request["copies"], request["rounds"], request["batch"])


if __name__ == "__main__":
    Ours().serve()
