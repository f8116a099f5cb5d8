"""A linear layer whose outputs for equal rows are equal."""

import pytest
import torch
from torch import nn

from graphrerank.core.row_linear import RowLinear


@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.parametrize(("width", "out"), [(27, 64), (64, 1), (21, 16)])
@pytest.mark.parametrize("bias", [False, True])
def test_equal_rows_give_equal_outputs_whatever_their_number(width: int, out: int, bias: bool, scripted: bool) -> None:
    layer = RowLinear(width, out, bias=bias).eval()
    linear = nn.Linear(width, out, bias=bias).eval()
    linear.load_state_dict(layer.state_dict())
    module = torch.jit.script(layer) if scripted else layer
    row = torch.randn(1, width, generator=torch.Generator().manual_seed(0))
    for num_rows in [0, *range(1, 50)]:
        rows = row.repeat(num_rows, 1)
        with torch.inference_mode():
            outputs = module(rows)
        assert outputs.shape == (num_rows, out)
        assert torch.equal(outputs, outputs[:1].expand_as(outputs))
        torch.testing.assert_close(outputs, linear(rows))


def test_training_is_that_of_torch() -> None:
    layer, linear = RowLinear(27, 1), nn.Linear(27, 1)
    linear.load_state_dict(layer.state_dict())
    rows = torch.randn(9, 27)
    for module in (layer, linear):
        module(rows).square().sum().backward()
    assert torch.equal(layer(rows), linear(rows))
    assert layer.weight.grad is not None
    assert linear.weight.grad is not None
    assert torch.equal(layer.weight.grad, linear.weight.grad)
