"""Measure how well parsers count the nine syntactic units of EA-GraphRAG.

``python benchmarks/syntax_units.py --treebank DIR/treebank_gum --stanza DIR`` compares the units in the treebank's own
trees with those of two parsers on the same tokens: Stanza's trees, and the estimate from spaCy's dependency parse. The
parsers find sentence boundaries themselves. The script prints the mean absolute error per sentence and, as a baseline,
the error of always predicting the median.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy
from graphrerank_papers.ea_graphrag.syntax.features import PARSER_COMPONENTS, StanzaParser, SyntaxFeatures
from graphrerank_papers.ea_graphrag.syntax.units import Units, approximate_units, count_units, read_tree

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
FREE = "genres whose licence allows commercial use"


def gold(treebank: Path, split: str) -> tuple[list[list[str]], list[Units]]:
    """Return the tokens and the unit counts of the treebank's own trees."""
    rows = [json.loads(line) for line in (treebank / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]
    trees = [read_tree(row["tree"]) for row in rows if not row["nc"]]
    tokens = [[BRACKETS.get(str(leaf.word), str(leaf.word)) for leaf in tree.leaves()] for tree in trees]
    return tokens, [count_units([tree]) for tree in trees]


def parse(sentences: Iterable[list[str]]) -> list[Any]:
    """Parse gold tokens with spaCy."""
    from spacy.tokens import Doc

    pipeline = load_spacy(ENGLISH, components=[name for name in PARSER_COMPONENTS if name != "ner"])
    return list(pipeline.pipe(Doc(pipeline.vocab, words=words) for words in sentences))


def errors(found: list[Units], right: list[Units], unit: int) -> tuple[float, float]:
    """Return the mean absolute error of a unit, and the share of sentences with the exact count."""
    misses = [abs(a[unit] - b[unit]) for a, b in zip(found, right, strict=True)]
    return statistics.mean(misses), misses.count(0) / len(misses)


def milliseconds(features: SyntaxFeatures, queries: list[str]) -> tuple[float, float]:
    """Return the CPU time per query in batches, and the median time of single queries, in milliseconds."""
    features.extract(queries[:2])  # The first call loads the models.
    start, alone = time.process_time(), []
    features.extract(queries)
    together = 1e3 * (time.process_time() - start) / len(set(queries))
    for query in queries[:200]:
        start = time.process_time()
        features.extract([query])
        alone.append(1e3 * (time.process_time() - start))
    return together, statistics.median(alone)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--treebank", type=Path, required=True, help="folder with <split>.jsonl of bracketed trees")
    parser.add_argument("--split", default="test", help="split of the treebank (default: %(default)s)")
    parser.add_argument(
        "--stanza", type=Path, help="folder of Stanza's model; without it, the column of Stanza is left out"
    )
    parser.add_argument(
        "--queries",
        type=Path,
        nargs="*",
        default=[],
        help="queries.jsonl files whose parsing is timed, in milliseconds of one core per query",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    sentences, right = gold(arguments.treebank, arguments.split)
    documents = parse(sentences)
    counted = {"dependency": list(map(approximate_units, documents))}
    if arguments.stanza is not None:
        counted["stanza"] = list(map(count_units, StanzaParser(arguments.stanza).parse(documents)))
    print(f"{len(right)} sentences of {arguments.split}, {FREE}\n")
    print("| unit | gold mean | median alone |" + "".join(f" {name} | exact |" for name in counted))
    print("| --- | --- | --- |" + " --- | --- |" * len(counted))
    for number, unit in enumerate(Units._fields):
        truth = [units[number] for units in right]
        middle = statistics.median(truth)
        cells = [f"{statistics.mean(truth):.3f}", f"{statistics.mean(abs(units - middle) for units in truth):.3f}"]
        for found in counted.values():
            error, exact = errors(found, right, number)
            cells += [f"{error:.3f}", f"{exact:.1%}"]
        print(f"| {unit} | {' | '.join(cells)} |")

    for path in arguments.queries:
        queries = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
        rivals = [SyntaxFeatures("dependency")]
        if arguments.stanza is not None:
            rivals.append(SyntaxFeatures("stanza", stanza_folder=arguments.stanza))
        for features in rivals:
            together, alone = milliseconds(features, queries)
            print(
                f"\n{path.parent.name}, {features.name}: {together:.1f} ms per query in batches, {alone:.1f} ms alone"
            )


if __name__ == "__main__":
    main()
