"""What both sides' drivers have: a SparkSession, and requests in lines of JSON.

{"do": "begin", "master": "spark://...", "address": "10.231.0.1"}
{"do": "prepare", "side": "sync", "seed": 1, "epochs": 5, "batch": 64, "folder": PARQUET}
{"do": "fit"}                   -> {"seconds": 31.0, "samples": 300000}
{"do": "test", "rows": 10000}   -> {"accuracy": 89.1}
{"do": "end"}
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable

import spark_data
from spark_data import WORKERS


class SparkDriver:
    """Answers each request by the method of its name."""

    def begin(self, request: dict) -> dict:
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.host": request["address"],
            "spark.driver.bindAddress": request["address"],
            "spark.driver.memory": request["driver_memory"],
            "spark.executor.memory": request["executor_memory"],
            "spark.executor.cores": "1",
            "spark.cores.max": str(WORKERS),
            # Nothing begins before all workers can.
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
        builder = SparkSession.builder.master(request["master"]).appName("bench-spark")
        self.spark = builder.config(map=settings).getOrCreate()
        return {}

    def prepare(self, request: dict) -> dict:
        """Everything that is not training: what it has to train, and from what."""
        self._fit: Callable[[], object] = getattr(self, f"prepare_{request['side']}")(request)
        self._samples = request["rows"] * request["epochs"]
        return {}

    def fit(self, _request: dict) -> dict:
        begin = time.monotonic()
        self._model = self._fit()
        return {"seconds": time.monotonic() - begin, "samples": self._samples}

    def test(self, request: dict) -> dict:
        return {"accuracy": spark_data.accuracy(self._model, request["rows"])}

    def end(self, _request: dict) -> dict:
        self.spark.stop()
        return {}

    def serve(self) -> None:
        # What libraries print must not come between the answers.
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        for line in sys.stdin:
            try:
                request = json.loads(line)
                answer = getattr(self, request["do"])(request)
            except Exception as error:
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
