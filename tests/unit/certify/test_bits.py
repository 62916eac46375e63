"""dgrctl.certify.bits"""

from __future__ import annotations

import errno
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from dgrctl.certify.bits import RowSpool, Tally, as_bits, greedy, widen_bf16
from dgrctl.errors import StorageError


def bits(*values: float) -> np.ndarray:
    return as_bits(struct.pack(f"<{len(values)}f", *values), len(values))


def test_equal_rows_do_not_differ() -> None:
    tally = Tally()
    tally.add(bits(1.0, -2.0, 0.0), bits(1.0, -2.0, 0.0))
    assert tally == Tally(rows=1, compared=3)


def test_the_last_bit_counts() -> None:
    tally = Tally()
    tally.add(bits(1.0, 2.0), bits(1.0, float(np.nextafter(np.float32(2), np.float32(3)))))
    assert (tally.differing, tally.max_abs_difference) == (1, 2.0**-22)


def test_negative_zero_is_another_value() -> None:
    tally = Tally()
    tally.add(bits(0.0), bits(-0.0))
    assert (tally.differing, tally.max_abs_difference) == (1, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_differs_even_from_itself(value: float) -> None:
    tally = Tally()
    tally.add(bits(1.0, value), bits(1.0, value))
    assert (tally.differing, tally.not_finite, tally.max_abs_difference) == (1, 1, math.inf)


@pytest.mark.parametrize("swap", [False, True])
def test_nan_on_either_side_is_found(swap: bool) -> None:
    tally = Tally()
    pair = (bits(math.nan), bits(1.0))
    tally.add(*(reversed(pair) if swap else pair))
    assert (tally.differing, tally.not_finite) == (1, 1)


def test_merging_adds_counts_and_keeps_the_largest_difference() -> None:
    one, other = Tally(), Tally()
    one.add(bits(1.0, 5.0), bits(1.0, 7.0))
    other.add(bits(1.0), bits(2.0))
    one.merge(other)
    assert one == Tally(rows=2, compared=3, differing=2, max_abs_difference=2.0)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot compare shape"):
        Tally().add(bits(1.0, 2.0), bits(1.0))


@pytest.mark.parametrize(("size", "width"), [(7, 1), (8, 3), (4, 0)])
def test_partial_rows_are_refused(size: int, width: int) -> None:
    with pytest.raises(ValueError, match="not whole rows"):
        as_bits(bytes(size), width)


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert greedy(bits(0.5, 2.0, -1.0, 2.0)[0]) == 1


def test_bf16_widens_exactly() -> None:
    assert as_bits(widen_bf16(b"\x80\x3f\xc0\xc7"), 2).view(np.float32).tolist() == [[1.0, -98304.0]]


def test_a_spool_gives_back_what_was_appended(tmp_path: Path) -> None:
    with RowSpool(tmp_path, 2) as spool:
        assert spool.append(struct.pack("<4f", 1, 2, 3, 4)) == 2
        spool.append(struct.pack("<2f", 5, 6))
        assert len(spool) == 3
        assert spool.read(1, 2).view(np.float32).tolist() == [[3, 4], [5, 6]]
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("begin", "count"), [(0, 2), (1, 1), (-1, 1), (0, -1)])
def test_a_spool_refuses_rows_that_it_does_not_have(tmp_path: Path, begin: int, count: int) -> None:
    with RowSpool(tmp_path, 1) as spool:
        spool.append(bytes(4))
        with pytest.raises(IndexError):
            spool.read(begin, count)


def test_a_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    with RowSpool(tmp_path, 1) as spool:
        full = os.open("/dev/full", os.O_RDWR)
        os.dup2(full, spool._file.fileno())
        os.close(full)
        with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)):
            spool.append(bytes(4))
        os.dup2(os.open(os.devnull, os.O_RDWR), spool._file.fileno())
