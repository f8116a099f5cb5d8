"""Train, judge and serve learned graph rerankers for graph RAG."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphrerank.inference.graph_reranker import GraphReranker
    from graphrerank.inference.rerank_input import RerankInput
    from graphrerank.inference.reranked_list import RerankedList

__version__ = "0.2.0"
__all__ = ["GraphReranker", "RerankInput", "RerankedList"]


if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name):
        """Load the names of ``__all__`` when they are first asked for: ``import graphrerank`` alone loads no torch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from graphrerank import inference

        return getattr(inference, name)

    def __dir__():
        return sorted({*globals(), *__all__})
