import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy
from graphrerank_papers.ea_graphrag.syntax.constituency import read_tree
from graphrerank_papers.ea_graphrag.syntax.syntax_features import COMPONENTS
from tests.support import ROOT

TREES = (
    "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD slept)) (. .)))",
    "(ROOT (S (NP (DT The) (JJ old) (NN cat)) (VP (VBD slept) (PP (IN in) (NP (DT the) (NN house)))) (. .)))",
    "(ROOT (S (NP (DT A) (NN dog)) (VP (VBD saw) (NP (DT the) (JJ old) (NN cat))) (. .)))",
    "(ROOT (S (NP (PRP We)) (VP (VBP know) (SBAR (IN that) (S (NP (DT the) (NN dog)) (VP (VBD slept))))) (. .)))",
    "(ROOT (SBARQ (WHNP (WP Who)) (SQ (VP (VBD saw) (NP (DT the) (NN dog)))) (. ?)))",
    "(ROOT (S (NP (DT The) (NN cat) (CC and) (DT the) (NN dog)) (VP (VBD slept)) (. .)))",
)


class Nlp:
    """spaCy, loaded once for all tests."""

    def __init__(self) -> None:
        self.pipeline = load_spacy(ENGLISH, components=COMPONENTS)

    def __call__(self, text: str) -> Any:
        return self.pipeline(text)

    def tagged(self, brackets: str) -> Any:
        """A document of a tree's tokens and tags, without a parse: one sentence."""
        from spacy.tokens import Doc

        leaves = list(read_tree(brackets).leaves())
        starts = [place == 0 for place in range(len(leaves))]
        words, tags = [leaf.word for leaf in leaves], [leaf.label for leaf in leaves]
        return Doc(self.pipeline.vocab, words=words, tags=tags, sent_starts=starts)


@pytest.fixture(scope="session")
def nlp() -> Nlp:
    pytest.importorskip("spacy")
    return Nlp()


@pytest.fixture(scope="session")
def stanza_en() -> Path:
    """A real model of Stanza, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_MODELS")
    models = Path(named) if named else ROOT.parent / "shared" / "models"
    folder = models / "stanza_en"
    if not folder.is_dir():
        pytest.skip(f"no model of Stanza: {folder} is no folder; set GRAPHRERANK_MODELS")
    pytest.importorskip("stanza")
    return folder


class Learned(Exception):  # noqa: N818 - no error: the model is saved, and further epochs would teach it nothing
    """Every tree came out right."""


class BracketScorer:
    """Labelled bracket F1, for Stanza's trainer in place of its Java program; ends training once all is right."""

    def __init__(self, **_: Any) -> None:
        self.learned = False

    def __enter__(self) -> "BracketScorer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def process(self, results: Sequence[Any]) -> Any:
        if self.learned:
            raise Learned
        scores = [_f1(str(result.gold), str(result.predictions[0].tree)) for result in results]
        self.learned = min(scores) == 1
        return SimpleNamespace(f1=100 * sum(scores) / len(scores), treeF1=scores, HasField=lambda _: False)


def _spans(brackets: str) -> Counter[tuple[str, int, int]]:
    spans, open_labels, place = Counter[tuple[str, int, int]](), [], 0
    for token in re.findall(r"\([^\s()]+ [^\s()]+\)|\([^\s()]+|\)", brackets):
        if token == ")":
            label, start = open_labels.pop()
            spans[label, start, place] += 1
        elif token.endswith(")"):
            place += 1
        else:
            open_labels.append((token[1:], place))
    return spans


def _f1(gold: str, predicted: str) -> float:
    right, wrong = _spans(gold), _spans(predicted)
    return 2 * (right & wrong).total() / (right.total() + wrong.total())


@pytest.fixture(scope="session")
def tiny_stanza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """A folder with a model of Stanza that a handful of trees trained: no Java, no network."""
    pytest.importorskip("stanza")
    from stanza.models import constituency_parser
    from stanza.models.common.pretrain import Pretrain
    from stanza.models.constituency import parser_training

    work, folder = tmp_path_factory.mktemp("trees"), tmp_path_factory.mktemp("tiny_stanza")
    (work / "train.mrg").write_text("\n".join(TREES), encoding="utf-8")
    words = sorted({str(leaf.word).lower() for tree in TREES for leaf in read_tree(tree).leaves()})
    vectors = torch.randn(len(words), 8, generator=torch.Generator().manual_seed(0)).tolist()
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(words, vectors, strict=True)]
    (work / "vectors.txt").write_text(f"{len(words)} 8\n" + "\n".join(lines) + "\n", encoding="utf-8")
    Pretrain(str(folder / "vectors.pt"), str(work / "vectors.txt")).load()
    model = folder / "tiny_constituency.pt"
    numbers = {"epochs": 99, "epoch_size": 12, "train_batch_size": 3, "hidden_size": 64, "delta_embedding_dim": 8}
    numbers |= {"word_dropout": 0, "predict_dropout": 0, "lstm_input_dropout": 0}
    arguments = [
        *("--train_file", str(work / "train.mrg"), "--eval_file", str(work / "train.mrg")),
        *("--wordvec_pretrain_file", str(folder / "vectors.pt"), "--save_dir", str(folder)),
        *("--save_name", model.name, "--shorthand", "en_tiny", "--lang", "en", "--no_retag", "--cpu"),
        *("--optim", "adamw", "--learning_rate", "0.005", "--no_multistage"),
        *(part for name, number in numbers.items() for part in (f"--{name}", str(number))),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser_training, "EvaluateParser", BracketScorer)
        with pytest.raises(Learned):
            constituency_parser.main(arguments)
    checkpoint = torch.load(model, weights_only=False)
    checkpoint["params"]["config"].update(retag_package="local", retag_method="xpos", retag_xpos=True)
    torch.save(checkpoint, model)
    for spare in set(folder.glob("*.pt")) - {model, folder / "vectors.pt"}:
        spare.unlink()
    (folder / "resources.json").write_text(json.dumps({"en": {"lang_name": "English", "packages": {}}}))
    return folder
