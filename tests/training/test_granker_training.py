"""GRanker's head and the last layers of its cross-encoder, trained in one process on a tiny BERT."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from graphrerank.core import Ranking
from graphrerank.core.model_inputs import PAIRS, ModelInputs, token_states
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.vector_cache import PairCache
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.granker import GRankerHead
from graphrerank.models.granker_layers import GRankerLayers, granker_arguments, trainable_granker
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.training.reranker_module import RerankerModule
from tests.operators.test_cross_encoder import build
from tests.training.test_reranker_module import StopAt, trainer, weights

NUM_NODES, NUM_QUERIES, TOP_K = 26, 12, 5
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def encoder(tmp_path: Path) -> CrossEncoder:
    return CrossEncoder(build("bert", tmp_path / "bert"), max_length=20, device="cpu")


@pytest.fixture
def letters() -> PreparedDataset:
    """Node ``i`` answers query ``i`` and says so (``y``); query 3 has one candidate, query 4 no answer among them."""
    generator = torch.Generator().manual_seed(0)
    ids = [f"d{i}" for i in range(NUM_NODES)]
    edges = torch.randint(0, NUM_NODES, (60, 2), generator=generator)
    said = [f"{a} {'y' if i < NUM_QUERIES else 'x'}" for i, a in enumerate(LETTERS)]
    graph = CorpusGraph.from_edges(ids, said, edges[edges[:, 0] != edges[:, 1]])
    others = torch.rand(NUM_QUERIES, NUM_NODES - NUM_QUERIES, generator=generator).argsort(1) + NUM_QUERIES
    nodes = others[:, :TOP_K].clone()
    nodes[:, 2] = torch.arange(NUM_QUERIES)
    nodes[3, 1:] = -1
    nodes[3, 0] = 3
    nodes[4] = others[4, :TOP_K]
    query = torch.arange(NUM_QUERIES)
    qrels = Qrels(query, query, torch.ones(NUM_QUERIES))
    texts = [f"{a} q" for a in LETTERS[:NUM_QUERIES]]
    dataset = Dataset("letters", graph, [f"q{i}" for i in range(NUM_QUERIES)], texts, {"train": qrels})
    scores = torch.zeros(NUM_QUERIES, TOP_K)
    return PreparedDataset(dataset, None, Ranking(nodes, scores, scores.unsqueeze(-1)), ("base",))


Model = GRankerHead | GRankerLayers


def inputs_for(layers: int) -> ModelInputs:
    return token_states(layers) if layers else PAIRS


def batches_for(letters: PreparedDataset, encoder: CrossEncoder, layers: int, folder: Path) -> CandidateDataModule:
    prepared = replace(letters, pair_encoder=PairCache(encoder, folder / "pairs"))
    return CandidateDataModule(prepared, batch_size=4, val_split="train", inputs=inputs_for(layers))


def model_for(encoder: CrossEncoder, layers: int, **arguments: Any) -> Model:
    torch.manual_seed(0)
    model = trainable_granker(**granker_arguments({"train_last_layers": layers, **arguments}, encoder))
    model.start_from(encoder)
    return model


def module(model: Model, **arguments: Any) -> RerankerModule:
    settings: dict[str, Any] = {"learning_rate": 1e-2, "warmup_steps": 1, "measures": ["nDCG@10"], "seed": 5}
    return RerankerModule(model, listwise_softmax_cross_entropy, **{**settings, **arguments})


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_resumed_run_equals_unbroken_run_bit_for_bit(
    layers: int, letters: PreparedDataset, encoder: CrossEncoder, tmp_path: Path
) -> None:
    def run(name: str, *callbacks: Any, **resume: Any) -> dict[str, torch.Tensor]:
        rates = {"layers": 1e-3} if layers else None
        made = module(model_for(encoder, layers, learn_smoothing=True, dropout=0.2), parameter_groups=rates)
        fitted = trainer(tmp_path, ModelCheckpoint(tmp_path / name, save_last=True), *callbacks, max_epochs=3)
        torch.manual_seed(99)
        fitted.fit(made, batches_for(letters, encoder, layers, tmp_path), weights_only=True, **resume)
        return weights(made) | dict(fitted.callback_metrics)

    frozen = {name: weight.clone() for name, weight in encoder._loaded.body.state_dict().items()}
    unbroken = run("unbroken")
    with pytest.raises(RuntimeError, match="power cut"):
        run("broken", StopAt(4))  # within the second of three epochs of three steps
    resumed = run("broken", ckpt_path=tmp_path / "broken" / "last.ckpt")
    assert unbroken.keys() == resumed.keys()
    assert [name for name in unbroken if not torch.equal(unbroken[name], resumed[name])] == []
    start = weights(module(model_for(encoder, layers, learn_smoothing=True)))
    still = [name for name in start if name.startswith("model.") and torch.equal(unbroken[name], start[name])]
    assert still == []  # everything is trained, the smoothing too, but the encoder stays as it is
    assert all(torch.equal(weight, frozen[name]) for name, weight in encoder._loaded.body.state_dict().items())


@pytest.mark.parametrize("layers", [1, 2])
def test_layers_learn_which_passages_answer(layers: int, letters: PreparedDataset, tmp_path: Path) -> None:
    folder = build("bert", tmp_path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    encoder = CrossEncoder(folder, max_length=20, device="cpu")
    data = batches_for(letters, encoder, layers, tmp_path)
    made, run = module(model_for(encoder, layers)), trainer(tmp_path, max_epochs=15)
    before = run.validate(made, data, verbose=False)[0]
    run.fit(made, data)
    assert run.callback_metrics["val/loss"] < 0.5 * before["val/loss"]
    assert run.callback_metrics["val/ndcg@10"] > before["val/ndcg@10"] + 0.1


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("queries", [[3], [4], [3, 4], [0, 3, 4, 1]], ids=["one", "no answer", "both", "among others"])
@pytest.mark.parametrize("edges", [True, False])
def test_odd_graphs_give_finite_losses_and_gradients(
    edges: bool, queries: list[int], layers: int, letters: PreparedDataset, encoder: CrossEncoder, tmp_path: Path
) -> None:
    prepared = replace(letters, pair_encoder=PairCache(encoder, tmp_path / "pairs"))
    graphs = prepared.graphs(torch.tensor(queries), split="train", edges=edges, inputs=inputs_for(layers))
    made = module(model_for(encoder, layers, learn_smoothing=True)).eval()
    scores = made(graphs)
    assert scores.shape == (graphs.num_nodes,)
    loss, _ = made.loss_of(graphs, scores)
    loss.backward()
    gradients = [parameter.grad for parameter in made.parameters() if parameter.grad is not None]
    assert gradients
    assert loss.isfinite()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    if not edges:  # without neighbours it is the cross-encoder
        plain = replace(letters, pair_encoder=encoder).graphs(torch.tensor(queries), edges=False, inputs=PAIRS)
        torch.testing.assert_close(scores, encoder.head(plain.inputs["pair_vectors"]), atol=1e-5, rtol=0)
