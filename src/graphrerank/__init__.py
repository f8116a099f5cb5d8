"""Train, evaluate and serve learned graph rerankers for graph RAG."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from graphrerank import _moved

if TYPE_CHECKING:
    from graphrerank.data.dataset import Dataset
    from graphrerank.evaluation.evaluate import evaluate
    from graphrerank.feedback.learn import learn
    from graphrerank.rerank import GraphReranker, RerankedList, RerankInput
    from graphrerank.training.fit import fit
    from graphrerank.training.settings import FitSettings
    from graphrerank.training.trainer import RerankerTrainer

__version__ = "0.4.0"
__all__ = [
    "Dataset",
    "FitSettings",
    "GraphReranker",
    "RerankInput",
    "RerankedList",
    "RerankerTrainer",
    "evaluate",
    "fit",
    "learn",
]

_moved.install()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user configures logging

_HOMES = {
    "evaluate": "graphrerank.evaluation.evaluate",
    "learn": "graphrerank.feedback.learn",
    "fit": "graphrerank.training.fit",
    "FitSettings": "graphrerank.training.settings",
    "RerankerTrainer": "graphrerank.training.trainer",
    "Dataset": "graphrerank.data.dataset",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name):
        """Import a public name on first use, so that ``import graphrerank`` alone does not import torch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(import_module(_HOMES.get(name, "graphrerank.rerank")), name)
        except AttributeError as error:  # an outdated dependency; Python alone would say "cannot import name"
            raise ImportError(f"{__name__}.{name} cannot be imported: {error}") from error

    def __dir__():
        return sorted({*globals(), *__all__})
