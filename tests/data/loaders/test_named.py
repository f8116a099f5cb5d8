import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from graphrerank.cli import schema
from graphrerank.data.loaders import named
from graphrerank.data.loaders.named import HOMES, load_named
from graphrerank.data.readers import fetch
from graphrerank.installation.conf_folder import listed_choices
from tests.support import ROOT
from tests.support.files import zip_of

NAMED = sorted(HOMES)


class FakeWeb:
    """Serves bytes by location, and keeps every location it was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []

    def __call__(self, location: str, target: Path) -> None:
        self.asked.append(location)
        if location not in self.files:
            raise ConnectionError("no route to host")
        target.write_bytes(self.files[location])


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)


def beir_zip(**extra: str) -> bytes:
    content = {
        "nfcorpus/corpus.jsonl": '{"_id": "MED-1", "title": "T", "text": "x", "metadata": {"url": "u"}}\n'
        '{"_id": "MED-2", "title": "", "text": ""}\n',
        "nfcorpus/queries.jsonl": '{"_id": "P1", "text": "?", "metadata": {}}\n{"_id": "P2", "text": "?"}\n',
        "nfcorpus/qrels/train.tsv": "query-id\tcorpus-id\tscore\nP1\tMED-1\t2\n",
        "nfcorpus/qrels/test.tsv": "query-id\tcorpus-id\tscore\nP2\tMED-1\t1\n",
    } | extra
    return zip_of(content)


HOTPOT_CORPUS = [
    {"title": "Ant", "text": "It walks. It works.", "idx": 0},
    {"title": "Bee", "text": "It flies.", "idx": 1},
    {"title": "Bee", "text": "It stings.", "idx": 2},
]
HOTPOT_QUESTIONS = [
    {
        "_id": "h1",
        "question": "Who flies and who walks?",
        "answer": "bee",
        "supporting_facts": [["Bee", 0], ["Ant", 0], ["Ant", 1]],
        "context": [["Ant", ["It walks.", " It works."]], ["Bee", ["It flies."]], ["Cat", ["Meow."]]],
    },
    {
        "_id": "h2",
        "question": "Who works?",
        "answer": "ant",
        "supporting_facts": [["Ant", 1]],
        "context": [["Ant", ["Another wording."]]],  # found by its title
    },
]
MUSIQUE_QUESTIONS = [
    {
        "id": "2hop__1_2",
        "question": "Who stings?",
        "answer": "bee",
        "answer_aliases": ["bees"],
        "paragraphs": [
            {"title": "Bee", "paragraph_text": "It stings.", "is_supporting": True},
            {"title": "Ant", "paragraph_text": "It walks. It works.", "is_supporting": False},
        ],
    }
]


def serve(monkeypatch: pytest.MonkeyPatch, source: str, *contents: bytes) -> FakeWeb:
    """Make a fake web that holds these files at a named set's locations, and pin their checksums."""
    home = HOMES[source]
    files = {
        location: "sha256:" + hashlib.sha256(content).hexdigest()
        for location, content in zip(home.files, contents, strict=True)
    }
    monkeypatch.setattr(named, "HOMES", {**HOMES, source: named.Home(home.page, files, home.build)})
    return FakeWeb(dict(zip(files, contents, strict=True)))


@pytest.mark.parametrize("file", [file for home in HOMES.values() for file in home.files.items()])
def test_every_download_is_pinned(file: tuple[str, str]) -> None:
    location, checksum = file
    algorithm, digest = checksum.split(":")
    assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]
    assert int(digest, 16)
    assert location.startswith(("https://", "hf://datasets/"))


def test_beir_is_fetched_once_and_then_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    web = serve(monkeypatch, "nfcorpus", beir_zip())
    first = load_named("nfcorpus", datasets=tmp_path / "new", downloader=web, drop_empty=True)
    again = load_named("nfcorpus", datasets=tmp_path / "new", downloader=web, drop_empty=True, splits=["test"])
    assert web.asked == list(HOMES["nfcorpus"].files)
    assert (first.name, list(first.graph.texts), list(first.splits)) == ("nfcorpus", ["T. x"], ["test", "train"])
    assert list(again.query_ids) == ["P2"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["nfcorpus"]  # nothing temporary is left


def test_nq_is_read_as_grapher_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    titles = ["Ant", "Ant", "Bee", "Bee"]
    lines = (json.dumps({"_id": f"d{i}", "title": title, "text": f"Chunk {i}."}) for i, title in enumerate(titles))
    judged = {"corpus.jsonl": "\n".join(lines), "qrels/test.tsv": "query-id\tcorpus-id\tscore\nP2\td1\t1\n"}
    archive = beir_zip(
        **{f"nfcorpus/{name}": text for name, text in judged.items()}, **{"nfcorpus/qrels/train.tsv": ""}
    )
    web, entry = serve(monkeypatch, "beir-nq", archive), listed_choices("data")["beir-nq"]
    settings = {key: entry[key] for key in ("splits", "drop_empty", "adjacency")}
    dataset = load_named("beir-nq", datasets=tmp_path, downloader=web, **settings)
    assert list(dataset.graph.node_ids) == ["d0", "d1"]  # the page with the relevant chunk
    assert dataset.graph.num_edges == 2


def test_hotpotqa_is_converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    web = serve(monkeypatch, "hotpotqa", *(json.dumps(x).encode() for x in (HOTPOT_QUESTIONS, HOTPOT_CORPUS)))
    dataset = load_named("hotpotqa", datasets=tmp_path, downloader=web)
    assert list(dataset.graph.node_ids) == ["hotpotqa:0", "hotpotqa:1", "hotpotqa:2"]
    assert list(dataset.graph.texts) == ["Ant. It walks. It works.", "Bee. It flies.", "Bee. It stings."]
    assert list(dataset.query_texts) == ["Who flies and who walks?", "Who works?"]
    qrels = dataset.split("test")
    assert sorted(zip(qrels.query.tolist(), qrels.node.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]


def test_musique_is_converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    web = serve(monkeypatch, "musique", *(json.dumps(x).encode() for x in (MUSIQUE_QUESTIONS, HOTPOT_CORPUS)))
    dataset = load_named("musique", datasets=tmp_path, downloader=web, name="m")
    assert (dataset.name, list(dataset.query_ids), dataset.split("test").node.tolist()) == ("m", ["2hop__1_2"], [2])
    query = json.loads((tmp_path / "musique" / "queries.jsonl").read_text(encoding="utf-8"))
    assert query["metadata"] == {"answer": "bee", "answer_aliases": ["bees"]}


@pytest.mark.parametrize("source", NAMED)
def test_unreachable_names_the_folder_and_leaves_nothing(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "sets" / source
    with pytest.raises(ValueError, match=r"put corpus\.jsonl, queries\.jsonl and qrels/<split>\.tsv into") as caught:
        load_named(source, datasets=tmp_path / "sets", downloader=FakeWeb({}))
    assert str(folder) in str(caught.value)
    assert HOMES[source].page in str(caught.value)
    assert ("no route to host" in str(caught.value)) == bool(HOMES[source].files)
    assert not folder.exists()
    assert not list(tmp_path.glob("sets/*"))


def unsupported(title: str) -> bytes:
    paragraph = {"title": title, "paragraph_text": "", "is_supporting": True}
    return json.dumps([{**MUSIQUE_QUESTIONS[0], "paragraphs": [paragraph]}]).encode()


@pytest.mark.parametrize(
    ("source", "contents", "message"),
    [
        ("nfcorpus", [b"not a zip"], r"nfcorpus\.zip: damaged, cut off or encrypted"),
        (
            "nfcorpus",
            [beir_zip(**{"nfcorpus/corpus.jsonl": "{"})],
            r"corpus\.jsonl, line 1: not in the format of A dat",
        ),
        ("nfcorpus", [beir_zip(**{"nfcorpus/qrels/train.tsv": "x\n1\n"})], r"train\.tsv, line 2: .*query-id"),
        ("nfcorpus", [beir_zip(**{"nfcorpus/qrels/../../../evil.tsv": "x"})], "paths in an archive must be relative"),
        ("nfcorpus", [beir_zip(**{"/corpus.jsonl": "x"})], "paths in an archive must be relative"),
        ("musique", [b"{"], r"musique\.json, line 1: not in the format of HippoRAG's 1,000 questions"),
        ("musique", [b"[1]"], r"musique\.json, entry 0: .* AttributeError"),
        ("musique", [unsupported("Z")], r"entry 0: .* supporting passages must be in the corpus, got 'Z'"),
        ("musique", [unsupported("Bee")], "supporting passages must be in the corpus, got 'Bee'"),  # of two passages
    ],
)
def test_what_cannot_be_converted_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, contents: list[bytes], message: str
) -> None:
    further = [json.dumps(HOTPOT_CORPUS).encode()] if source == "musique" else []
    web = serve(monkeypatch, source, *contents, *further)
    with pytest.raises(ValueError, match=message):
        load_named(source, datasets=tmp_path / "sets", downloader=web)
    assert [path.name for path in tmp_path.rglob("*")] == ["sets"]


def test_an_unknown_name_and_the_wrong_checksum(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`source` must be one of .* got 'spyder'; use data=folder for other folders"):
        load_named("spyder", datasets=tmp_path)
    web = FakeWeb(dict.fromkeys(HOMES["scifact"].files, beir_zip()))
    with pytest.raises(
        ValueError, match=r"scifact\.zip: expected a file with md5 5f7d1de60b170fc8027bb7898e2efca1, got"
    ):
        load_named("scifact", datasets=tmp_path, downloader=web)
    assert not list(tmp_path.iterdir())


def test_a_faster_process_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_folder) -> None:
    web = serve(monkeypatch, "nfcorpus", beir_zip())

    def slow(location: str, target: Path) -> None:
        web(location, target)
        if not (tmp_path / "sets" / "nfcorpus").exists():
            write_folder(tmp_path / "sets" / "nfcorpus")

    dataset = load_named("nfcorpus", datasets=tmp_path / "sets", downloader=slow)
    assert list(dataset.graph.node_ids) == ["a", "b", "c", "d d"]
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["nfcorpus"]


def test_download_from_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def hf_hub_download(repository: str, filename: str, **options: Any) -> str:
        asked.append((repository, filename, options["repo_type"], options["revision"]))
        if filename == "none.json":
            raise RuntimeError("offline")
        target = Path(options["local_dir"]) / filename
        target.write_bytes(b"content")
        return str(target)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", hf_hub_download)
    fetch.download("hf://datasets/owner/name@abc/file.json", tmp_path / "file.json")
    assert (tmp_path / "file.json").read_bytes() == b"content"
    assert asked == [("owner/name", "file.json", "dataset", "abc")]
    with pytest.raises(OSError, match="RuntimeError: offline"):
        fetch.download("hf://datasets/owner/name@abc/none.json", tmp_path / "none.json")


# --- configurations --------------------------------------------------------------------------------------------------


@pytest.fixture
def composed(tmp_path: Path):
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):

        def group(choice: str, *overrides: str) -> Any:
            everything = [
                f"data={choice}",
                f"paths.run_dir={tmp_path}",
                f"paths.cache={tmp_path / 'cache'}",
                *overrides,
            ]
            return compose("train", overrides=everything).data

        yield group


def test_an_extractor_by_configuration(composed, write_folder) -> None:
    target = "graphrerank_papers.knowledge.language_model.LanguageModelEntityExtractor"
    extractor = f"{{_target_: {target}, base_url: 'http://127.0.0.1:9/v1', model: m, max_retries: 0, concurrency: 1}}"
    data = composed("folder", f"data.path={write_folder()}", f"data.entities={extractor}")
    with pytest.raises(InstantiationException, match=r"127\.0\.0\.1:9/v1/chat/completions gave no usable answer"):
        instantiate(data)


REAL = {  # nodes, edges, queries by split
    "spider": (876, 742, {"train": 6300, "val": 700, "test": 1034}),
    "bird": (75, 72, {"test": 1534}),
    "bird_train": (522, 1235, {"train": 5940, "val": 661}),
    "hotpotqa": (17459, 0, {"dev": 100, "test": 465, "train": 400}),
    "2wikimultihopqa": (6119, 0, {"test": 1000}),
    "2wikimultihopqa_train": (3117, 0, {"train": 420, "val": 47}),
    "scifact": (5183, 0, {"train": 728, "val": 81, "test": 300}),
    "nfcorpus": (3395, 0, {"train": 2563, "val": 324, "test": 323}),
}


@pytest.mark.parametrize("source", REAL)
def test_real_data_by_configuration(composed, datasets: Path, source: str) -> None:
    data = composed(source, f"paths.datasets={datasets}", "data.mentions=false")
    if not (datasets / data.source).is_dir():
        pytest.skip(f"{datasets / data.source} is not there")
    nodes, edges, queries = REAL[source]
    dataset = instantiate(data)
    assert (dataset.name, dataset.graph.num_nodes, dataset.graph.num_edges) == (source, nodes, 2 * edges)
    assert {split: len(qrels.queries) for split, qrels in dataset.splits.items()} == queries
