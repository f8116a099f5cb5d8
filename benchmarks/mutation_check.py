"""python benchmarks/mutation_check.py: break one line of the source at a time, and see whether the tests notice.

Each mutation replaces a line's text in a copy of the checkout: a flipped sign, a moved boundary, a dropped
normalisation, a wrong axis, an ignored argument. The mirrored test and the module's doctests run first, then the tests
of the package, then the default suite; the first failure ends it. Prints a line per mutation and the number caught; the
exit status is 1 if any survives. ``--only TEXT`` takes the mutations whose file or description holds a text,
``--quick`` leaves out the last, slow step.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/graphrerank")


@dataclass(frozen=True)
class Mutation:
    """One broken line.

    Attributes:
        file: The module, relative to the package.
        kind: What is broken, in a few words.
        old: Text that stands exactly once in the file.
        new: What takes its place.
    """

    file: str
    kind: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "files.py",
        "an older folder is not put back",
        "                old.rename(folder)\n            raise",
        "                pass\n            raise",
    ),
    Mutation("graphs/ranking.py", "boundary of the cut", "kept = rank < top_k", "kept = rank <= top_k - 2"),
    Mutation(
        "graphs/algebra.py",
        "rows and columns exchanged",
        "return _normalize(edge_weight, edge_index[1], num_nodes)",
        "return _normalize(edge_weight, edge_index[0], num_nodes)",
    ),
    Mutation("graphs/algebra.py", "mean over edges becomes their sum", " / count.clamp(min=1).unsqueeze(1)", ""),
    Mutation(
        "text/names.py",
        "articles are kept",
        "while words and words[0] in _ARTICLES:",
        "while False and words[0] in _ARTICLES:",
    ),
    Mutation(
        "text/sentences.py",
        "a full stop ends a sentence before a lower-case letter",
        "if following[:1].islower():",
        "if following[:1].isdigit():",
    ),
    Mutation(
        "syntax/interactions.py",
        "a wrong factor",
        '"depth_times_clauses": features["max_depth"] * features["C"]',
        '"depth_times_clauses": features["max_depth"] * features["DC"]',
    ),
    Mutation(
        "indexes/chunks.py",
        "the second half is the longer one",
        "((start + stop + 1) // 2, stop, chunk)",
        "((start + stop) // 2, stop, chunk)",
    ),
    Mutation(
        "indexes/ket/skeleton.py", "all sub-chunks count as the best", "if count == max(counts)]", "if count >= 0]"
    ),
    Mutation(
        "indexes/ket/keyword_graph.py",
        "keyword vectors are not normalised",
        "torch.nn.functional.normalize(torch.from_numpy(averaging @ vectors.numpy()), dim=1)",
        "torch.from_numpy(averaging @ vectors.numpy())",
    ),
    Mutation(
        "operators/gcs.py",
        "never below its own score: dropped",
        "return torch.maximum(smoothed, scores)",
        "return smoothed",
    ),
    Mutation("operators/ppr.py", "lost mass does not return to the seeds", " + lost * reset", ""),
    Mutation("operators/stex.py", "guard of the proximity", "torch.where(max_rank > 1,", "torch.where(max_rank > 0,"),
    Mutation(
        "operators/fusion.py",
        "ranks from 0",
        "rank = torch.arange(1, ranking.nodes.shape[1] + 1, device=nodes.device)",
        "rank = torch.arange(0, ranking.nodes.shape[1], device=nodes.device)",
    ),
    Mutation(
        "operators/granker.py",
        "an ignored argument",
        "return torch.lerp(vectors, neighbour_context(vectors, edge_index, degree), smoothing)",
        "return torch.lerp(vectors, neighbour_context(vectors, edge_index, degree), 0.2)",
    ),
    Mutation(
        "losses/lambdaloss.py",
        "distance without an absolute value",
        "(rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1)",
        "(rank[:, :, None] - rank[:, None, :]).clamp(min=1)",
    ),
    Mutation("losses/listwise.py", "temperature multiplies", "(scores / temperature)", "(scores * temperature)"),
    Mutation("metrics/recall.py", "the cap is dropped", ".clamp(max=top_k)", ""),
    Mutation(
        "metrics/ndcg.py", "the ideal ranking is not sorted", "qrels.sort(dim=1, descending=True).values", "qrels"
    ),
    Mutation("data/text_match.py", "a title's coverage of unbounded weight", "title.clamp(max=1.0)", "title"),
    Mutation(
        "data/augmentation.py",
        "score dropout takes the probability of edge dropout",
        "self._draw(graphs.num_graphs, self.score_dropout, generator)",
        "self._draw(graphs.num_graphs, self.edge_dropout, generator)",
    ),
    Mutation(
        "models/gatv2.py",
        "attention is not normalised",
        "weight / total.index_select(0, target), self.dropout",
        "weight, self.dropout",
    ),
    Mutation(
        "pipelines/router.py",
        "weights of the paths exchanged",
        "torch.stack([1 - scores, scores], dim=1)",
        "torch.stack([scores, 1 - scores], dim=1)",
    ),
    Mutation("training/score_calibration.py", "the intercept ignores the mean", " - slope * mean)", ")"),
    Mutation(
        "evaluation/significance.py",
        "one-sided test takes the other side",
        "(flipped >= observed - allowed)",
        "(flipped <= observed - allowed)",
    ),
    Mutation(
        "evaluation/significance.py",
        "Holm without the running maximum",
        "(factors * flat[order]).cummax(0).values.clamp(max=1)",
        "(factors * flat[order]).clamp(max=1)",
    ),
    Mutation(
        "evaluation/hub_bias.py",
        "lift is not divided by the share of hubs",
        "float(hub[top[top >= 0]].double().mean()) / share",
        "float(hub[top[top >= 0]].double().mean())",
    ),
    Mutation(
        "inference/input_edges.py",
        "edges go one way",
        "pairs += [undirected, undirected.flip(1)]",
        "pairs += [undirected, undirected]",
    ),
    Mutation(
        "integrations/metadata.py",
        "repeated edges are kept",
        "sorted({(min(pair), max(pair)) for pair in edges})",
        "sorted((min(pair), max(pair)) for pair in edges)",
    ),
    Mutation(
        "serving/limits.py",
        "boundary of the length",
        "if len(text) > self.text_chars:",
        "if len(text) > self.text_chars + 1:",
    ),
    Mutation(
        "serving/edge_arrays.py", "a limit on edges is ignored", "if len(given) > most:", "if len(given) > 10 * most:"
    ),
    Mutation(
        "language_models/answer_judge.py", "the second order keeps its sign", "        backward[:, rows] *= -1\n", ""
    ),
    Mutation("language_models/client.py", "the pause does not grow", "self.pause * 2**attempt", "self.pause"),
    Mutation(
        "experiments/retag/win_rates.py",
        "tested against the wrong side",
        "(scores, 1 - scores, seed=seed)",
        "(scores, scores, seed=seed)",
    ),
    Mutation(
        "experiments/ea_graphrag/two_paths.py",
        "an ignored depth",
        "return (relevance[:, :top_k] > 0).any(1)",
        "return (relevance > 0).any(1)",
    ),
    Mutation(
        "cli/lineup.py",
        "a checkpoint may take a frozen row's name",
        "_joined(path, count + 1) if name in FROZEN else name",
        "name",
    ),
    Mutation(
        "knowledge/spacy_extractor.py",
        "boundary of a title's words",
        "0 < len(words) <= MAX_TITLE_WORDS",
        "0 < len(words) < MAX_TITLE_WORDS",
    ),
    Mutation("caching.py", "what is known is computed again", "if key not in known]", "if key is not None]"),
)


def copy_checkout(target: Path) -> None:
    """Copy all files that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    if (ROOT.parent / "shared").is_dir():
        (target.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())


def test_steps(checkout: Path, mutation: Mutation, *, quick: bool) -> list[list[str]]:
    """List the arguments of pytest, narrowest first."""
    module = Path(mutation.file)
    mirrored = Path("tests") / module.parent / f"test_{module.name}"
    tests = [str(path) for path in (mirrored, Path("tests") / module.parts[0]) if (checkout / path).exists()]
    narrow = [[*tests[:1], str(PACKAGE / module)], *([path] for path in tests[1:])]  # the module's doctests too
    return narrow if quick else [*narrow, []]


def is_caught(checkout: Path, mutation: Mutation, *, quick: bool) -> str | None:
    """Return the tests that fail on the mutated checkout, or None if all pass."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    path = checkout / PACKAGE / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.file}: needed exactly one {mutation.old!r}, found {text.count(mutation.old)}")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        for arguments in test_steps(checkout, mutation, quick=quick):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
            done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
            if done.returncode == 1:
                return " ".join(arguments) or "the default suite"
            if done.returncode not in (0, 5):  # 5: only slow tests there, which the default leaves out
                raise SystemExit(f"pytest {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    finally:
        path.write_text(text, encoding="utf-8")
    return None


def main() -> None:
    """Run all mutations and print what caught each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="text in the file or description of a mutation")
    parser.add_argument("--quick", action="store_true", help="run only the tests of the module and its package")
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if arguments.only in f"{mutation.file} {mutation.kind}"]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        checkout.mkdir()
        copy_checkout(checkout)
        for mutation in chosen:
            begin = time.perf_counter()
            caught_by = is_caught(checkout, mutation, quick=arguments.quick)
            survivors += caught_by is None
            verdict = "SURVIVES" if caught_by is None else f"caught by {caught_by}"
            print(f"{mutation.file}: {mutation.kind}: {verdict} ({time.perf_counter() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
