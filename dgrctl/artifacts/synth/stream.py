"""Numbers for fixture tensors: the same bytes for the same seed and name, on every machine and with every library version.

A tensor's bits are the SHAKE-256 output of its own key (generator, seed, tensor name), so that adding a tensor, or writing them
in another order, shifts no other. Bits become values by integer arithmetic and single IEEE-754 roundings alone: neither a
library's random generator nor the machine's libm has a part in it.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

# The sum of four uniform 16-bit integers: mean 2 x 65535, variance 4 x (65536^2 - 1) / 12. Close to normal, and bounded by 3.46
# standard deviations, so no tensor has an outlier that makes activations overflow.
_MEAN = 2 * 65535
_DEVIATION = math.sqrt((65536 * 65536 - 1) / 3)

Values = NDArray[np.float32] | NDArray[np.int32]


class Stream:
    """The bits of one generator and seed.

    Args:
        generator: Name and version of what the bits are for, such as "deepseek4/1"; another version has other bits.
    """

    def __init__(self, generator: str, seed: int) -> None:
        self._prefix = f"{generator}\0{seed}\0"

    def bits(self, name: str, count: int) -> bytes:
        """``count`` bytes for the tensor ``name``; a smaller count gives a prefix of a larger one's."""
        return hashlib.shake_256(f"{self._prefix}{name}".encode()).digest(count)

    def bell(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> NDArray[np.float32]:
        """Values around ``mean``, row-major in ``shape``: a bell curve without tails."""
        count = math.prod(shape)
        halves = np.frombuffer(self.bits(name, 8 * count), dtype="<u2").reshape(count, 4)
        centred = halves.astype(np.int32).sum(axis=1, dtype=np.int32) - np.int32(_MEAN)
        values: NDArray[np.float32] = centred.astype(np.float32) * np.float32(deviation / _DEVIATION) + np.float32(mean)
        return values.reshape(shape)

    def choices(self, name: str, rows: int, count: int, among: int) -> NDArray[np.int32]:
        """In each of ``rows``, ``count`` different integers below ``among``."""
        keys = np.frombuffer(self.bits(name, 8 * rows * among), dtype="<u8").reshape(rows, among)
        return np.argsort(keys, axis=1, kind="stable")[:, :count].astype(np.int32)
