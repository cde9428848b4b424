"""An LSTM that learns to write like Shakespeare, letter by letter.

python examples/keras_lstm.py                  one worker
bin/tlrun -np 2 python examples/keras_lstm.py  two that learn together
"""

import argparse
import math

import keras
import numpy as np
import tensorlightning as tl
from keras import layers

LENGTH = 64  # Letters that the model sees at a time.


def sequences(text: str) -> tuple[np.ndarray, list[str]]:
    """Rows of LENGTH + 1 letters, as numbers."""
    letters = sorted(set(text))
    number_of = {letter: number for number, letter in enumerate(letters)}
    numbers = np.array([number_of[letter] for letter in text], np.int32)
    rows = len(numbers) // (LENGTH + 1)
    return numbers[: rows * (LENGTH + 1)].reshape(rows, LENGTH + 1), letters


def build(letters: int) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(letters, 32),
            layers.LSTM(128, return_sequences=True),
            layers.Dense(letters),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.003),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=10_000, help="rows of 65 letters, together")
    arguments = parser.parse_args()

    rows, letters = sequences(tl.datasets.shakespeare())
    # Rows from all over the text, the same ones in every worker.
    rows = np.random.default_rng(1).permutation(rows)
    test, train = rows[:500], tl.shard(rows[500 : 500 + arguments.samples])
    model = build(len(letters))
    model.fit(
        train[:, :-1],
        train[:, 1:],
        batch_size=32,
        epochs=arguments.epochs,
        verbose=2 if tl.rank() == 0 else 0,
        callbacks=[tl.Elastic()],  # The one line.
    )
    if tl.rank() == 0:
        loss = model.evaluate(test[:, :-1], test[:, 1:], verbose=0)
        print(f"{loss / math.log(2):.2f} bits per letter of text that it has not seen")


if __name__ == "__main__":
    main()
