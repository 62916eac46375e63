"""Bitwise comparison of binary32 values, and rows of them that do not have to fit into memory."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from dgrctl.files import storage_errors

Bits = NDArray[np.uint32]

_EXPONENT = np.uint32(0x7F800000)  # all ones: an infinity or a NaN


def as_bits(values: bytes, width: int) -> Bits:
    """Little-endian binary32 values as their bit patterns, shape (rows, width).

    Raises:
        ValueError: not a whole number of rows.
    """
    if width <= 0 or len(values) % (4 * width):
        raise ValueError(f"{len(values)} bytes are not whole rows of {width} binary32 values")
    return np.frombuffer(values, dtype="<u4").reshape(-1, width)


def widen_bf16(values: bytes) -> bytes:
    """bfloat16 as the binary32 values that it stands for: its bits are their upper half."""
    return (np.frombuffer(values, dtype="<u2").astype("<u4") << np.uint32(16)).tobytes()


def greedy(row: Bits) -> int:
    """The token that greedy sampling must choose from one row of logits: the largest, the lowest id among equals."""
    return int(np.argmax(row.view(np.float32)))


@dataclass
class Tally:
    """What a comparison found. No difference in nothing proves nothing, so ``compared`` has to be checked too.

    A value that is NaN or infinite on either side counts as differing even where the bits agree, with an infinite difference:
    neither a residual nor a logit ever is, and two equal wrong answers are no parity.
    """

    rows: int = 0
    compared: int = 0
    differing: int = 0
    not_finite: int = 0
    max_abs_difference: float = 0.0

    def add(self, candidate: Bits, reference: Bits) -> None:
        """Compares two blocks of shape (rows, width).

        Raises:
            ValueError: the shapes differ.
        """
        if candidate.shape != reference.shape or candidate.ndim != 2:
            raise ValueError(f"cannot compare shape {candidate.shape} with {reference.shape}")
        self.rows += candidate.shape[0]
        self.compared += candidate.size
        unequal = candidate != reference
        not_finite = ((candidate & _EXPONENT) == _EXPONENT) | ((reference & _EXPONENT) == _EXPONENT)
        if not_finite.any():
            self.not_finite += int(np.count_nonzero(not_finite))
            self.max_abs_difference = math.inf
        self.differing += int(np.count_nonzero(unequal | not_finite))
        measurable = unequal & ~not_finite
        if measurable.any():
            left = candidate[measurable].view(np.float32).astype(np.float64)
            right = reference[measurable].view(np.float32).astype(np.float64)
            self.max_abs_difference = max(self.max_abs_difference, float(np.abs(left - right).max()))

    def merge(self, other: Tally) -> None:
        """Adds what another comparison found."""
        self.rows += other.rows
        self.compared += other.compared
        self.differing += other.differing
        self.not_finite += other.not_finite
        self.max_abs_difference = max(self.max_abs_difference, other.max_abs_difference)


class RowSpool:
    """Rows of binary32 values in an unnamed file, which vanishes with this object or this process.

    A prompt of 700 tokens has 135 MB of logits at a vocabulary of 49,152, and both grow; memory should not.
    """

    def __init__(self, folder: Path, width: int) -> None:
        """``folder`` must exist; ``width`` is values per row.

        Raises:
            StorageError: nothing can be written there.
        """
        self.width = width
        self._folder = folder
        self._rows = 0
        with storage_errors(folder):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()

    def __len__(self) -> int:
        return self._rows

    def append(self, values: bytes) -> int:
        """Adds whole rows; returns how many.

        Raises:
            ValueError: not whole rows.
            StorageError: the disk is full.
        """
        rows: int = as_bits(values, self.width).shape[0]
        with storage_errors(self._folder):
            self._file.write(values)
            self._file.flush()
        self._rows += rows
        return rows

    def read(self, begin: int, count: int) -> Bits:
        """Rows ``[begin, begin + count)``.

        Raises:
            IndexError: not all of them are there.
        """
        if begin < 0 or count < 0 or begin + count > self._rows:
            raise IndexError(f"rows {begin} to {begin + count} of {self._rows}")
        size = 4 * self.width
        return as_bits(os.pread(self._file.fileno(), count * size, begin * size), self.width)

    def close(self) -> None:
        """Frees the space."""
        self._file.close()

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
