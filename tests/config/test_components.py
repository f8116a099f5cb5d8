"""ComponentFactory by their names, in plain Python."""

from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.config.compose import flatten_settings
from graphrerank.config.manifest_guard import plain_arguments
from graphrerank.models.manifest import GroupEntry
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset


@pytest.fixture
def parts(tmp_path: Path) -> ComponentFactory:
    return ComponentFactory(cache=tmp_path / "cache", device="cpu")


def test_a_name_is_composed_with_folders_and_changes(parts: ComponentFactory, tmp_path: Path) -> None:
    settings = parts.settings("pipeline", "hipporag2", budget=7)
    assert settings.budget == 7
    assert settings.steps[1].folder == str(tmp_path / "cache" / "fact_graph")
    assert not GlobalHydra.instance().is_initialized()  # composing leaves nothing behind


def test_objects_and_parts_pass(parts: ComponentFactory) -> None:
    encoder = HashEncoder()
    assert parts.build("encoder", encoder) is encoder
    part = parts.component("encoder", encoder)
    assert (part.name, part.arguments, parts.component("encoder", part)) == ("HashEncoder", {}, part)
    assert parts.build("encoder", None) is None


def test_settings_of_no_file_have_the_name_of_their_class(parts: ComponentFactory) -> None:
    part = parts.component("retriever", {"_target_": "graphrerank.operators.bm25.BM25Retriever", "_partial_": True})
    assert part.name == "BM25Retriever"


def test_data_sets_share_an_encoder_and_its_vectors(parts: ComponentFactory) -> None:
    encoder = parts.text_encoder(parts.component("encoder", "minilm"))
    assert encoder is parts.text_encoder(parts.component("encoder", "minilm"))
    assert encoder is not parts.text_encoder(HashEncoder())


@pytest.mark.parametrize(
    ("group", "name", "changes", "message"),
    [
        ("encoder", "minilmm", {}, "must be the name of a file of conf/encoder, got 'minilmm'"),
        ("encoder", "../minilm", {}, "must be the name of a file of conf/encoder"),
        (
            "retriever",
            "hybrid",
            {"top": 5},
            "settings {'top': 5} are invalid for conf/retriever/hybrid.yaml: Key 'top'",
        ),
        ("data", "folder", {}, "`path` must be set for data=folder"),
    ],
)
def test_unknown_names_and_settings(
    parts: ComponentFactory, group: str, name: str, changes: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parts.settings(group, name, **changes)


def test_a_folder_is_prepared(parts: ComponentFactory, tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "pets",
        corpus=[{"_id": "a", "title": "", "text": "a cat"}, {"_id": "b", "title": "", "text": "a dog"}],
        queries=[{"_id": "q", "text": "which cat?"}],
        test=[("q", "a", 1)],
    )
    prepared = parts.prepare(str(folder), retriever="bm25", reads_vectors=False, splits=["test"])
    assert prepared.ranking.nodes[0, 0] == 0
    assert isinstance(parts.build("retriever", "bm25")(prepared.dataset.graph), BM25Retriever)
    with pytest.raises(ValueError, match="`encoder` must be set"):
        parts.prepare(str(folder), retriever="hybrid")


def test_expansion_without_edges_gets_a_hint(
    parts: ComponentFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, queries = [{"_id": name, "title": "", "text": "a cat"} for name in "ab"], [{"_id": "q", "text": "cat?"}]
    words = partial(BM25Retriever, top_k=2)
    expand = partial(ExpandRetriever, base=words, similarity_weight=0)
    for name, retriever, edges in (("words", words, []), ("bare", expand, []), ("joined", expand, [("a", "b", "to")])):
        folder = write_dataset(tmp_path / name, corpus=corpus, queries=queries, edges=edges, test=[("q", "a")])
        parts.load(str(folder), encoder=None, retriever=retriever, reads_vectors=False)
    hints = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert hints == [
        "hint: bare has no edges to expand along. To extract edges from the texts, use data.edges=auto (edges=auto for "
        'several data sets; in Python: edges="auto")'
    ]


@pytest.mark.parametrize(
    ("choice", "arguments", "message"),
    [
        ("sentence_transformer", {"model": "../evil"}, "must be a model id on the Hugging Face hub"),
        ("minilm", {"model": {"package": "evil"}}, "`encoder.model.package` in a file must equal its default in conf"),
        ("minilm", {"prompt": "${oc.env:HOME}"}, "must not contain interpolations"),
        (
            "endpoint",
            {"base_url": "http://evil", "model": "m"},
            "`encoder.base_url` in a file must not be a path or an address, got 'http://evil'",
        ),
    ],
)
def test_a_manifest_names_no_place_of_this_machine(
    parts: ComponentFactory, choice: str, arguments: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parts.from_manifest("encoder", GroupEntry(choice=choice, arguments=arguments))


def test_a_manifest_gives_back_its_part(parts: ComponentFactory) -> None:
    part = parts.component("retriever", "hybrid", top_k=20)
    again = parts.from_manifest("retriever", GroupEntry(choice=part.choice, arguments=part.arguments))
    assert (again.choice, again.settings) == (part.choice, part.settings)
    assert plain_arguments(again.settings)["top_k"] == 20


@pytest.mark.parametrize(
    ("old", "new"),
    [("Parts", ComponentFactory), ("Part", ConfiguredComponent), ("dotted_settings", flatten_settings)],
)
@pytest.mark.parametrize("module", ["graphrerank.parts", "graphrerank.config.components"])
def test_names_before_0_4_0_still_work(module: str, old: str, new: object) -> None:
    with pytest.warns(DeprecationWarning, match="0.5.0"):
        assert getattr(import_module(module), old) is new


def test_equal_descriptions_give_one_encoder(tmp_path: Path) -> None:
    components = ComponentFactory(cache=tmp_path)
    description = {"_target_": "tests.support.encoders.HashEncoder"}
    first = components.text_encoder(dict(description))
    assert components.text_encoder(dict(description)) is first
    assert components.text_encoder({**description, "dim": 4}) is not first
    assert components.text_encoder(first) is first
    assert components.encoder_counts == {}
