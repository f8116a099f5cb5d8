"""Sizes and costs of a KET index: nodes, edges and tokens."""

from dataclasses import dataclass

# US dollars per million tokens of GPT-4o-mini and of text-embedding-3-small, KET-RAG's models
MODEL_INPUT_PRICE, MODEL_OUTPUT_PRICE, ENCODER_PRICE = 0.15, 0.60, 0.02


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

    @property
    def dollars(self) -> float:
        """The cost of the tokens in US dollars, at the prices of the paper's models.

        Example:
            >>> Tokens(model_input=2_000_000, encoder=1_000_000).dollars
            0.32
        """
        language_model = self.model_input * MODEL_INPUT_PRICE + self.model_output * MODEL_OUTPUT_PRICE
        return (language_model + self.encoder * ENCODER_PRICE) / 1e6


@dataclass(frozen=True)
class KETReport:
    """Counts of nodes, edges and tokens."""

    documents: int  # documents of the corpus
    corpus_tokens: int  # tokens of all chunks
    chunks: int
    chunk_edges: int  # edges of the chunks' graph
    core_chunks: int  # chunks whose knowledge was extracted
    core_tokens: int  # tokens of the core chunks
    sub_chunks: int
    entities: int  # entities of the skeleton
    relations: int  # relations of the skeleton
    skeleton_edges: int  # links of entities and relations to sub-chunks
    description_tokens: int  # tokens of the texts of entities and relations
    keywords: int
    keyword_edges: int  # links of keywords to sub-chunks
    prompt_tokens: int  # tokens of all prompts for a chunk; 0 without a language model
    num_prompts: int  # number of prompts for a chunk; 0 without a language model
    sent: Tokens  # tokens that the models read and wrote, including those whose results were cached

    @property
    def predicted(self) -> Tokens:
        r"""Tokens of this index by the formulas of KET-RAG, section 5.3.

        .. math:: (2 \ell + \lambda_e + \lambda_r)\,|V_c| \text{ read by the model}, \qquad
                  \ell\,|V_c| + \sum_{x \in V_e \cup E} \ell_x + 3 \ell\,|T| \text{ by the encoder}

        with :math:`\ell` tokens per chunk, :math:`V_c` the core chunks, :math:`\lambda` the tokens of the prompts (two
        in the paper) and :math:`\ell_x` those of a description; without keywords the last term is :math:`\ell\,|T|`.

        They exceed the tokens sent: they count core chunks twice, relations' vectors, which no retrieval reads,
        sub-chunks that equal their chunk, and sentences without a keyword.
        """
        text = Tokens(encoder=(3 if self.keywords else 1) * self.corpus_tokens)
        read = self.num_prompts * self.core_tokens + self.prompt_tokens * self.core_chunks
        return text + Tokens(read, 0, self.core_tokens + self.description_tokens)

    def lines(self) -> list[str]:
        """Return four lines of text: nodes, edges, tokens sent, and tokens predicted by the formulas."""
        sent, predicted = self.sent, self.predicted
        return [
            f"nodes: {self.documents:,} documents of {self.corpus_tokens:,} tokens, {self.chunks:,} chunks "
            f"({self.core_chunks:,} core), {self.sub_chunks:,} sub-chunks, {self.entities:,} entities, "
            f"{self.keywords:,} keywords",
            f"edges: {self.chunk_edges:,} between chunks, {self.relations:,} relations, {self.skeleton_edges:,} from "
            f"entities and relations to sub-chunks, {self.keyword_edges:,} from keywords to sub-chunks",
            f"language model: {sent.model_input:,} tokens read, {sent.model_output:,} written; "
            f"encoder: {sent.encoder:,} tokens read; together ${sent.dollars:.4f}",
            f"by the paper's formulas: {predicted.model_input:,} tokens read by the language model, "
            f"{predicted.encoder:,} by the encoder; together ${predicted.dollars:.4f}",
        ]
