"""The page of a service in this process, over a corpus whose texts try to be HTML."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.corpus.edge_types import ADJACENCY, REFERENCE
from graphrerank.corpus.metadata import Metadata
from graphrerank.serving.batching import Batcher
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.engine import Engine
from graphrerank.serving.engines.feedback import FeedbackEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.feedback_log import FeedbackStore
from graphrerank.serving.limits import Limits
from graphrerank.serving.recorder import Recorder
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import FeedbackSettings, PageSettings, ServiceSettings
from graphrerank.serving.standard_routes import ADD_FEEDBACK, INSPECT, RERANK, SEARCH
from tests.support import ROOT
from tests.support.searching import searchable
from tests.support.web import serving_app

QUESTION = "where is the director <b>buried</b>?"
HOSTILE = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\"> director"
TEXTS = [
    f"{HOSTILE}. He is buried & \"quoted\" in 'Paris'.",
    "Solaris. A film of a director </textarea><style>body{display:none}</style>",
    *(f"Passage {number}. A director was buried {number} times." for number in range(48)),
]
BASE = ROOT / "src" / "graphrerank" / "pretrained" / "base"


def make_corpus(_: Path) -> SearchableCorpus:
    edges = {(0, 1): REFERENCE, (1, 2): REFERENCE, (0, 3): ADJACENCY, (4, 5): REFERENCE, (5, 6): ADJACENCY}
    ids = [f"<i>{number}</i>" for number in range(len(TEXTS))]
    corpus = searchable(ids, TEXTS, edges, budget=40, other="<u>other</u>", dim=64)
    metadata = Metadata([{"number": number} for number in range(len(TEXTS))])
    return replace(corpus, graph=corpus.graph.with_passages(metadata=metadata))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine[Any]]:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.jsonl").touch()
    search = SearchEngine(make_corpus, folder)
    return {"search": search, "inspect": InspectEngine(search), "rerank": RerankEngine(load_artifact(BASE))}


@pytest.fixture(scope="module")
def serving(engines: dict[str, Engine[Any]]) -> Callable[..., Any]:
    """Serve at a free port."""

    @contextmanager
    def serve(*, searches: bool = True, log: Path | None = None, **settings: Any) -> Iterator[str]:
        """Serve the page, with feedback if there is a folder for its log."""
        page = PageSettings("<b>base</b>", searches=searches, questions=[QUESTION] if searches else [])
        routes = [RERANK, SEARCH, INSPECT] if searches else [RERANK]
        chosen, recorder = FeedbackSettings(None if log is None else str(log), queries=True), None
        if log is not None:
            store = FeedbackStore(chosen)
            routes, recorder = [*routes, ADD_FEEDBACK], Recorder(store, chosen)
            ranking = {"rerank": DeployedEngine(lambda _: RerankEngine(load_artifact(BASE)), BASE)}
            served = {**engines, **ranking, "feedback": FeedbackEngine(store)}
        batcher = Batcher(engines if log is None else served, Limits())
        described = ServiceSettings(page=page, feedback=chosen, **settings)
        app = create_app(routes, batcher, described, info={"name": "<b>base</b>"}, recorder=recorder)
        with serving_app(lambda _: app) as url:
            yield url

    return serve
