"""The package of docs/extending.md, its files and commands as they stand there, outside of this repository."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from graphrerank import GraphReranker
from graphrerank.core import Encoder, PairEncoder, Queries, Reranker, Retriever
from graphrerank.data.vector_cache import PairCache
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CorpusCandidates
from tests.support import ROOT
from tests.support.files import write_files

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PARTS = [part for _, block in BLOCKS for part in re.split(r"\n(?=# my_rerankers/)", block) if part.startswith("# ")]
FILES = {part.split("\n")[0][2:]: part.partition("\n")[2] for part in PARTS}
LINES = "".join(block for language, block in BLOCKS if not language).replace("\\\n", " ").splitlines()
COMMANDS = [shlex.split(line) for line in LINES if line.startswith("graphrerank ")]
EXAMPLE = next(block for language, block in BLOCKS if language == "python" and not block.startswith("# "))
SECTIONS = (
    "A data set", "An encoder", "A retriever", "A cross-encoder", "A model", "A loss", "An operator", "A pipeline step"
)  # fmt: skip
BASES = {"encoder": Encoder, "retriever": Retriever, "pair_encoder": PairEncoder, "model": Reranker}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, and beside it what pip writes of its pyproject.toml."""
    folder = tmp_path_factory.mktemp("outsider")
    write_files(folder, FILES)
    (folder / "my_rerankers" / "__init__.py").touch()
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = folder / "my_rerankers-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"[{group}]\n" + "\n".join(map(" = ".join, own.items())) for group, own in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def bare(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same modules, not installed: on PYTHONPATH, without entry points."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "my_rerankers").symlink_to(package / "my_rerankers")
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python elsewhere, with a folder of modules."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str, modules: Path) -> subprocess.CompletedProcess[str]:
        own = {"GRAPHRERANK_CACHE": str(home / "cache"), "PYTHONPATH": str(modules), "COLUMNS": "120"}
        environment = {**os.environ, **own}
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=home)

    return run


@pytest.fixture(scope="module")
def trained(python: Run, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the page's training."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    command = next(command for command in COMMANDS if command[1] == "train")
    done = python("-m", "graphrerank.cli.main", *command[1:], f"hydra.run.dir={folder}", modules=package)
    assert done.returncode == 0, done.stderr
    row = re.search(r"│neighbour_mlp +│(.*)│", done.stdout)
    assert "100.00" in row[1]  # PR@5: it has learned to look at neighbours
    assert "│neighbour_mean" in done.stdout
    return folder


def test_each_part_has_a_section_with_a_file_and_its_settings() -> None:
    settings = {name: content for name, content in FILES.items() if name.endswith(".yaml")}
    targets = dict(re.findall(r"_target_: my_rerankers\.(\w+)\.(\w+)", "".join(settings.values())))
    for title in SECTIONS:
        section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        module = re.search(r"^# my_rerankers/(\w+)\.py$", section, re.M)
        assert module is not None, title
        assert f" {targets[module[1]]}(" in section.replace(":", "("), title
    assert len(settings) == len(SECTIONS)
    assert all(OmegaConf.create(content) for content in settings.values())


def module(name: str) -> dict[str, Any]:
    """The names of a module of the page."""
    names: dict[str, Any] = {"__name__": f"my_rerankers.{name}"}
    exec(compile(FILES[f"my_rerankers/{name}.py"], f"{name}.py", "exec"), names)
    return names


@pytest.mark.parametrize("name", BASES)
def test_the_page_has_a_complete_example_of_each_base(name: str) -> None:
    base = BASES[name]
    (example,) = (
        each
        for each in module(name).values()
        if isinstance(each, type) and issubclass(each, base) and each.__module__ == f"my_rerankers.{name}"
    )
    assert not getattr(example, "__abstractmethods__", frozenset())
    assert f"`{base.__name__}`" in PAGE


def test_the_cross_encoder_reads_each_pair_once(tmp_path: Path) -> None:
    encoder = module("pair_encoder")["SharedWords"]()
    cached = PairCache(encoder, tmp_path)
    pairs = ["what is next to stop7", "stop8"], ["stop7 is next", "stop9"]
    vectors = cached.encode(*pairs)
    assert vectors.tolist() == [[3, 3], [0, 1]]
    assert cached.head(vectors).tolist() == [1, 0]
    assert (cached.name, cached.encode(["q"], [""]).shape) == ("SharedWords", (1, 2))


def test_retriever_encoder_and_model_fit_together() -> None:
    """The page's parts in one process, as `train` puts them together."""
    dataset, encoder = module("data")["load_stops"](num_stops=9), module("encoder")["WordEncoder"]()
    graph = dataset.graph.with_embedding(encoder.encode(dataset.graph.texts))
    retriever = module("retriever")["CosineRetriever"](graph, top_k=4)
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder.for_queries.encode(dataset.query_texts))
    ranking = retriever.retrieve(queries)
    assert ranking.nodes[:, 0].tolist() == list(range(9))  # a stop's own text is nearest
    model = module("model")["NeighbourMLP"](num_scores=1)
    builder = CandidateGraphBuilder(model.inputs_of(hidden_channels=32))
    graphs = builder.from_corpus(CorpusCandidates(graph, queries, ranking, retriever.feature_names))
    assert model(*graphs.model_inputs(model.inputs)).shape == (36,)
    assert model.feature_names(retriever.feature_names) == ["base_score"]


#: Commands, each a list of arguments, one after the other in one process.
SEVERAL_COMMANDS = """
import json, sys
from graphrerank.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["graphrerank", *arguments]
    if main():
        sys.exit(1)
"""


@pytest.mark.slow  # processes that load all of torch
def test_the_commands_run_and_the_checkpoint_remembers_its_model(
    python: Run, package: Path, trained: Path, tmp_path: Path
) -> None:
    (command,) = (each for each in COMMANDS if each[1] == "evaluate" and "--config-dir" not in each)
    evaluation = [argument.replace("RUN", str(trained)) for argument in command[1:]]
    export = ["export", f"checkpoint={trained}", f"artifact={tmp_path / 'artifact'}"]
    done = python("-c", SEVERAL_COMMANDS, json.dumps([evaluation, export]), modules=package)
    assert done.returncode == 0, done.stderr
    assert "torchscript: differs from the eager scores by at most" in done.stdout
    assert all(f"│{name}" in done.stdout for name in ("neighbour_bonus", "neighbour_mean", "trained"))
    done = python("-c", EXAMPLE.replace('"RUN"', repr(str(trained))), modules=package)
    assert (done.stdout, done.returncode) == ("('stop8', 'stop7', 'stop20')\n", 0), done.stderr
    manifest = (trained / "neighbour_mlp" / "manifest.json").read_text()
    assert '"name": "neighbour_mlp"' in manifest
    assert '"my-rerankers": "0.1.0"' in manifest


@pytest.mark.slow
def test_modules_that_are_not_installed(
    python: Run, bare: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither checkpoint is loaded by a manifest's word alone, although its module could be imported."""
    conf = str(bare / "my_rerankers" / "conf")
    names = ("data=stops", "encoder=words", "retriever=cosine", "model=neighbour_mlp", "loss=margin")
    settings = ("--config-dir", conf, *names, "trainer.max_epochs=1", f"hydra.run.dir={tmp_path / 'run'}")
    done = python("-m", "graphrerank.cli.main", "train", *settings, modules=bare)
    assert done.returncode == 0, done.stderr
    command = next(command for command in COMMANDS if command[1] == "evaluate" and "--config-dir" in command)
    places = {"RUN": str(tmp_path / "run"), "FOLDER": conf}
    arguments = [argument.replace("RUN", places["RUN"]).replace("FOLDER", conf) for argument in command[1:]]
    assert any(argument.startswith("models=") for argument in arguments)
    done = python("-m", "graphrerank.cli.main", *arguments, modules=bare)
    assert done.returncode == 0, done.stderr
    assert "│neighbour_mlp" in done.stdout
    monkeypatch.syspath_prepend(str(bare))
    for run, name in ((trained, "neighbour_mlp"), (tmp_path / "run", "my_rerankers.model.NeighbourMLP")):
        with pytest.raises(
            ValueError, match=f"`model.name` must be one of .* got '{name}'. To use your own model, install the"
        ):
            GraphReranker.from_pretrained(run)
    assert "my_rerankers" not in sys.modules
