from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from graphrerank.cli import schema
from graphrerank.cli.command import CommandContext
from graphrerank.cli.evaluate import evaluate
from tests.support import ROOT
from tests.support.folders import write_dataset
from tests.support.isolation import blank_pictures, few_timed

WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle", "ice", "sand"]
QUERIES = 6


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve passages in a ring with a hub, six queries of one or two relevant passages, three of another split."""
    asked = [{"_id": f"q{i}", "text": f"What is a {WORDS[i]}?", "metadata": {"answer": WORDS[i]}} for i in range(9)]
    return write_dataset(
        tmp_path_factory.mktemp("data") / "ring",
        corpus=[{"_id": f"p{i}", "title": word, "text": f"A text about {word}."} for i, word in enumerate(WORDS)],
        queries=asked,
        edges=[(f"p{a}", f"p{b}", "next") for a, b in [*((i, (i + 1) % 12) for i in range(12)), (0, 5), (0, 7)]],
        test=[(f"q{i}", f"p{j}") for i in range(QUERIES) for j in range(i, i + 1 + i % 2)],
        val=[(f"q{i}", f"p{i}") for i in range(QUERIES, 9)],
    )


@pytest.fixture(scope="session")
def mine(ring: Path) -> Path:
    """A run of somebody else's, which has nothing for the last query, and ties."""
    path = ring.parent / "ring.mine.trec"
    lines = [f"q{i} Q0 p{j} 1 {1 if j == i else 0.5} x\n" for i in range(QUERIES - 1) for j in range(i + 2)]
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Callable[..., Path]:
    """Do what ``graphrerank evaluate`` does, in this process and in a new folder of a given name.

    Pictures are blank unless ``pictures`` is True.
    """
    schema.register()

    def evaluate_here(*overrides: str, folder: str = "out", pictures: bool = False) -> Path:
        run_dir = tmp_path_factory.mktemp("runs") / folder
        every = [*overrides, f"paths.run_dir={run_dir}", f"paths.cache={cache}", "resamples=200"]
        drawn = nullcontext() if pictures else blank_pictures()
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"), drawn, few_timed():
            cfg = compose("evaluate", overrides=every, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
            schema.check_settings(cfg, "evaluate")
            return evaluate(CommandContext(cfg))

    return evaluate_here
