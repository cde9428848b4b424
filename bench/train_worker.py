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

# Policies that talk to an aggregator by their gradients.
GRADIENT_POLICIES = ("gradient", "gradient-async")
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
        self.step = self._make_step(task)

    def _make_step(self, task: Task):
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

        return step

    def reset(self, task: Task, seed: int) -> None:
        """To weights that depend on the seed alone, and an optimizer that has seen nothing."""
        import keras

        keras.utils.set_random_seed(seed)
        self.model.set_weights(task.build(keras).get_weights())
        for variable, value in zip(self.optimizer.variables, self._blank, strict=True):
            variable.assign(value)


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
        rank, size = request["rank"], request["size"]
        self._batches = Batches(self.task, rank, size, request["seed"])
        replica.reset(self.task, request["seed"])
        self._exchange = None
        policy = request["policy"]
        if policy not in ALONE:
            os.environ.update(request["environment"])
            self._join(policy)
        # Traced before the clock runs.
        self._warm_up()

    def _join(self, policy: str) -> None:
        import tensorlightning as tl

        if policy in GRADIENT_POLICIES:
            self._exchange = None
            tl.DistributedOptimizer(self.replica.optimizer)
        else:
            self._exchange = tl.exchanger(self.replica.model.trainable_variables)

    def _warm_up(self) -> None:
        self.replica.step.get_concrete_function(self._next_signature())

    def _next_signature(self):
        import tensorflow as tf

        width = self.task.data().train.shape[1]
        return tf.TensorSpec((self.task.batch, width), tf.uint8)

    def train(self, until: int) -> dict:
        import tensorflow as tf

        losses = []
        start = time.monotonic()
        while self.done < until:
            self.replica.optimizer.learning_rate.assign(
                learning_rate(self.rate, self.done, self.steps)
            )
            losses.append(self.replica.step(tf.constant(next(self._batches))))
            self.done += 1
            if self._exchange:
                self._exchange()
        loss = float(losses[-1]) if losses else 0.0  # Waits for the last step.
        return {"seconds": time.monotonic() - start, "loss": loss}

    def end(self) -> dict:
        if not self._exchange:
            return {"statistics": {}}
        self._exchange.finish()
        return {"statistics": self._exchange.statistics()}


class Worker:
    def __init__(self):
        self._runs: dict[str, Run] = {}
        self._idle: dict[str, list[Replica]] = {}
        self._judges: dict[str, object] = {}

    def begin(self, request: dict) -> dict:
        name = request["task"]
        fresh = request["policy"] in GRADIENT_POLICIES or not self._idle.get(name)
        replica = Replica(TASKS[name]) if fresh else self._idle[name].pop()
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
        if type(run.replica.optimizer).__module__.startswith("keras"):
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
