"""One process of TensorFlow's own strategies: the same models, loops of our own, tf_keras.

TF_CONFIG says which. A parameter server, or a worker of ParameterServerStrategy, only serves. Its
coordinator, and every worker of MultiWorkerMirroredStrategy, is asked in lines of JSON:

    {"do": "begin", "task": "cnn", "seed": 1, "rate": 0.03, "steps": 1600}
    {"do": "train", "until": 200}     -> {"seconds": 3.1, "loss": 0.52}; steps of each worker
"""

import json
import os
import sys
import time
import traceback

import tensorflow as tf
import tf_keras
import train_models
from train_models import TASKS, Batches, Task
from train_worker import cross_entropy, learning_rate

CLUSTER = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {}, "task": {"type": ""}}'))
ROLE = CLUSTER["task"]["type"]
WORKERS = len(CLUSTER["cluster"].get("worker", []))
SHUFFLED = 4096  # records at a time; they have been shuffled as a whole before


class Training:
    """A model and its optimizer under a strategy."""

    def __init__(self, strategy, request: dict):
        self.task: Task = TASKS[request["task"]]
        self.steps, self.rate, self.done = request["steps"], request["rate"], 0
        self.strategy = strategy
        tf_keras.utils.set_random_seed(request["seed"])
        with strategy.scope():
            self.model = self.task.build(tf_keras)
            self.optimizer = self.task.make_optimizer(tf_keras)
            self.optimizer.build(self.model.trainable_variables)

    def step(self, records):
        """One replica's, inside of strategy.run."""
        inputs, targets = train_models.inputs_and_targets(self.task, records)
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = cross_entropy(targets, self.model(inputs, training=True))
            # Gradients of replicas are summed.
            scaled = loss / self.strategy.num_replicas_in_sync
        gradients = tape.gradient(scaled, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def schedule_rate(self) -> None:
        self.optimizer.learning_rate.assign(learning_rate(self.rate, self.done, self.steps))


class Mirrored(Training):
    """A worker of MultiWorkerMirroredStrategy: all take each step together."""

    def __init__(self, strategy, request: dict):
        super().__init__(strategy, request)
        rank = CLUSTER["task"]["index"]
        self._batches = Batches(self.task, rank, WORKERS, request["seed"])

        @tf.function
        def all_step(records):
            return strategy.run(self.step, args=(records,))

        self._step = all_step

    def train(self, request: dict) -> dict:
        loss, start = 0.0, time.monotonic()
        while self.done < request["until"]:
            self.schedule_rate()
            loss = self._step(tf.constant(next(self._batches)))
            self.done += 1
        loss = float(loss)
        return {"seconds": time.monotonic() - start, "loss": loss}


class Served(Training):
    """The coordinator of ParameterServerStrategy: workers take steps when they can."""

    def __init__(self, coordinator, strategy, request: dict):
        super().__init__(strategy, request)
        self._coordinator = coordinator
        path = request["records"]

        @tf.function
        def one_step(iterator):
            return strategy.run(self.step, args=(next(iterator),))

        self._step = one_step
        data = coordinator.create_per_worker_dataset(
            lambda: records_from(self.task, path, request["seed"])
        )
        self._iterator = iter(data)

    def train(self, request: dict) -> dict:
        start = time.monotonic()
        while self.done < request["until"]:
            # The rate is the same for a while, that its changes be no traffic to speak of.
            self.schedule_rate()
            some = min(10, request["until"] - self.done)
            for _ in range(some * WORKERS):
                loss = self._coordinator.schedule(self._step, args=(self._iterator,))
            self.done += some
            if self.done >= request["until"] or self.done % 50 == 0:
                self._coordinator.join()
        return {"seconds": time.monotonic() - start, "loss": float(loss.fetch())}


def records_from(task: Task, path: str, seed: int) -> tf.data.Dataset:
    """From a file on the worker's own disk."""
    width = task.data().train.shape[1]
    shuffled = tf.data.FixedLengthRecordDataset(path, width).repeat().shuffle(SHUFFLED, seed)
    batches = shuffled.batch(task.batch, drop_remainder=True)
    decoded = batches.map(lambda lines: tf.io.decode_raw(lines, tf.uint8, fixed_length=width))
    return decoded.map(lambda records: tf.ensure_shape(records, (task.batch, width))).prefetch(1)


def one_thread() -> tf.compat.v1.ConfigProto:
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=4, device_count={"GPU": 0}
    )


def serve_forever() -> None:
    server = tf.distribute.Server(
        tf.train.ClusterSpec(CLUSTER["cluster"]),
        job_name=ROLE,
        task_index=CLUSTER["task"]["index"],
        protocol="grpc",
        config=one_thread(),
    )
    print(json.dumps({"serving": True}), flush=True)
    server.join()


def make_begin():
    """A function from a request to its Training."""
    if ROLE == "chief":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        return lambda request: Served(coordinator, strategy, request)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return lambda request: Mirrored(strategy, request)


def main() -> None:
    if ROLE == "ps" or (ROLE == "worker" and "chief" in CLUSTER["cluster"]):
        serve_forever()
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    begin = make_begin()
    training: Training | None = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request["do"] == "begin":
                training = begin(request)
                answer = {"parameters": int(training.model.count_params())}
            else:
                answer = getattr(training, request["do"])(request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
