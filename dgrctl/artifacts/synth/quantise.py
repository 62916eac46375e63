"""Values to a tensor's bytes in each type that fixtures use.

The ``gguf`` package quantises the plain types. It can read Q4_K but not write it; the writer here follows the block's layout in
ggml/src/ggml-common.h and makes no search for the best scales, since fixtures need valid blocks and not the best ones.
"""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray

from dgrctl.artifacts.gguf_types import TENSOR_TYPES
from dgrctl.artifacts.synth.stream import Values

_BLOCK = 256  # QK_K
_SUB = 32  # values that share one scale and one minimum

NUMBERS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}


def encode(values: Values, type_name: str) -> bytes:
    """The bytes of a tensor whose last axis holds its rows.

    Raises:
        ValueError: a row is no multiple of the type's block.
    """
    _, block, _ = TENSOR_TYPES[NUMBERS[type_name]]
    if values.shape[-1] % block:
        raise ValueError(f"rows of {values.shape[-1]} values hold no whole blocks of {type_name} ({block} values)")
    if values.dtype == np.int32:
        return values.astype("<i4").tobytes()
    floats = values.astype(np.float32, copy=False)
    if type_name == "F32":
        return floats.astype("<f4").tobytes()
    if type_name == "F16":
        return floats.astype("<f2").tobytes()
    if type_name == "Q4_K":
        return _q4_k(floats.reshape(-1, _BLOCK))
    return gguf.quantize(floats, gguf.GGMLQuantizationType[type_name]).tobytes()


def _q4_k(blocks: NDArray[np.float32]) -> bytes:
    """Super-blocks of eight sub-blocks: value = d * scale * quant - dmin * minimum, scale and minimum in 6 bits, quant in 4."""
    subs = blocks.reshape(len(blocks), _BLOCK // _SUB, _SUB)
    low = np.minimum(subs.min(axis=2), np.float32(0))
    span = (subs.max(axis=2) - low) / np.float32(15)
    d, scales = _six_bits(span)
    dmin, minima = _six_bits(-low)
    step = d.astype(np.float32)[:, None] * scales
    offset = dmin.astype(np.float32)[:, None] * minima
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step != 0)
    quants = np.clip(np.rint((subs + offset[:, :, None]) * inverse[:, :, None]), 0, 15).astype(np.uint8)
    # Each 32 bytes hold an even sub-block in their low nibbles and the next, odd one in their high nibbles.
    nibbles = quants[:, 0::2] | (quants[:, 1::2] << 4)
    parts = (d.astype("<f2")[:, None].view(np.uint8), dmin.astype("<f2")[:, None].view(np.uint8))
    packed = _pack_six(scales.astype(np.uint8), minima.astype(np.uint8))
    return np.concatenate([*parts, packed, nibbles.reshape(len(blocks), -1)], axis=1).tobytes()


def _six_bits(values: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
    """Eight values per block as one half-precision unit and integers from 0 to 63."""
    unit = (values.max(axis=1) / np.float32(63)).astype(np.float16)
    wide = unit.astype(np.float32)[:, None]
    inverse = np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide != 0)
    return unit, np.clip(np.rint(values * inverse), 0, 63).astype(np.float32)


def _pack_six(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Eight scales and eight minima of six bits in twelve bytes; get_scale_min_k4 (ggml/src/ggml-quants.c) takes them apart."""
    first = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    second = minima[:, :4] | ((minima[:, 4:] >> 4) << 6)
    third = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return np.concatenate([first, second, third], axis=1)
