"""The pure ops against numpy: what is kept, what is left, what a code brings back."""

import math

import numpy as np
import pytest
import tensorflow as tf

CHUNK = 4096
SHAPES = [(), (1,), (7,), (3, 5), (64, 65), (2, 3, 4, 5), (CHUNK,), (CHUNK + 1,), (300, 301)]
DENSITIES = [0.001, 0.01, 0.1, 0.5, 1.0]
BITS = [32, 16, 8, 4, 2]
# A value is off by at most this share of the largest one in its chunk: half a step and what the
# step was rounded down by.
LOSS = {32: 0.0, 16: 2**-8, 8: 2**-6, 4: 2**-3, 2: 0.5}


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chunks(array):
    flat = np.asarray(array).ravel()
    return [flat[begin : begin + CHUNK] for begin in range(0, flat.size, CHUNK)]


def top(array, density):
    """The largest magnitudes of every chunk, of equals the first; zeros elsewhere."""
    flat = array.ravel()
    kept = np.zeros_like(flat)
    for begin in range(0, flat.size, CHUNK):
        part = flat[begin : begin + CHUNK]
        count = max(1, math.ceil(density * part.size))
        chosen = np.argsort(-np.abs(part), kind="stable")[:count]
        kept[begin + chosen] = part[chosen]
    return kept.reshape(array.shape)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prune_keeps_the_largest_of_every_chunk_and_leaves_the_rest(ops, shape, density):
    values = normal(shape)
    pruned, rest = ops.tl_prune(values, density)
    np.testing.assert_array_equal(pruned, top(values, density))
    np.testing.assert_array_equal(rest, values - top(values, density))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_a_tenth_of_ten_entries_is_one_whatever_the_type_of_the_density(ops, dtype):
    pruned, _ = ops.tl_prune(normal(10), tf.constant(0.1, dtype))
    assert np.count_nonzero(pruned) == 1


def test_of_equal_magnitudes_the_first_are_kept(ops):
    pruned, _ = ops.tl_prune([1.0, -1.0, 1.0, 1.0], 0.5)
    np.testing.assert_array_equal(pruned, [1, -1, 0, 0])


def test_inputs_are_not_changed(ops):
    gradient, residual = tf.constant(normal(5000)), tf.constant(normal(5000, 1))
    before = gradient.numpy().copy(), residual.numpy().copy()
    ops.tl_prune(gradient, 0.1)
    ops.tl_sparse_encode(gradient, 0.1)
    ops.tl_prune_gradient(gradient, residual, 0.1)
    np.testing.assert_array_equal(gradient, before[0])
    np.testing.assert_array_equal(residual, before[1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(7,), (64, 65), (300, 301)], ids=str)
def test_a_pruned_gradient_and_its_rest_are_the_sum_of_what_came_in(ops, shape, density, bits):
    gradient, residual = normal(shape), 0.1 * normal(shape, 1)
    pruned, rest = ops.tl_prune_gradient(gradient, residual, density, bits=bits)
    total = gradient + residual
    # Exact, whatever was rounded: the rounding error is part of the rest.
    np.testing.assert_array_equal(pruned.numpy() + rest.numpy(), total)
    expected = top(total, density)
    assert np.count_nonzero(pruned) <= np.count_nonzero(expected)
    for sent, wanted in zip(chunks(pruned), chunks(expected), strict=True):
        largest = np.abs(wanted).max()
        assert np.abs(sent - wanted).max() <= LOSS[bits] * largest


@pytest.mark.parametrize("bits", BITS)
def test_error_feedback_sends_everything_in_the_end(ops, bits):
    gradient = tf.constant(normal(5000))
    residual, arrived = tf.zeros_like(gradient), np.zeros(5000)
    for _ in range(50):
        pruned, residual = ops.tl_prune_gradient(gradient, residual, 0.1, bits=bits)
        arrived += pruned.numpy()
    # Float32 sums of 50 gradients, in another order.
    np.testing.assert_allclose(arrived + residual.numpy(), 50 * gradient.numpy(), atol=1e-3)
    assert np.abs(residual).max() < 30 * np.abs(gradient).max()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_decoded_code_is_what_prune_gradient_would_send(ops, shape, density, bits):
    values = normal(shape)
    code = ops.tl_sparse_encode(values, density, bits=bits)
    assert code.dtype == tf.uint8
    decoded = ops.tl_sparse_decode(code, shape)
    sent, _ = ops.tl_prune_gradient(values, np.zeros(shape, np.float32), density, bits=bits)
    np.testing.assert_array_equal(decoded, sent)


def test_everything_in_32_bits_is_lossless(ops):
    values = normal(100_000)
    values[::3] = 0
    values[1:10] = [np.finfo(np.float32).max, np.finfo(np.float32).tiny, 1e-45, -1e-45, *range(5)]
    code = ops.tl_sparse_encode(values, 1.0)
    np.testing.assert_array_equal(ops.tl_sparse_decode(code, [100_000]), values)


def test_a_code_is_far_smaller_than_the_tensor(ops):
    values = normal(1_000_000)
    assert ops.tl_sparse_encode(values, 0.01, bits=4).shape[0] < values.nbytes / 200


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_shapes_may_be_of_32_or_64_bits(ops, dtype):
    code = ops.tl_sparse_encode(normal((3, 4)), 1.0)
    decoded = ops.tl_sparse_decode(code, tf.constant([4, 3], dtype))
    np.testing.assert_array_equal(decoded, normal((3, 4)).reshape(4, 3))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)], ids=str)
def test_empty_tensors_are_tensors_too(ops, shape):
    empty = np.zeros(shape, np.float32)
    for output in [*ops.tl_prune(empty, 0.5), *ops.tl_prune_gradient(empty, empty, 0.5)]:
        assert output.shape == shape
    assert ops.tl_sparse_decode(ops.tl_sparse_encode(empty, 0.5), shape).shape == shape


def test_a_function_of_unknown_shape_gives_the_same(ops):
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([], tf.float64)])
    def round_trip(values, density):
        assert values.shape.rank is None
        pruned, rest = ops.tl_prune(values, density)
        code = ops.tl_sparse_encode(values, density, bits=8)
        return pruned, rest, ops.tl_sparse_decode(code, tf.shape(values))

    # The density is an input: a ramp does not trace the function again.
    for density in (0.5, 0.1, 0.01):
        values = normal((70, 80))
        pruned, rest, decoded = round_trip(values, density)
        np.testing.assert_array_equal(pruned, top(values, density))
        np.testing.assert_array_equal(pruned + rest, values)
        code = ops.tl_sparse_encode(values, density, bits=8)
        np.testing.assert_array_equal(decoded, ops.tl_sparse_decode(code, values.shape))
    assert round_trip.experimental_get_tracing_count() == 1


def test_shapes_are_known_while_tracing(ops):
    @tf.function
    def shapes(values):
        pruned, rest = ops.tl_prune(values, 0.1)
        sent, left = ops.tl_prune_gradient(values, tf.ones(tf.shape(values)), 0.1)
        code = ops.tl_sparse_encode(values, 0.1)
        decoded = ops.tl_sparse_decode(code, [6, 4])
        assert [t.shape for t in (pruned, rest, sent, left)] == [(None, 4)] * 4
        assert code.shape.as_list() == [None]
        assert decoded.shape == (6, 4)
        return decoded

    shapes.get_concrete_function(tf.TensorSpec([None, 4]))


def test_a_residual_that_nobody_else_reads_is_worked_on_in_place(ops):
    """And stays right: in a loop, each step's rest is the next one's residual."""

    @tf.function
    def train(gradient, steps):
        residual, sent = tf.zeros_like(gradient), tf.zeros_like(gradient)
        for _ in tf.range(steps):
            pruned, residual = ops.tl_prune_gradient(gradient, residual, 0.01, bits=4)
            sent += pruned
        return sent, residual

    gradient = normal(20_000)
    sent, residual = train(gradient, 20)
    np.testing.assert_allclose(sent + residual, 20 * gradient, atol=1e-3)
