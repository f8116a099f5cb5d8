"""Price of a language model's tokens."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from graphrerank.language_models.reply import Reply
from graphrerank.utils.checks import UserError
from graphrerank_papers.answers.writers import total_tokens


@dataclass(frozen=True)
class Price:
    """Price of a language model in US dollars per million tokens.

    Attributes:
        input: Price of the tokens of prompts. None, for both prices, does not count money.
        output: Price of the tokens that the model writes.

    Example:
        >>> Price(input=0.15, output=0.6).of([Reply("Metz", "answered", "m", 1_000_000, 500_000)])
        0.45
    """

    input: float | None = None
    output: float | None = None

    def __post_init__(self) -> None:
        """Check the prices."""
        for name, usd in asdict(self).items():
            if usd is not None and (type(usd) not in (int, float) or not 0 <= usd < math.inf):
                raise UserError(f"`price.{name}` must be a non-negative number of USD per million tokens, got {usd!r}")
        if (self.input is None) != (self.output is None):
            raise UserError(f"`price` must have both `input` and `output` or neither, got {self}")

    def of(self, replies: Sequence[Reply]) -> float | None:
        """Return the cost of replies in US dollars.

        Args:
            replies: Replies. Failed and rejected requests cost nothing.

        Returns:
            Cost, or None without a price, or if the endpoint did not count the tokens of a reply.
        """
        read, written = (total_tokens(replies, name) for name in ("input_tokens", "output_tokens"))
        if self.input is None or self.output is None or read is None or written is None:
            return None
        return (self.input * read + self.output * written) / 1e6
