"""The library itself: what it shows to others, and what it takes from them."""

import re
import subprocess
import sys


def symbols(library, *flags):
    output = subprocess.check_output(["nm", "-D", *flags, library], text=True)
    return [line.split() for line in output.splitlines()]


def test_it_exports_two_names_and_nothing_else(library):
    # Capitals are global symbols; small letters belong to the library.
    exported = [name for _, kind, name in symbols(library, "--defined-only") if kind.isupper()]
    assert exported == ["tl_built_for", "tl_shutdown"]


def test_its_openssl_is_its_own(library):
    """TensorFlow exports BoringSSL's functions under the same names: calling those would crash."""
    openssl = re.compile(r"(SSL|EVP|CRYPTO|OPENSSL|HMAC|RAND|BIO|ERR|X509|PEM)_")
    taken = [line[-1] for line in symbols(library, "--undefined-only")]
    assert not [name for name in taken if openssl.match(name)]


def test_it_needs_no_libraries_but_the_compilers_and_tensorflows(library):
    output = subprocess.check_output(["readelf", "--dynamic", library], text=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", output)
    known = r"(libtensorflow_framework|libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so\.\d+"
    assert "libtensorflow_framework.so.2" in needed
    assert not [name for name in needed if not re.fullmatch(known, name)]


def test_with_gpu_kernels_linked_in_it_loads_where_there_is_no_gpu(library):
    """In a process of its own, with no GPU to be seen even if there is one."""
    script = """
import sys
import tensorflow as tf
from tensorflow.python.framework import kernels
assert not tf.config.list_physical_devices("GPU")
ops = tf.load_op_library(sys.argv[1])
assert ops.tl_prune([1.0, 2.0], 0.5)[0].numpy().tolist() == [0, 2]
for op in ("TlPrune", "TlPruneGradient", "TlSparseEncode", "TlSparseDecode"):
    print(op, *sorted(k.device_type for k in kernels.get_registered_kernels_for_op(op).kernel))
"""
    output = subprocess.check_output(
        [sys.executable, "-c", script, str(library)],
        env={"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin"},
        text=True,
    )
    lines = output.splitlines()
    assert len(lines) == 4
    assert all(re.fullmatch(r"Tl\w+ CPU( GPU)?", line) for line in lines)


def test_every_op_says_what_it_does_and_what_its_inputs_are(ops):
    names = [n for n in dir(ops) if n.startswith("tl_") and not n.endswith("_eager_fallback")]
    assert {"tl_prune", "tl_prune_gradient", "tl_sparse_encode", "tl_sparse_decode"} <= set(names)
    for name in names:
        assert len(getattr(ops, name).__doc__.splitlines()[0]) > 20, name
