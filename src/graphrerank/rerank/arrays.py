"""Arguments that are torch, NumPy or nested sequences, as arrays of a known shape and type."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

MAX_MAGNITUDE = 1e30  # keeps sums and differences of such numbers within float32


def to_floats(name: str, values: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return a float32 copy on the CPU of torch, NumPy or nested sequences; sizes of ``shape`` that are None are any.

    Numbers may be texts, as in metadata. A ValueError names the argument where there is anything but finite numbers up
    to 1e30, or another shape.
    """
    array = to_array(name, values, shape, "iuf", "numbers").astype(np.float64)
    check_entries(name, np.abs(array) <= MAX_MAGNITUDE, array, f"be finite and at most {MAX_MAGNITUDE:g} in size")
    return torch.from_numpy(array.astype(np.float32))


def to_integers(name: str, values: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return an int64 copy on the CPU; as :func:`to_floats`, for integers."""
    return torch.from_numpy(to_array(name, values, shape, "iu", "integers").astype(np.int64))


def to_array(name: str, values: Any, shape: tuple[int | None, ...], kinds: str, needed: str) -> npt.NDArray[Any]:
    """Return an array of a shape, whose type is of NumPy's ``kinds``; as :func:`to_floats`, for ``needed``."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # which NumPy does not know
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, lists of tensors on a GPU
        raise UserError(f"`{name}` must be an array of numbers: {error}") from error
    if not array.size and 0 in (empty := [size or 0 for size in shape]):
        return np.zeros(empty, dtype=np.int64)
    if array.dtype.kind == "U":
        try:
            array = array.astype(np.float64 if "f" in kinds else np.int64)
        except ValueError as error:
            raise UserError(f"`{name}` must hold {needed}: {error}") from error
    if array.dtype.kind not in kinds:
        raise UserError(f"`{name}` must hold {needed}, got the type {array.dtype}")
    found = zip(shape, array.shape, strict=False)
    if array.ndim != len(shape) or any(size not in (None, actual) for size, actual in found):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise UserError(f"`{name}` must be of shape [{sizes}], got {list(array.shape)}")
    return array


def check_entries(name: str, good: Any, array: Any, needed: str) -> None:
    """Refuse the first entry along the axes of ``good`` that is False there."""
    if not good.all():
        place = np.argwhere(~np.asarray(good))[0].tolist()
        where = place[0] if len(place) == 1 else place
        raise UserError(f"`{name}` must {needed}, got {array[tuple(place)].tolist()} at place {where}")
