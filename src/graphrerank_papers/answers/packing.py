"""Contexts of a token budget, packed from retrieved passages."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from graphrerank.text import Tokenizer, WordTokenizer, count_tokens, split_sentences
from graphrerank.utils.checks import check_choice, check_counts, check_not_negative

ORDERS = ("best_first", "best_last")
UNITS = ("passages", "sentences")
SEPARATOR = "\n\n"  # between passages


@dataclass(frozen=True)
class Context:
    """The packed passages of one question."""

    passages: tuple[str, ...]  # texts as packed, in the order in which they are read
    num_tokens: int  # of the packed text, separators included

    @property
    def text(self) -> str:
        """The packed text."""
        return SEPARATOR.join(self.passages)


@dataclass(frozen=True)
class Packing:
    """Packs the best passages that fit into a budget of tokens.

    The first passage that does not fit ends it; a best passage longer than the budget is cut to it.

    Source: EA-GraphRAG, Eq. 11, ``Pack(D(q))``: "with truncation to fit the model's input length budget".
    """

    token_budget: int = 4000  # tokens of a context at most
    _: KW_ONLY
    top_k: int | None = 10  # passages at most; None for as many as fit, 0 for none: closed book
    unit: str = "passages"  # smallest unit that is kept: `passages`, or `sentences`
    order: str = "best_first"  # of the packed passages; `best_last` puts the best one next to the question
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)

    def __post_init__(self) -> None:
        check_counts(token_budget=self.token_budget)
        check_not_negative(top_k=self.top_k or 0)
        check_choice(UNITS, unit=self.unit)
        check_choice(ORDERS, order=self.order)

    def pack(self, ranked: Sequence[Sequence[str]]) -> list[Context]:
        """Pack the passages of ``Q`` questions, each a sequence of texts, best first."""
        (separator,) = count_tokens(self.tokenizer, [SEPARATOR])
        contexts = []
        for texts in ranked:
            kept, used = list[str](), 0
            for text in list(texts)[: self.top_k]:
                room = self.token_budget - used - (separator if kept else 0)
                if part := self._fitting(text, room, is_first=not kept):
                    used = self.token_budget - room + count_tokens(self.tokenizer, [part])[0]
                    kept.append(part)
                if part != text:
                    break
            contexts.append(Context(tuple(kept if self.order == "best_first" else kept[::-1]), used))
        return contexts

    def _fitting(self, text: str, room: int, *, is_first: bool) -> str:
        """Return the part of a passage that is kept."""
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
    """Look up the texts of ranked nodes, ``[Q, K]``, padded with -1."""
    return [[texts[node] for node in row if node >= 0] for row in nodes]
