"""Cost of an index: tokens sent to models, and KET-RAG's formulas for them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens; the defaults are GPT-4o-mini's and text-embedding-3-small's, KET-RAG's models."""

    model_input: float = 0.15  # read by the language model
    model_output: float = 0.60  # written by it
    encoder: float = 0.02  # read by the encoder


@dataclass(frozen=True)
class Tokens:
    """Tokens sent to models and written by them."""

    model_input: int = 0  # read by the language model
    model_output: int = 0  # written by it
    encoder: int = 0  # read by the encoder

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.model_input + other.model_input,
            self.model_output + other.model_output,
            self.encoder + other.encoder,
        )

    def dollars(self, prices: Prices) -> float:
        """Return the cost of the tokens in US dollars."""
        spent = (
            self.model_input * prices.model_input
            + self.model_output * prices.model_output
            + self.encoder * prices.encoder
        )
        return spent / 1e6


def knowledge_graph_tokens(
    num_chunks: int, chunk_tokens: int, *, description_tokens: int, prompt_tokens: int, num_prompts: int = 2
) -> Tokens:
    r"""Predict the tokens of KG-Index, Algorithm 1.

    .. math:: (2 \ell + \lambda_e + \lambda_r)\,|V_t| \text{ read by the model}, \qquad
              \ell\,|V_t| + \sum_{x \in V_e \cup E} \ell_x \text{ by the encoder}

    Source: KET-RAG, section 5.3, which gives no formula for output tokens.

    Args:
        num_chunks: :math:`|V_t|`.
        chunk_tokens: :math:`\ell`, tokens per chunk.
        description_tokens: :math:`\sum \ell_x`, over all entities and relations.
        prompt_tokens: :math:`\lambda_e + \lambda_r`, over all prompts for a chunk.
        num_prompts: Number of times the model reads a chunk; twice in the paper, for entities and for relations.

    Example:
        >>> knowledge_graph_tokens(10, 100, description_tokens=500, prompt_tokens=60)
        Tokens(model_input=2600, model_output=0, encoder=1500)
    """
    read = (num_prompts * chunk_tokens + prompt_tokens) * num_chunks
    return Tokens(read, 0, chunk_tokens * num_chunks + description_tokens)


def keyword_graph_tokens(num_chunks: int, chunk_tokens: int) -> Tokens:
    r"""Predict the tokens of the text-keyword graph: :math:`3 \ell\,|T|`, for chunks, sub-chunks and sentences.

    Source: KET-RAG, section 5.3.
    """
    return Tokens(encoder=3 * chunk_tokens * num_chunks)
