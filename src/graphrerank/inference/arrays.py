"""Arguments as tensors: torch, NumPy or nested sequences in, checked CPU tensors out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

LARGEST = 1e30  # keeps sums and differences of such numbers within float32

Numbers = Tensor | npt.NDArray[Any] | Sequence[float]  # [n]
Matrix = Tensor | npt.NDArray[Any] | Sequence[Sequence[float]]  # [n, d]
Pairs = Tensor | npt.NDArray[Any] | Sequence[Sequence[int]]  # [M, 2]


def to_floats(name: str, given: Numbers | Matrix, shape: tuple[int | None, ...]) -> Tensor:
    """Return a float32 copy on the CPU of numbers of any type and device; sizes of ``shape`` that are None may be any.

    Raises:
        ValueError: If ``given`` holds anything but numbers, is of another shape, or a number is not finite or beyond
            1e30; names the argument.
    """
    array = to_array(name, given)
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must hold numbers, got the type {array.dtype}")
    _check_shape(name, array, shape)
    array = array.astype(np.float64)
    if not np.abs(array).max(initial=0) <= LARGEST:  # also where it is NaN
        place = np.argwhere(~(np.abs(array) <= LARGEST))[0].tolist()
        raise ValueError(
            f"`{name}` must be finite and at most {LARGEST:g} in size, "
            f"got {array[tuple(place)]} at place {place[0] if len(place) == 1 else place}"
        )
    return torch.from_numpy(array.astype(np.float32))


def to_integers(name: str, given: Numbers | Pairs, shape: tuple[int | None, ...]) -> Tensor:
    """Return an int64 copy on the CPU; as :func:`to_floats`, for integers."""
    array = to_array(name, given)
    if not array.size:
        array = array.astype(np.int64).reshape([size or 0 for size in shape])
    if array.dtype.kind not in "iu":
        raise ValueError(f"`{name}` must hold integers, got the type {array.dtype}")
    _check_shape(name, array, shape)
    return torch.from_numpy(array.astype(np.int64))


def to_array(name: str, given: Any) -> npt.NDArray[Any]:
    """Return an array of any type; a ValueError that names the argument where ``given`` is none."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = given.float() if given.dtype == torch.bfloat16 else given  # which NumPy does not know
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, lists of tensors on a GPU
        raise ValueError(f"`{name}` must be an array of numbers: {error}") from error


def _check_shape(name: str, array: npt.NDArray[Any], shape: tuple[int | None, ...]) -> None:
    if array.ndim != len(shape) or any(
        needed not in (None, found) for needed, found in zip(shape, array.shape, strict=True)
    ):
        needed = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"`{name}` must be of shape [{needed}], got {list(array.shape)}")
