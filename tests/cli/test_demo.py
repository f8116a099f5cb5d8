from pathlib import Path

import pytest

from graphrerank.cli.demo import QUESTIONS, has_screen, open_page, write_demo_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.loaders.attack import attack_graph, read_attack


def test_the_corpus_is_that_of_the_package(tmp_path: Path) -> None:
    """Against the graph of all relations, as ``data=attack`` builds it of some."""
    write_demo_corpus(tmp_path / "demo")
    read = Dataset.from_folder(write_demo_corpus(tmp_path / "demo"))  # written anew over the old one
    nodes, relations = read_attack()
    number = {node["id"]: place for place, node in enumerate(nodes)}
    pairs = [(number[r["source"]], number[r["target"]]) for r in relations if r["source"] != r["target"]]
    graph = attack_graph(nodes, pairs)
    assert list(read.graph.node_ids) == list(graph.node_ids)
    assert read.graph.indptr.equal(graph.indptr)
    assert read.graph.indices.equal(graph.indices)
    assert [text.split("\n")[0].split(". ")[0] for text in read.graph.texts][:3] == [
        text.split(". ")[0] for text in graph.texts
    ][:3]
    assert tuple(read.query_texts) == QUESTIONS


def test_the_page_opens_when_the_service_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    answers = iter([OSError("refused"), OSError("503"), None])

    class Opener:
        def open(self, address: str, timeout: float) -> "Opener":
            assert address == "http://localhost:1/ready"
            if (error := next(answers)) is not None:
                raise error
            return self

        def __enter__(self) -> "Opener":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("graphrerank.cli.demo.build_opener", lambda _: Opener())
    monkeypatch.setattr("graphrerank.cli.demo.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("graphrerank.cli.demo.webbrowser.open", opened.append)
    open_page("http://localhost:1")
    assert opened == ["http://localhost:1/"]


def test_without_a_screen_no_browser_takes_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank.cli.demo.sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()
