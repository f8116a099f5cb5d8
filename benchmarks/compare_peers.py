"""Compare `base` with the rerankers of other libraries on corpora that no model was trained on.

``python benchmarks/compare_peers.py --datasets DIR --cross-encoder MODEL --python PYTHON`` lets every reranker rank the
same hundred candidates of the same questions and writes docs/compare.md. Each reranker runs in a process of its own
(peers.py) with the interpreter PYTHON. Create its environment with ``pip install -c constraints.txt .
sentence-transformers sentence-transformers-haystack 'rerankers[transformers]' flashrank llama-index-core
langchain-core pyterrier-adaptive networkx scikit-learn``. Rankings that are already in ``--folder`` are not repeated,
so run the script first with ``--peers lightning_ir`` and the interpreter of an environment with lightning-ir and
'transformers<5'.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from base_table import percent
from command_line import add_page
from peers import ONNX, PEERS, QUESTIONS, STUDY, Peer, Question, snippet
from unseen_table import CORPORA, LEVEL, MEASURE, SEARCH, Corpus, argument_parser, load, reader

from graphrerank import evaluate
from graphrerank.config.components import ComponentFactory
from graphrerank.corpus import candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.significance import across_datasets
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.operators.ppr import corpus_entities

FOLDERS = ("choose_xquad_en", "choose_sphinx_docs", "ketrag_musique", "choose_nl2bash_tldr", "git_flask")
TRAINED = (Corpus("", "2wikimultihopqa_train", "train", 300), Corpus("", "hotpotqa", "train", 300))
READ = 1  # number of questions per corpus that the cross-encoder scores in each library
LOOKED_UP = ("sentence_transformers", "gar")  # rank all questions with cached logits
OWN = "graphrerank"


def prepare(parts: ComponentFactory, datasets: Path, corpus: Corpus) -> PreparedDataset:
    """Load a corpus and retrieve the candidates of its questions."""
    return parts.prepare(load(parts, datasets, corpus), retriever="hybrid_expand", encoder="minilm", splits=["test"])


def questions(prepared: PreparedDataset, corpus: Corpus, logits: torch.Tensor | None = None) -> list[Question]:
    """Return the questions with their candidates. ``logits`` contains one number per pair, in their order."""
    dataset, graph, column = prepared.dataset, prepared.dataset.graph, prepared.feature_names.index
    assert prepared.ranking.features is not None
    assert prepared.query_vectors is not None
    found, first = [], 0
    for query, text in enumerate(dataset.query_texts):
        row = prepared.ranking.nodes[query]
        row = row[row >= 0]
        features = prepared.ranking.features[query, : len(row)]
        (sources, targets), weights, _, types = candidate_edges(graph, row[None], keep_types=True)
        assert types is not None
        edges: dict[tuple[int, int, str], float] = {}
        for i, j, weight, number in zip(*(x.tolist() for x in (sources, targets, weights, types)), strict=True):
            key = min(i, j), max(i, j), EDGE_TYPES[number]
            edges[key] = max(weight, edges.get(key, 0.0))
        gains = dataset.split("test").relevance(torch.tensor([query]), row[None], num_nodes=graph.num_nodes)
        found.append(
            Question(
                corpus.folder,
                text,
                [graph.texts[node] for node in row.tolist()],
                *(features[:, column(name)].tolist() for name in ("base_score", "bm25_score", "dense_score")),
                [(i, j, weight, name) for (i, j, name), weight in edges.items()],
                row.tolist(),
                prepared.query_vectors[query].numpy(),
                graph.encoded[row].float().numpy(),
                (gains[0] > 0).tolist(),
                [] if logits is None else logits[first : first + len(row)].tolist(),
                {name: features[:, column(name)].tolist() for name in prepared.feature_names[1:]},
            )
        )
        first += len(row)
    return found


def write_questions(arguments: argparse.Namespace, parts: ComponentFactory, corpora: Sequence[Corpus]) -> None:
    """Write the questions for the processes of the rerankers."""
    encoder = parts.pair_encoder(reader(parts, arguments), label="reading pairs")
    entities, written = {}, {}
    for corpus in (*corpora, *TRAINED):
        prepared = prepare(parts, arguments.datasets, corpus)
        entities[corpus.folder] = corpus_entities(prepared.dataset.graph)
        logits = None
        if corpus not in TRAINED:
            logits = encoder.head(encoder.encode(*prepared.pairs(torch.arange(len(prepared.dataset.query_ids)))))
        written[corpus.folder] = questions(prepared, corpus, logits)
    train = [question for corpus in TRAINED for question in written.pop(corpus.folder)]
    (arguments.folder / STUDY).write_bytes(pickle.dumps((train, entities)))
    (arguments.folder / QUESTIONS).write_bytes(pickle.dumps(written))


def export_onnx(model: str, folder: Path) -> None:
    """Export the cross-encoder in FlashRank's form: quantised to 8 bits, in a folder with its tokenizer."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.save_pretrained(folder)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    classifier = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32, return_dict=False)
    classifier.eval().config.save_pretrained(folder)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    given = tokenizer(["a question"] * 2, ["a passage"] * 2, return_tensors="pt")
    whole = folder / "float32.onnx"
    axes = {name: {0: "pairs", 1: "tokens"} for name in names}
    inputs = tuple(given[name] for name in names)
    torch.onnx.export(classifier, inputs, whole, input_names=names, dynamic_axes=axes, dynamo=False)
    quantize_dynamic(whole, folder / "flashrank-MiniLM-L-12-v2_Q.onnx", weight_type=QuantType.QInt8)
    whole.unlink()


def rank(arguments: argparse.Namespace, name: str, *, lookup: bool = False) -> dict[str, Any]:
    """Rank the questions with a reranker in a separate process, unless its rankings exist."""
    out = arguments.folder / f"{name}{'_lookup' if lookup else ''}.json"
    if not out.is_file():
        print(out, file=sys.stderr, flush=True)
        command = [arguments.python, str(Path(__file__).with_name("peers.py")), name, "--folder", arguments.folder]
        command += ["--model", arguments.cross_encoder, "--out", out]
        command += ["--lookup"] if lookup else ["--limit", str(READ)] if PEERS[name].reads else []
        threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run(command, check=True, env=environment | threads)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def judge(
    arguments: argparse.Namespace, parts: ComponentFactory, corpus: Corpus, orders: Mapping[str, Any], last: str
) -> DatasetResult:
    """Evaluate rankings of all questions of a corpus, and test ``last`` against each of the others."""
    dataset = load(parts, arguments.datasets, corpus)
    runs: dict[str, Any] = {}
    asked = pickle.loads((arguments.folder / QUESTIONS).read_bytes())[corpus.folder]
    for title, found in orders.items():
        path = arguments.folder / f"{len(runs)}.trec"
        lines = []
        for query_id, question, order in zip(dataset.query_ids, asked, found[corpus.folder], strict=True):
            names = (dataset.graph.node_ids[question.nodes[place]] for place in order)
            lines += [f"{query_id}\tQ0\t{name}\t{at}\t{-at}\tcompared" for at, name in enumerate(names, 1)]
        path.write_text("\n".join(lines))
        runs[title] = path
    runs[SEARCH] = "vector_search"
    runs[last] = runs.pop(last)
    settings: dict[str, Any] = {"retriever": "hybrid_expand", "encoder": "minilm", "measures": [MEASURE]}
    (result,) = evaluate(runs, dataset, **settings, parts=parts, show=False).datasets.values()
    return result


def quality_table(titles: Sequence[str], corpora: Sequence[Corpus], found: Mapping[str, list[DatasetResult]]) -> str:
    """Format one row per ranking. ``found`` contains the results by the name of the tested ranking."""
    own = PEERS[OWN].title
    header = [MEASURE, *(corpus.title for corpus in corpora), "mean", "p to the retriever", "p of `base` to it"]
    rows = [header, ["---", *["--:"] * (len(header) - 1)]]
    p = {last: {entry.baseline: entry.p_combined for entry in across_datasets(found[last])} for last in (SEARCH, own)}
    for title in (SEARCH, *titles):
        cells = ["retriever" if title == SEARCH else title]
        for result in found[SEARCH]:
            mean, base = (result.systems[name].means[MEASURE] for name in (title, SEARCH))
            tests = {test.baseline: test.p_randomization for test in result.tests}
            bold = "**" if title != SEARCH and tests[title] < LEVEL and mean > base else ""
            below = "↓" if title != SEARCH and tests[title] < LEVEL and mean < base else ""
            cells.append(f"{bold}{percent(mean)}{bold}{below}")
        cells.append(percent(fmean(result.systems[title].means[MEASURE] for result in found[SEARCH])))
        cells += [f"{p[SEARCH][title]:.2g}" if title != SEARCH else "", f"{p[own][title]:.2g}" if title != own else ""]
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cost_table(found: Mapping[str, dict[str, Any]], corpora: Mapping[str, list[Question]]) -> str:
    """Format the costs of each reranker, and the agreement of its order with the cached logits."""
    header = ["", "ms a question", "memory, MiB", "installed, MB", "of it torch", "lines", "first ten in common"]
    rows = [header, ["---", *["--:"] * (len(header) - 1)]]
    for name, result in found.items():
        peer, sizes = PEERS[name], result["mb"]
        common = agreement(result["orders"], corpora) if peer.reads and name != "gar" else None
        cells = [peer.title, f"{result['ms']:,.1f}" if result["ms"] < 100 else f"{result['ms']:,.0f}"]
        cells += [f"{result['peak_mib']:,.0f}", f"{sum(sizes.values()):,.0f}", f"{sizes.get('torch', 0):,.0f}"]
        rows.append([*cells, f"{num_lines(peer)}", "" if common is None else f"{common:.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def agreement(orders: Mapping[str, list[list[int]]], corpora: Mapping[str, list[Question]]) -> float:
    """Return the mean number of results that the first ten have in common with the first ten by the cached logits."""
    return fmean(
        len({*order[:10]} & {*np.argsort(-np.array(question.logits), kind="stable")[:10].tolist()})
        for corpus, ranked in orders.items()
        for question, order in zip(corpora[corpus], ranked, strict=False)
    )


def num_lines(peer: Peer) -> int:
    """Return the number of lines of a snippet that are not blank."""
    return sum(bool(line.strip()) for line in snippet(peer).splitlines())


def main() -> None:
    """Compute the missing rankings and write the page."""
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="interpreter of the environment with the other libraries; this one by default",
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="rank with these rerankers only, and write no page")
    parser.add_argument("--corpora", nargs="*", default=FOLDERS, help="names of the corpora's folders; all by default")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/compare_peers"), help="folder of the rankings (default: %(default)s)"
    )
    add_page(parser, "compare")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    parts = ComponentFactory(datasets=arguments.datasets, cache=arguments.cache)
    by_folder = {corpus.folder: corpus for corpus in CORPORA}
    corpora = [by_folder[folder] for folder in arguments.corpora]
    if not (arguments.folder / QUESTIONS).is_file():
        write_questions(arguments, parts, corpora)
    if "flashrank" in (arguments.peers or PEERS) and not (arguments.folder / ONNX).is_dir():
        export_onnx(arguments.cross_encoder, arguments.folder / ONNX)
    found = {name: rank(arguments, name) for name in arguments.peers or PEERS}
    asked = pickle.loads((arguments.folder / QUESTIONS).read_bytes())
    orders = {
        PEERS[name].title: (rank(arguments, name, lookup=True) if name in LOOKED_UP else result)["orders"]
        for name, result in found.items()
        if not PEERS[name].reads or name in LOOKED_UP
    }
    if arguments.peers:
        return
    results = {
        last: [judge(arguments, parts, corpus, orders, last) for corpus in corpora]
        for last in (SEARCH, PEERS[OWN].title)
    }
    blocks = [f"{PEERS[name].title}:\n\n```python\n{snippet(PEERS[name])}\n```" for name in found]
    page = PAGE.format(
        quality=quality_table(list(orders), corpora, results),
        cost=cost_table(found, asked),
        snippets="\n\n".join(blocks),
        read=READ,
        measure=MEASURE,
        level=LEVEL,
        count=sum(map(len, asked.values())),
        train=sum(corpus.questions for corpus in TRAINED),
        size=round(sum(file.stat().st_size for file in (PRETRAINED / "base").iterdir() if file.is_file()) / 1000),
    )
    arguments.out.write_text(page, encoding="utf-8")


PAGE = """<!-- not run: each library has its own environment -->
# `base` next to other rerankers

After reading this page you can choose between `base`, cross-encoder libraries and simple fusions of rankings, by
quality, time and size.

```
python benchmarks/compare_peers.py --datasets DIR --cross-encoder MODEL --python PYTHON
```

The command writes this page. All rerankers rank the same hundred candidates of the same {count} questions
(`retriever=hybrid_expand data.edges=auto`, MiniLM). No model was trained on these corpora. Encyclopedia, documentation
and commands were used for the model selection of `base`. MODEL is ms-marco-MiniLM-L12, rebuilt from 8-bit weights, and
PYTHON is the interpreter of the environment with the libraries.

## Quality

The table shows {measure} in percent. A bold number is significantly above the retriever and a number with ↓ is
significantly below it (p < {level} by a paired randomization test over questions, uncorrected). The last columns are
for all corpora together.

{quality}

- **sentence-transformers** represents all libraries that use the same weights. Its logits are those cached by our own
  reader (bfloat16, 256 tokens). The table of [costs](#cost) shows how many of the first ten results of each library
  agree with them.
- **PyTerrier GAR** scores 50 of the hundred candidates, along the same edges, with the same weights.
- **MMR** uses LangChain's default, equal weights of relevance and novelty, over MiniLM's vectors.
- **RRF** fuses three rankings with k = 60. PageRank (PPR) restarts at the candidates in proportion to their scores.
- **Logistic regression** is similar to the learned fusion that [Metronix](https://github.com/mtrnix/metronix-memory)
  ships. Its features are scores, the rank, and a random walk over passages and entities that starts at the rarest
  entities of five seeds and returns there. It was trained on {train} train questions of 2WikiMultihopQA and HotpotQA,
  the kind of questions that Metronix used.
- **`base`** gets texts, scores and edges alone in the first row, and also the features of our retriever in the second:
  BM25 over the whole corpus, and the number of steps from a seed. Our pipeline, in the README's table, also weights
  words by their rarity in the whole corpus instead of the list.

## Where `base` is not the best

- *The README compares `base` with its retriever and a cross-encoder*, but a simpler system is better on one corpus. On
  command pages, RRF of BM25, dense and PPR is 6.0 points above `base` (p = 0.0008), and RRF with the number of edges
  instead of PPR 4.8 points (p = 0.004). There, pages with many links are often the relevant ones, which `base` does not
  use. On multi-hop passages both are below the retriever, and `base` is 12.5 points above it.
- *Better than the retriever*: `base` is better over all corpora (p = 0.0001), but the difference is only significant on
  two of five. On the encyclopedia, the cross-encoder is above the retriever (p = 0.003), and `base` is not.
- *Small*: The checkpoint takes {size} KB, but 815 MB are installed with its library, of which torch takes 699.
  FlashRank takes a fifth of that, and the fusions less than a quarter.
- *Fast*: `base` is three hundred times as fast as the fastest cross-encoder that scores all candidates, but RRF takes a
  quarter of the time of `base`, and logistic regression an eighth.
- *The README's cross-encoder* takes 1.6 to 3.1 seconds per question in its fastest form. With their default settings,
  libraries take four times as long. Scoring only half of the candidates along edges (GAR) loses nothing.

Two statements are confirmed: texts, scores and edges are enough (p = 0.39 against all features), and over all corpora
no other system is above `base`.

## Cost

- *Time* is the median of milliseconds of CPU per question, on a core that other processes shared. Differences of less
  than a factor of two are not meaningful.
- *Memory* is the peak memory beyond that of a Python process that has only loaded the questions.
- *Installed* is the number of megabytes that `pip install` adds to an empty environment, without bytecode and weights.
  torch is the build for CPUs.
- *Lines* counts the code [below](#code).

Libraries with a cross-encoder score {read} question of each corpus, in float32 and with up to 512 tokens, which are
their defaults, unless the row says otherwise. FlashRank scores all passages as one batch, padded to the longest.

{cost}

## What does not run here, or only with changes

- **lightning-ir** 0.0.6 fails with transformers 5, which its requirements allow
  (`'BertTokenizer' is not subscriptable`). Its row uses transformers 4.57. It has no configuration for ms-marco-MiniLM,
  so two lines define the layers. It truncates questions after 32 tokens.
- **FlashRank**, and **rerankers** with FlashRank or ColBERT, download weights, which was not possible here. FlashRank
  uses MODEL as ONNX with 8-bit weights, exported by our script, and **rerankers** uses its transformers backend.
- **Haystack** 3 has its rankers in a separate package, `sentence-transformers-haystack`. Its version of MMR is
  `SentenceTransformersDiversityRanker`, which encodes all passages for each question. In LlamaIndex, MMR is an option
  of vector stores.
- **PyTerrier GAR** runs without Java, which PyTerrier only needs for Terrier's own indexes.
- **Metronix** is a service over Neo4j and Qdrant with a graph that a language model extracts. Only its kind of fusion
  is compared.
- Rankers that use a language model (LlamaIndex's `LLMRerank`, Haystack's `LLMRanker`, RankGPT) were not run.

## Code

`q` contains a question's text, and the `passages`, `scores`, `vectors` and `edges` of its candidates. `setting` has the
paths of the weights.

{snippets}
"""

if __name__ == "__main__":
    main()
