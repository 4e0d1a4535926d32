"""Whether ONNX Runtime adds products of eight bits exactly on this processor.

On x86 it multiplies unsigned activations by signed weights with VPMADDUBSW, which adds pairs of products in
16 bits, where they saturate: with AVX2 and with AVX-512 alike, unless the processor has VNNI or AMX. Sentence
vectors are then at cosines of 0.92 to 0.98 to those of float32. Weights of seven bits never saturate, since
2 · 255 · 64 = 32,640 < 2¹⁵. With any other signs, and on ARM, all is added in 32 bits.
"""

from functools import cache

import numpy as np

from model.onnx.precision import EIGHT_BITS
from model.onnx.session import CPU, ERRORS_ONLY

import onnxruntime as ort  # isort: skip  # after the environment that it reads is set

NO_VNNI = (
    "the processor has no VNNI (avx512_vnni or avx_vnni), without which sums of eight-bit products saturate"
)

# c = MatMulInteger(a, b), of a in uint8 and b in int8, as `onnx.helper` serialises it.
_PRODUCT = (
    b'\x08\x05:=\n\x18\n\x01a\n\x01b\x12\x01c"\rMatMulInteger\x12\x00Z\t\n\x01a\x12\x04\n\x02\x08\x02'
    b"Z\t\n\x01b\x12\x04\n\x02\x08\x03b\t\n\x01c\x12\x04\n\x02\x08\x06B\x04\n\x00\x10\n"
)
_SHAPE = (2, 16, 16)


@cache
def has_exact_eight_bits() -> bool:
    """Return whether sums of eight-bit products are exact here.

    Computes a product, in a millisecond: only Linux tells the flags of the processor, and programs that
    translate instructions for another processor do not.
    """
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    # With one thread the runtime starts none, so the process can still fork.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    rows, inner, columns = _SHAPE
    feed = {"a": np.full((rows, inner), 255, np.uint8), "b": np.full((inner, columns), EIGHT_BITS, np.int8)}
    (found,) = ort.InferenceSession(_PRODUCT, options, providers=[CPU]).run(None, feed)
    return bool((found == 255 * EIGHT_BITS * inner).all())
