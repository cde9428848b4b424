"""What the pure ops refuse, and what they say then."""

import numpy as np
import pytest
import tensorflow as tf

INVALID = tf.errors.InvalidArgumentError


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_density_is_above_0_and_at_most_1(ops, density):
    for call in (
        lambda: ops.tl_prune([1.0], density),
        lambda: ops.tl_prune_gradient([1.0], [1.0], density),
        lambda: ops.tl_sparse_encode([1.0], density),
    ):
        with pytest.raises(INVALID, match="a density must be above 0 and at most 1, not"):
            call()


def test_a_density_is_one_number(ops):
    with pytest.raises(INVALID, match=r"a density is one number, not a \[2\]"):
        ops.tl_prune([1.0, 2.0], [0.5, 0.5])


@pytest.mark.parametrize("bits", [0, 1, 3, 24, 64, -8])
def test_bits_that_there_are_not_are_named(ops, bits):
    with pytest.raises(INVALID, match=f"bits must be 32, 16, 8, 4 or 2, not {bits}"):
        ops.tl_sparse_encode([1.0], 0.5, bits=bits)
    with pytest.raises(INVALID, match="bits must be"):
        ops.tl_prune_gradient([1.0], [1.0], 0.5, bits=bits)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_with_its_place(ops, bad):
    values = np.ones((100, 100), np.float32)
    values[98, 7] = bad
    fine = np.ones_like(values)
    said = "1 value of the {} is NaN(,| or) Inf.*at entry 9807"
    with pytest.raises(INVALID, match=said.format("input")):
        ops.tl_prune(values, 0.1)
    with pytest.raises(INVALID, match=said.format("input")):
        ops.tl_sparse_encode(values, 0.1)
    with pytest.raises(INVALID, match=said.format("gradient")):
        ops.tl_prune_gradient(values, fine, 0.1)
    with pytest.raises(INVALID, match=said.format("residual")):
        ops.tl_prune_gradient(fine, values, 0.1)


def test_gradients_that_have_run_away_are_refused(ops):
    with pytest.raises(INVALID, match="gradient"):
        ops.tl_prune_gradient([2.0**100], [0.0], 1.0)


def test_gradient_and_residual_have_one_shape(ops):
    with pytest.raises(INVALID, match=r"differ in shape: \[2\] and \[3\]"):
        ops.tl_prune_gradient([1.0, 2.0], [1.0, 2.0, 3.0], 0.5)
    with pytest.raises(ValueError, match="both shapes must be equal"):
        tf.function(lambda: ops.tl_prune_gradient([1.0, 2.0], [1.0, 2.0, 3.0], 0.5))()


def test_other_types_are_refused_by_tensorflow(ops):
    with pytest.raises((INVALID, TypeError)):
        ops.tl_prune(tf.constant([1.0], tf.float64), 0.5)


def test_a_code_of_another_size_says_both_sizes(ops):
    code = ops.tl_sparse_encode(tf.ones([12]), 1.0)
    with pytest.raises(tf.errors.DataLossError, match="it is for 12 entries, not 10"):
        ops.tl_sparse_decode(code, [10])


@pytest.mark.parametrize("shape", [[-1], [3, -4]])
def test_a_shape_is_not_negative(ops, shape):
    with pytest.raises(INVALID):
        ops.tl_sparse_decode(ops.tl_sparse_encode(tf.ones([12]), 1.0), shape)


@pytest.mark.parametrize("shape", [[2**40], [2**20, 2**20], [2**62, 2**62]])
def test_a_huge_shape_asks_for_no_memory(ops, shape):
    with pytest.raises((tf.errors.DataLossError, INVALID)):
        ops.tl_sparse_decode(ops.tl_sparse_encode(tf.ones([12]), 1.0), tf.constant(shape, tf.int64))


def test_bytes_that_are_no_code_are_refused(ops):
    for text, said in ((b"", "no header"), (b"x" * 40, "TLC1")):
        with pytest.raises(tf.errors.DataLossError, match=said):
            ops.tl_sparse_decode(np.frombuffer(text, np.uint8), [4])


@pytest.mark.parametrize("bits", [32, 4])
def test_every_truncated_code_is_refused(ops, bits):
    values = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    code = ops.tl_sparse_encode(values, 0.2, bits=bits).numpy()
    for length in range(len(code)):
        with pytest.raises(tf.errors.DataLossError):
            ops.tl_sparse_decode(code[:length], [300])
    with pytest.raises(tf.errors.DataLossError, match="1 bytes too many"):
        ops.tl_sparse_decode(np.append(code, np.uint8(0)), [300])


def test_a_flipped_bit_is_an_error_or_another_finite_tensor(ops):
    """The code has no checksum (frames have one): what matters is that nothing else can happen."""
    values = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    code = ops.tl_sparse_encode(values, 0.2, bits=4).numpy()
    refused = 0
    for bit in range(8 * len(code)):
        damaged = code.copy()
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decoded = ops.tl_sparse_decode(damaged, [300])
        except (tf.errors.DataLossError, INVALID):
            refused += 1
        else:
            assert decoded.shape == (300,)
            assert np.isfinite(decoded).all()
    assert refused >= 8 * 16 - 8  # Of the header, nearly every bit is checked.
