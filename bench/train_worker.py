"""One worker of the benchmark of training: a process that lives through many runs.

It is asked in lines of JSON on stdin, and answers each with one line on stdout:

    {"do": "begin", "run": "a", "task": "cnn", "policy": "elastic", "rank": 0, "size": 4, "seed": 1,
     "rate": 0.06, "steps": 1600, "environment": {"TL_AGGREGATOR": ...}}
    {"do": "train", "run": "a", "until": 200}       -> {"seconds": 3.1, "loss": 0.52}
    {"do": "evaluate", "task": "cnn", "weights": PATH, "part": [0, 4]}
                                                    -> {"sum": 2210.0, "count": 2500}
    {"do": "weights", "run": "a", "path": PATH}     writes the worker's own weights there
    {"do": "end", "run": "a"}                       -> {"statistics": {...}}

Importing TensorFlow and tracing a model's step take longer than many a run: that is why. Two runs
may be under way at once, taking turns.
"""

import json
import os
import sys
import time
import traceback

import numpy as np
import train_models
from train_models import TASKS, Batches, Task

ALONE = ("one", "none")
EVALUATED_AT_ONCE = 500
# The share of the steps, at the start, in which the learning rate grows to its value.
WARM_UP = 0.05


def learning_rate(rate: float, step: int, steps: int) -> float:
    """Grows to `rate` and then falls to zero in a straight line."""
    warm = max(1, int(WARM_UP * steps))
    return rate * min((step + 1) / warm, (steps - step) / max(1, steps - warm))


class Replica:
    """A model with its optimizer and one traced step."""

    def __init__(self, task: Task):
        import keras

        self.model = task.build(keras)
        self.optimizer = task.make_optimizer(keras)
        self.optimizer.build(self.model.trainable_variables)
        self._blank = [variable.numpy() for variable in self.optimizer.variables]
        self.trace(task)

    def trace(self, task: Task) -> None:
        """Its step, anew: the optimizer may have become another."""
        import tensorflow as tf

        variables = self.model.trainable_variables

        @tf.function
        def step(records):
            inputs, targets = train_models.inputs_and_targets(task, records)
            with tf.GradientTape() as tape:
                loss = cross_entropy(targets, self.model(inputs, training=True))
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
            return loss

        self.step = step

    def reset(self, task: Task, seed: int) -> None:
        """To weights that depend on the seed alone, and an optimizer that has seen nothing."""
        import keras

        keras.utils.set_random_seed(seed)
        self.model.set_weights(task.build(keras).get_weights())
        for variable, value in zip(self.optimizer.variables, self._blank, strict=True):
            variable.assign(value)


def record_shape(task: Task):
    import tensorflow as tf

    return tf.TensorSpec((task.batch, task.data().train.shape[1]), tf.uint8)


def cross_entropy(targets, logits):
    import tensorflow as tf

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_mean(losses)


class Run:
    """A model on its way through its steps."""

    def __init__(self, request: dict, replica: Replica):
        self.task, self.replica = TASKS[request["task"]], replica
        self.steps, self.rate = request["steps"], request["rate"]
        self.done = 0
        self._batches = Batches(self.task, request["rank"], request["size"], request["seed"])
        replica.reset(self.task, request["seed"])
        # Traced before the clock runs, and before there is anybody to wait for.
        replica.step.get_concrete_function(record_shape(self.task))
        self._together = None
        if request["policy"] not in ALONE:
            settle_in(request["environment"])
            self._join()

    def _join(self) -> None:
        """As tl.exchanger and tl.DistributedOptimizer do, but the job's name is as we say."""
        from tensorlightning import optimizer
        from tensorlightning.averaging import Averaging
        from tensorlightning.gradient_averager import GradientAverager
        from tensorlightning.options import Options

        options, job = Options.make(), os.environ["TL_JOB"]
        weights, own = self.replica.model.trainable_variables, self.replica.optimizer
        if options.averages_gradients:
            averager = GradientAverager(options, job, optimizer.native_momentum(own, options))
            optimizer.hook_gradients(own, averager)
            averager.join(weights)
            self.replica.trace(self.task)
            self._together = averager
        else:
            self._together = Averaging(lambda: weights, options, job, own=False)
            self._together.begin()

    def train(self, until: int) -> dict:
        import tensorflow as tf

        loss, start = 0.0, time.monotonic()
        while self.done < until:
            self.replica.optimizer.learning_rate.assign(
                learning_rate(self.rate, self.done, self.steps)
            )
            loss = self.replica.step(tf.constant(next(self._batches)))
            self.done += 1
            if self._together:
                self._together.step(1)
        loss = float(loss)  # Waits for the last step.
        seconds = time.monotonic() - start
        if self._together:
            self._together.worker.settle()
        return {"seconds": seconds, "loss": loss}

    def end(self) -> dict:
        if not self._together:
            return {"statistics": {}}
        statistics = self._together.statistics()
        if self.by_gradient:
            self._together.finish(self.replica.model.trainable_variables, own=False)
        else:
            self._together.finish()
        return {"statistics": statistics}

    @property
    def by_gradient(self) -> bool:
        return hasattr(self._together, "momentum")


def settle_in(environment: dict[str, str]) -> None:
    """TL_* are those of this run alone."""
    kept = ("TL_TF_LIBRARY", "TL_PROGRAMS")
    for name in [name for name in os.environ if name.startswith("TL_") and name not in kept]:
        del os.environ[name]
    os.environ.update(environment)


class Worker:
    def __init__(self):
        self._runs: dict[str, Run] = {}
        self._idle: dict[str, list[Replica]] = {}
        self._judges: dict[str, object] = {}

    def begin(self, request: dict) -> dict:
        name = request["task"]
        idle = self._idle.get(name)
        replica = idle.pop() if idle else Replica(TASKS[name])
        self._runs[request["run"]] = Run(request, replica)
        sizes = [int(np.prod(variable.shape)) for variable in replica.model.trainable_variables]
        return {"parameters": sum(sizes), "sizes": sizes}

    def train(self, request: dict) -> dict:
        return self._runs[request["run"]].train(request["until"])

    def weights(self, request: dict) -> dict:
        variables = self._runs[request["run"]].replica.model.trainable_variables
        flat = [np.ravel(variable.numpy()) for variable in variables]
        np.save(request["path"], np.concatenate(flat))
        return {}

    def end(self, request: dict) -> dict:
        run = self._runs.pop(request["run"])
        ended = run.end()
        # Its optimizer would be hooked twice.
        if not run.by_gradient:
            self._idle.setdefault(run.task.name, []).append(run.replica)
        return ended

    def evaluate(self, request: dict) -> dict:
        """A part of the test: right answers, or bits, and of how many."""
        import keras

        task = TASKS[request["task"]]
        if task.name not in self._judges:
            self._judges[task.name] = Judge(task, task.build(keras))
        return self._judges[task.name].judge(np.load(request["weights"]), *request["part"])

    def answer(self, request: dict) -> dict:
        return getattr(self, request["do"])(request)


class Judge:
    """Tests given weights, apart from any that are being trained."""

    def __init__(self, task: Task, model):
        import tensorflow as tf

        self._task, self._model = task, model

        @tf.function(reduce_retracing=True)
        def score(records):
            inputs, targets = train_models.inputs_and_targets(task, records)
            logits = model(inputs, training=False)
            if task.more_is_better:
                return tf.math.count_nonzero(tf.argmax(logits, -1, tf.int32) == targets)
            count = tf.cast(tf.size(targets), tf.float32)
            return cross_entropy(targets, logits) * count / tf.math.log(2.0)

        self._score = score

    def judge(self, flat: np.ndarray, part: int, parts: int) -> dict:
        begin = 0
        for variable in self._model.trainable_variables:
            size = int(np.prod(variable.shape))
            variable.assign(flat[begin : begin + size].reshape(variable.shape))
            begin += size
        records = self._task.data().test[part::parts]
        batches = np.array_split(records, -(-len(records) // EVALUATED_AT_ONCE))
        total = sum(float(self._score(batch)) for batch in batches)
        per_record = 1 if self._task.more_is_better else records.shape[1] - 1
        return {"sum": total, "count": len(records) * per_record}


def serve() -> None:
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
