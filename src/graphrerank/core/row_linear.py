"""Linear layer that rounds equal rows equally, so that documents with equal inputs are tied."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._jit_internal import is_scripting  # mypy does not find it in torch.jit


class RowLinear(nn.Linear):
    """Linear layer which, in inference on a CPU, returns equal outputs for equal rows, to the last bit.

    With ``torch.nn.Linear``, equal rows may differ in the last bit: libraries of linear algebra add the products of a
    row in an order that depends on the row's place if there is one output (a product of a matrix and a vector) or if
    there are two or three rows. Documents with equal inputs would then be ranked by their places. Here, one output
    is computed by multiplying and adding each row by itself, and few rows are padded with zeros.

    In training, the layer is ``torch.nn.Linear``. A program of ``torch.export`` does not pad, because shapes must not
    decide there what is computed. The parameters have the names and shapes of those of ``torch.nn.Linear``.

    Args:
        in_features: Width of a row of the input.
        out_features: Width of a row of the output.
        bias: Whether a bias is added.

    Example:
        >>> layer = RowLinear(27, 1).eval()
        >>> layer(torch.linspace(-1, 1, 27).expand(9, 27)).unique().numel()
        1
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to every row.

        Args:
            input: Rows ``[N, in_features]``.

        Returns:
            Rows ``[N, out_features]``.
        """
        if self.training:
            return F.linear(input, self.weight, self.bias)
        if self.out_features == 1:
            products = (input * self.weight[0]).sum(1, keepdim=True)
            return products if self.bias is None else products + self.bias
        # Nested because TorchScript skips the body of the first test, but not a test joined with `and`.
        if not is_scripting():  # noqa: SIM102
            if torch.compiler.is_exporting():
                return F.linear(input, self.weight, self.bias)
        num_missing = 4 - input.shape[0]  # with four rows, a matrix product is computed as with many
        if num_missing > 0:
            return F.linear(F.pad(input, [0, 0, 0, num_missing]), self.weight, self.bias)[: input.shape[0]]
        return F.linear(input, self.weight, self.bias)
