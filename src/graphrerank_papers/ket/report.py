"""Sizes and costs of a KET index."""

from dataclasses import dataclass

from graphrerank_papers.ket.costs import Prices, Tokens, keyword_graph_tokens, knowledge_graph_tokens


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
    description_tokens: int  # tokens of the entities' texts
    relation_tokens: int  # tokens of the relations' texts
    keywords: int
    keyword_edges: int  # links of keywords to sub-chunks
    prompt_tokens: int  # tokens of all prompts for a chunk; 0 without a language model
    num_prompts: int  # number of prompts for a chunk; 0 without a language model
    sent: Tokens  # tokens that the models read and wrote, including those whose results were cached

    @property
    def predicted(self) -> Tokens:
        r"""Tokens of this index by the formulas of KET-RAG, section 5.3: :math:`\beta` KG-Index and the keyword graph.

        They exceed the tokens sent: they count core chunks twice, relations' vectors, which no retrieval reads,
        sub-chunks that equal their chunk, and sentences without a keyword.
        """
        tokens = Tokens()
        if self.core_chunks:
            tokens = tokens + knowledge_graph_tokens(
                1,
                self.core_tokens,
                description_tokens=self.description_tokens + self.relation_tokens,
                prompt_tokens=self.prompt_tokens * self.core_chunks,
                num_prompts=self.num_prompts,
            )
        if self.keywords:
            return tokens + keyword_graph_tokens(1, self.corpus_tokens)
        return tokens + Tokens(encoder=self.corpus_tokens)

    def lines(self, prices: Prices | None = None) -> list[str]:
        """Return four lines of text: nodes, edges, tokens sent, and tokens predicted by the formulas."""
        prices = prices or Prices()
        sent, predicted = self.sent, self.predicted
        return [
            f"nodes: {self.documents:,} documents of {self.corpus_tokens:,} tokens, {self.chunks:,} chunks "
            f"({self.core_chunks:,} core), {self.sub_chunks:,} sub-chunks, {self.entities:,} entities, "
            f"{self.keywords:,} keywords",
            f"edges: {self.chunk_edges:,} between chunks, {self.relations:,} relations, {self.skeleton_edges:,} from "
            f"entities and relations to sub-chunks, {self.keyword_edges:,} from keywords to sub-chunks",
            f"language model: {sent.model_input:,} tokens read, {sent.model_output:,} written; "
            f"encoder: {sent.encoder:,} tokens read; together ${sent.dollars(prices):.4f}",
            f"by the paper's formulas: {predicted.model_input:,} tokens read by the language model, "
            f"{predicted.encoder:,} by the encoder; together ${predicted.dollars(prices):.4f}",
        ]
