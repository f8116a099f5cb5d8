"""Convert arguments (torch, NumPy or nested sequences) to arrays, and check their shapes and types."""

import operator
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

#: Largest absolute value accepted. Sums and differences of numbers up to this size do not overflow float32.
MAX_MAGNITUDE = 1e30


def to_floats(name: str, values: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return the numbers as a float32 tensor on the CPU.

    Args:
        name: Name of the argument, for error messages.
        values: Tensor, NumPy array or nested sequence of numbers. Numbers may be strings such as ``"1.5"``, as in
            metadata.
        shape: Expected size of each dimension. A size of None accepts any number of entries.

    Returns:
        Copy of the numbers with the given shape.

    Raises:
        UserError: If the shape differs, or if a value is not a finite number of absolute value at most 1e30.
    """
    array = to_array(name, values, shape, "iuf", "numbers").astype(np.float64)
    check_entries(name, np.abs(array) <= MAX_MAGNITUDE, array, f"be finite and at most {MAX_MAGNITUDE:g} in size")
    return torch.from_numpy(array.astype(np.float32))


def is_missing(entry: Any) -> bool:
    """Return whether an entry of a list or of a data frame's column is missing: None, NaN or the NA of pandas.

    Args:
        entry: Entry of any type.

    Example:
        >>> is_missing(None), is_missing(float("nan")), is_missing("")
        (True, True, False)
    """
    try:
        return entry is None or bool(entry != entry)
    except (TypeError, ValueError):  # NA has no truth value, and neither has the comparison of two arrays
        return type(entry).__name__ == "NAType"


def plain_integer(entry: Any) -> Any:
    """Convert an integer of any library, or a float with an integer value, to ``int``.

    Args:
        entry: Entry of any type.

    Returns:
        The integer, or the entry itself if it is something else.

    Example:
        >>> plain_integer(np.int32(3)), plain_integer(2.0), plain_integer(0.5), plain_integer("a")
        (3, 2, 0.5, 'a')
    """
    if isinstance(entry, float) and entry.is_integer():
        return int(entry)
    return operator.index(entry) if hasattr(entry, "__index__") and not isinstance(entry, bool) else entry


def nan_for_missing(numbers: Any) -> Any:
    """Replace missing entries of a sequence by NaN.

    Args:
        numbers: ``[n]`` numbers: a tensor, a NumPy array, a column of a data frame, or a sequence.

    Returns:
        List of the entries. Masked entries of an array become NaN. Other arrays of numbers, which cannot have other
        missing entries than NaN, are returned unchanged.

    Example:
        >>> nan_for_missing([0.5, None])
        [0.5, nan]
    """
    if isinstance(numbers, np.ma.MaskedArray):
        return np.ma.filled(numbers.astype(np.float64), np.nan)
    if isinstance(numbers, Tensor) or (isinstance(numbers, np.ndarray) and numbers.dtype.kind != "O"):
        return numbers
    return [np.nan if is_missing(number) else number for number in numbers]


def repair_scores(name: str, scores: Any) -> tuple[Any, int]:
    """Replace scores that are not finite by the lowest finite score, and infinity by the highest.

    Args:
        name: Name of the argument, for error messages.
        scores: ``[n]`` scores: a tensor, a NumPy array, or a sequence of numbers and None. Numbers may be strings.

    Returns:
        The scores, which are the same object if all are finite or none is, and the number of scores that are not
        finite: None, NaN and infinity.

    Raises:
        UserError: If the scores have another shape, or if one is not a number or too large.

    Example:
        >>> repair_scores("scores", [0.5, None, 0.2, float("inf")])
        (array([0.5, 0.2, 0.2, 0.5]), 2)
    """
    array = to_array(name, nan_for_missing(scores), (len(scores),), "iuf", "numbers").astype(np.float64)
    is_finite = np.isfinite(array)
    num_bad = len(array) - int(is_finite.sum())
    check_entries(name, ~is_finite | (np.abs(array) <= MAX_MAGNITUDE), array, f"be at most {MAX_MAGNITUDE:g} in size")
    if num_bad in (0, len(array)):
        return scores, num_bad
    lowest, highest = array[is_finite].min(), array[is_finite].max()
    return np.nan_to_num(array, nan=lowest, posinf=highest, neginf=lowest), num_bad


def to_integers(name: str, values: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return the integers as an int64 tensor on the CPU.

    Args:
        name: Name of the argument, for error messages.
        values: Tensor, NumPy array or nested sequence of integers. Integers may be strings such as ``"2"``.
        shape: Expected size of each dimension. A size of None accepts any number of entries.

    Returns:
        Copy of the integers with the given shape.

    Raises:
        UserError: If the shape differs, or if a value is not an integer.
    """
    return torch.from_numpy(to_array(name, values, shape, "iu", "integers").astype(np.int64))


def to_array(name: str, values: Any, shape: tuple[int | None, ...], kinds: str, needed: str) -> npt.NDArray[Any]:
    """Convert values to a NumPy array and check its shape and type.

    Args:
        name: Name of the argument, for error messages.
        values: Tensor, NumPy array or nested sequence.
        shape: Expected size of each dimension. A size of None accepts any number of entries.
        kinds: Accepted NumPy type kinds, such as ``"iuf"`` for integers and floats. Strings are converted to
            floats if ``kinds`` contains ``"f"``, and to integers otherwise.
        needed: Plural noun for the accepted values in error messages, such as ``"numbers"``.

    Returns:
        Array of the given shape. It may share memory with ``values``.

    Raises:
        UserError: If the values do not form an array of the given shape and type.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # NumPy has no bfloat16
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, or lists of tensors on a GPU
        raise UserError(f"`{name}` must be an array of numbers: {error}") from error
    if not array.size and 0 in (empty := [size or 0 for size in shape]):
        return np.zeros(empty, dtype=np.int64)
    if array.dtype.kind == "U":
        try:
            array = array.astype(np.float64 if "f" in kinds else np.int64)
        except ValueError as error:
            raise UserError(f"`{name}` must contain {needed}: {error}") from error
    if array.dtype.kind == "O" and array.ndim == 1:
        is_number = np.array([isinstance(entry, Number) for entry in array], dtype=bool)
        check_entries(name, is_number, list(array), f"contain {needed}")
    if array.dtype.kind not in kinds:
        raise UserError(f"`{name}` must contain {needed}, got dtype {array.dtype}")
    sizes_and_actual = zip(shape, array.shape, strict=False)
    if array.ndim != len(shape) or any(size not in (None, actual) for size, actual in sizes_and_actual):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise UserError(f"`{name}` must have shape [{sizes}], got {list(array.shape)}")
    return array


def check_entries(name: str, good: Any, array: Any, needed: str) -> None:
    """Raise an error for the first entry of an array that fails a check.

    Args:
        name: Name of the argument, for the error message.
        good: Boolean array, True where an entry passes the check. Its dimensions are the leading ones of ``array``.
        array: Entries that were checked.
        needed: Requirement, worded to follow "must" in the error message, such as ``"be finite"``.

    Raises:
        UserError: If an entry of ``good`` is False. The message contains the entry and its index.
    """
    if not good.all():
        index = np.argwhere(~np.asarray(good))[0].tolist()
        index_text = index[0] if len(index) == 1 else index
        raise UserError(f"`{name}` must {needed}, got {_entry(array, index)!r} at index {index_text}")


def _entry(array: Any, index: list[int]) -> Any:
    """Return an entry of an array, a tensor or a list as a plain object."""
    entry = array[index[0]] if isinstance(array, list) else array[tuple(index)]
    return entry.tolist() if hasattr(entry, "tolist") else entry
