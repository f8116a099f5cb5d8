"""Pack retrieved passages into contexts with a token budget."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from graphrerank.text import Tokenizer, WordTokenizer, count_tokens, split_sentences
from graphrerank.utils.checks import check_choice, check_counts, check_not_negative

ORDERS = ("best_first", "best_last")
PACKING_UNITS = ("passages", "sentences")
#: Text between two passages.
PASSAGE_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Context:
    """Packed passages of one question.

    Attributes:
        passages: Texts as packed, in the order in which the model reads them.
        num_tokens: Number of tokens of the packed text, including separators.
    """

    passages: tuple[str, ...]
    num_tokens: int

    @property
    def text(self) -> str:
        """Packed text."""
        return PASSAGE_SEPARATOR.join(self.passages)


@dataclass(frozen=True)
class Packing:
    """Pack the best passages that fit into a token budget.

    Packing stops at the first passage that does not fit. If the best passage is longer than the budget, it is
    truncated.

    Source: EA-GraphRAG, Eq. 11, ``Pack(D(q))``: "with truncation to fit the model's input length budget".

    Attributes:
        token_budget: Maximum number of tokens of a context.
        top_k: Maximum number of passages. If None, as many as fit. 0 packs none, for closed-book answers.
        unit: Smallest unit that is packed. With ``passages`` only whole passages are, and with ``sentences`` also the
            leading sentences of the first passage that does not fit.
        order: Order of the packed passages. ``best_first``, or ``best_last`` to put the best passage next to the
            question.
        tokenizer: Tokenizer that counts the tokens.

    Example:
        >>> packing = Packing(token_budget=4, unit="sentences")
        >>> packing.pack([["Metz is old.", "It is in France. It has a cathedral."]])[0].text
        'Metz is old.'
    """

    token_budget: int = 4000
    _: KW_ONLY
    top_k: int | None = 10
    unit: str = "passages"
    order: str = "best_first"
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)

    def __post_init__(self) -> None:
        check_counts(token_budget=self.token_budget)
        check_not_negative(top_k=self.top_k or 0)
        check_choice(PACKING_UNITS, unit=self.unit)
        check_choice(ORDERS, order=self.order)

    def pack(self, ranked: Sequence[Sequence[str]]) -> list[Context]:
        """Pack a context for each question.

        Args:
            ranked: Texts of the passages of each question, best first.

        Returns:
            Context of each question.
        """
        (separator,) = count_tokens(self.tokenizer, [PASSAGE_SEPARATOR])
        contexts = []
        for texts in ranked:
            packed: list[str] = []
            num_tokens = 0
            for text in list(texts)[: self.top_k]:
                room = self.token_budget - num_tokens - (separator if packed else 0)
                fitting = self._fitting(text, room, is_first=not packed)
                if fitting:
                    num_tokens = self.token_budget - room + count_tokens(self.tokenizer, [fitting])[0]
                    packed.append(fitting)
                if fitting != text:
                    break
            contexts.append(Context(tuple(packed if self.order == "best_first" else packed[::-1]), num_tokens))
        return contexts

    def _fitting(self, text: str, room: int, *, is_first: bool) -> str:
        """Return the part of a passage that fits."""
        (tokens,) = self.tokenizer.spans([text])
        if not tokens or room < 1:
            return ""
        if len(tokens) <= room:
            return text
        if self.unit == "sentences":
            stops = [stop for _, stop in split_sentences(text)]
            lengths = count_tokens(self.tokenizer, [text[:stop] for stop in stops])
            if fitting := [stop for stop, length in zip(stops, lengths, strict=True) if length <= room]:
                return text[: fitting[-1]]
        return text[: tokens[room - 1][1]] if is_first else ""


def candidate_texts(texts: Sequence[str], nodes: Sequence[Sequence[int]]) -> list[list[str]]:
    """Return the texts of ranked nodes.

    Args:
        texts: Text of each node.
        nodes: Ranked nodes of each question ``[Q, K]``, padded with -1.
    """
    return [[texts[node] for node in row if node >= 0] for row in nodes]
