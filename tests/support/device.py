"""A made-up device, for tests without a GPU: its tensors compute on the CPU, and refuse to meet those of the CPU.

It counts what crosses to and from it, and what it is asked to compute.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

MADE_UP = torch.device("meta")  # torch guards its own devices alone; nothing else here uses this one
CPU = torch.device("cpu")
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
TAKES_INDICES = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default}  # which may be on the CPU
ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "detach", "_local_scalar_dense"}  # no kernel
WAITS = {  # the CPU needs a number of the result, as of CUDA: its shape or itself
    "nonzero", "masked_select", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "_unique", "_unique2",
    "bincount", "equal", "_local_scalar_dense",
}  # fmt: skip
make_tensor, mixed_precision = torch.tensor, torch.autocast


@dataclass
class Traffic:
    """What has crossed between the CPU and the made-up device, and the kernels that the device has run."""

    to_host: int = 0  # copies, among them single numbers and the sizes of results that depend on data
    to_device: int = 0  # copies
    kernels: int = 0  # operations that compute something: a view and an allocation do not

    @property
    def transfers(self) -> int:
        """Copies in both directions."""
        return self.to_host + self.to_device

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, name) - getattr(other, name) for name in vars(self)))

    def now(self) -> "Traffic":
        """Copy the counts so far."""
        return Traffic(**vars(self))


traffic = Traffic()  # since the process began


class Moved(Tensor):
    """A tensor on the made-up device, around one on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Moved":
        layout = {"layout": inner.layout} if inner.layout != torch.strided else {"strides": inner.stride()}
        made: Moved = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, device=MADE_UP, **layout
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def tolist(self) -> list[Any]:
        """Copy to the CPU, as from any device."""
        traffic.to_host += 1
        return self.inner.tolist()

    def __format__(self, form: str) -> str:
        traffic.to_host += 1
        return format(self.inner, form)

    def __reduce_ex__(self, protocol: Any) -> Any:  # a file holds a plain tensor
        traffic.to_host += 1
        return self.inner.__reduce_ex__(protocol)

    def __getitem__(self, index: Any) -> Tensor:  # torch builds the index of a list on its own, on the device
        return super().__getitem__(make_tensor(index, dtype=torch.int64) if isinstance(index, list) else index)


def tensors_in(nested: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists and tuples, in order. Several times as fast as PyTorch's general trees."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for entry in nested:
            yield from tensors_in(entry)


def replace_tensors(nested: Any, replace: Callable[[Tensor], Tensor]) -> Any:
    """Return nested lists and tuples with other tensors."""
    if isinstance(nested, Tensor):
        return replace(nested)
    if isinstance(nested, list | tuple):
        entries = [replace_tensors(entry, replace) for entry in nested]
        return entries if isinstance(nested, list) else tuple(entries)
    return nested


def to_cpu(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU, without a copy that counts."""
    return tensor.inner if isinstance(tensor, Moved) else tensor


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the CPU; its result is on the device of its tensors, else on ``device``."""
    given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
    on_device, device = any(isinstance(leaf, Moved) for leaf in given), kwargs.get("device")
    if on_device and func not in MOVES:
        checked = given[:1] if func in TAKES_INDICES else given
        behind = [tuple(leaf.shape) for leaf in checked if not isinstance(leaf, Moved) and leaf.dim()]
        assert not behind, f"{func}: tensors of shapes {behind} are not on the device"
    inner_args = replace_tensors(args, to_cpu)
    inner_kwargs = {name: replace_tensors(value, to_cpu) for name, value in kwargs.items()}
    if device is not None:
        inner_kwargs["device"] = CPU
    result = func(*inner_args, **inner_kwargs)
    on_result = on_device if device is None else torch.device(device) == MADE_UP
    count(func, args, kwargs, given, on_result)
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if func._schema.is_mutable and given and result is to_cpu(given[0]):
        return args[0]  # changed in place
    return replace_tensors(result, Moved) if on_result else result


def count(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Any], on_result: bool) -> None:
    """Add an operation to :data:`traffic`."""
    on_device, name = any(isinstance(leaf, Moved) for leaf in given), func._schema.name.removeprefix("aten::")
    if func in MOVES:
        from_device = isinstance(given[-1], Moved)
        to_device = isinstance(given[0], Moved) if func is torch.ops.aten.copy_.default else on_result
        traffic.to_host += from_device and not to_device
        traffic.to_device += to_device and not from_device
        traffic.kernels += to_device and from_device
    elif on_device or on_result:
        aliases = [value.alias_info for value in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        traffic.kernels += not is_view and name not in ALLOCATES
        masks = [leaf for leaf in tensors_in(args[1:2]) if leaf.dtype == torch.bool]
        has_size = name == "repeat_interleave" and kwargs.get("output_size") is None
        traffic.to_host += (name in WAITS) + has_size + (len(masks) if func in TAKES_INDICES else 0)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextmanager
def made_up_device() -> Iterator[torch.device]:
    """Make tensors on the device where it is given; inference mode, in which they have no views, is ``no_grad``."""

    def tensor(data: Any, *, device: Any = None, **more: Any) -> Tensor:
        return make_tensor(data, **more).to(device)

    def autocast(device_type: str, **settings: Any) -> Any:
        return mixed_precision(CPU.type if device_type == MADE_UP.type else device_type, **settings)

    def enter(mode: Any) -> None:
        mode.without = torch.no_grad()
        mode.without.__enter__()

    never = patch.multiple(torch.inference_mode, __enter__=enter, __exit__=lambda mode, *_: mode.without.__exit__(*_))
    with _Mode(), patch("torch.tensor", tensor), patch("torch.autocast", autocast), never:
        yield MADE_UP


class MadeUpAccelerator(CPUAccelerator):
    """The made-up device for Lightning."""

    def setup_device(self, device: torch.device) -> None:
        """Accept the device."""


class MadeUpStrategy(SingleDeviceStrategy):
    """Trains on the made-up device: ``Trainer(strategy=MadeUpStrategy())`` inside :func:`made_up_device`."""

    def __init__(self) -> None:
        super().__init__(device=MADE_UP, accelerator=MadeUpAccelerator())
