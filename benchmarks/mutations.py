"""Mutations for ``mutation_check.py``: lines of the source, each with a fault that tests must notice."""

import re
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src", "graphrerank")
SYMBOLS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Mutation:
    """One broken line.

    Attributes:
        file: The module, relative to `src/graphrerank`, or to `src` for the papers.
        kind: What is broken, in a few words.
        old: Text that the file contains exactly once, however a formatter wraps it.
        new: Replacement of that text.
    """

    file: str
    kind: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The file, relative to the checkout."""
        return Path("src", self.file) if self.file.startswith("graphrerank_papers/") else Path(PACKAGE, self.file)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Find where a text contains `old`, whatever the line breaks, indentation and trailing commas.

        Args:
            text: Content of the file.

        Returns:
            Start and end of each occurrence.
        """
        return [match.span() for match in _layout_free(self.old).finditer(text)]

    def applied_to(self, text: str) -> str:
        """Return the text with the fault.

        Args:
            text: Content of the file.

        Returns:
            The content with `new` in the place of `old`.

        Raises:
            ValueError: If the text does not contain `old` exactly once.
        """
        if len(spans := self.spans(text)) != 1:
            raise ValueError(f"{self.file}: needed exactly one {self.old!r}, found {len(spans)}")
        ((start, end),) = spans
        return text[:start] + self.new + text[end:]


def _layout_free(code: str) -> re.Pattern[str]:
    """Compile a pattern of code that ignores line breaks, indentation and a comma before a closing bracket."""
    symbols = SYMBOLS.findall(code)
    patterns = [
        rf"\b{symbol}\b" if symbol.isidentifier() or symbol.isdigit() else re.escape(symbol) for symbol in symbols
    ]
    patterns = [rf"(?:,\s*)?{pattern}" if pattern in (r"\)", r"\]", r"\}") else pattern for pattern in patterns]
    return re.compile(r"\s*".join(patterns))


MUTATIONS = (
    Mutation(
        "utils/files.py",
        "an older folder is not put back",
        "old.rename(folder)",
        "pass",
    ),
    Mutation("core/ranking.py", "boundary of the cut", "(rank < top_k)", "(rank <= top_k - 2)"),
    Mutation(
        "core/graph_algebra.py",
        "rows and columns exchanged",
        "return _normalize(edge_weight, edge_index[1], num_nodes)",
        "return _normalize(edge_weight, edge_index[0], num_nodes)",
    ),
    Mutation("core/graph_algebra.py", "mean over edges becomes their sum", " / count.clamp(min=1).unsqueeze(1)", ""),
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
        "graphrerank_papers/ea_graphrag/syntax/features.py",
        "a wrong factor",
        '"depth_times_clauses": features["max_depth"] * features["C"]',
        '"depth_times_clauses": features["max_depth"] * features["DC"]',
    ),
    Mutation(
        "graphrerank_papers/ket/chunks.py",
        "the second half is the longer one",
        "((start + stop + 1) // 2, start, stop, chunk)",
        "((start + stop) // 2, start, stop, chunk)",
    ),
    Mutation(
        "graphrerank_papers/ket/index.py",
        "all sub-chunks count as the best",
        "if count == max(counts)]",
        "if count >= 0]",
    ),
    Mutation(
        "graphrerank_papers/ket/index.py",
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
    Mutation(
        "operators/stex.py",
        "guard of the proximity",
        "torch.where(max_rank > 1,",
        "torch.where(max_rank > 0,",
    ),
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
        "losses/ranking.py",
        "distance without an absolute value",
        "(rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1)",
        "(rank[:, :, None] - rank[:, None, :]).clamp(min=1)",
    ),
    Mutation("losses/ranking.py", "temperature multiplies", "(scores / temperature)", "(scores * temperature)"),
    Mutation("metrics/ranking.py", "the cap is dropped", ".clamp(max=top_k)", ""),
    Mutation(
        "metrics/ranking.py",
        "the ideal ranking is not sorted",
        "qrels.sort(dim=1, descending=True).values",
        "qrels",
    ),
    Mutation("features/text_match.py", "a title's coverage of unbounded weight", "title.clamp(max=1.0)", "title"),
    Mutation(
        "data/augmentation.py",
        "score dropout takes the probability of edge dropout",
        "hidden = (draws.uniform() < probability)[graph]",
        "hidden = (draws.uniform() < self.edge_dropout)[graph]",
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
    Mutation("calibration/fitting.py", "the intercept ignores the mean", " - slope * mean)", ")"),
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
    Mutation("rerank/edge_forms.py", "self-loops stay", "pairs[:, 0] != pairs[:, 1]", "pairs[:, 0] >= 0"),
    Mutation(
        "rerank/candidate_lists.py",
        "edges go one way",
        "parts += [(edges.flip(1), weight, edge_type)",
        "parts += [(edges, weight, edge_type)",
    ),
    Mutation(
        "integrations/metadata.py",
        "a chunk that is there twice is the last one",
        "chunks.setdefault((str(entry[DOC_ID]), int(chunk)), index)",
        "chunks[(str(entry[DOC_ID]), int(chunk))] = index",
    ),
    Mutation(
        "models/gatv2_reranker.py",
        "the best source reads the wrong end",
        "self.lin_source(x).index_select(0, edge_index[0])",
        "self.lin_source(x).index_select(0, edge_index[1])",
    ),
    Mutation(
        "data/augmentation.py",
        "merged edges are dropped",
        "dropped &= ~merged.unsqueeze(1)",
        "dropped &= merged.unsqueeze(1)",
    ),
    Mutation(
        "data/enrichment/neighbours.py",
        "the least specific neighbours are kept",
        "torch.argsort(total, descending=True, stable=True)",
        "torch.argsort(total, stable=True)",
    ),
    Mutation(
        "serving/schemas/rerank.py",
        "boundary of the length",
        "if length > limit:",
        "if length > 1 + limit:",
    ),
    Mutation(
        "serving/schemas/edges.py",
        "a limit on edges is ignored",
        "check_most(limits_of(info).edges, len(content)",
        "check_most(10 * limits_of(info).edges, len(content)",
    ),
    Mutation(
        "graphrerank_papers/answers/judges.py",
        "the second order keeps its sign",
        "backward[:, rows] *= -1",
        "pass",
    ),
    Mutation(
        "language_models/client.py",
        "the pause does not grow",
        "wait_seconds = pause * 2**attempt",
        "wait_seconds = pause",
    ),
    Mutation(
        "graphrerank_papers/answers/judges.py",
        "tested against the wrong side",
        "(scores, 1 - scores, seed=seed)",
        "(scores, scores, seed=seed)",
    ),
    Mutation(
        "graphrerank_papers/ea_graphrag/two_paths.py",
        "an ignored depth",
        "return (relevance[:, :top_k] > 0).any(1)",
        "return (relevance > 0).any(1)",
    ),
    Mutation(
        "evaluation/plan.py",
        "a checkpoint may take a baseline's name",
        "if len({*names, *BASELINES}) == len(names) + len(BASELINES):",
        "if len(set(names)) == len(names):",
    ),
    Mutation(
        "graphrerank_papers/knowledge/spacy_extractor.py",
        "boundary of a title's words",
        "0 < len(words) <= MAX_TITLE_WORDS",
        "0 < len(words) < MAX_TITLE_WORDS",
    ),
    Mutation("utils/caching.py", "what is known is computed again", "if key not in stored]", "if key is not None]"),
    Mutation(
        "serving/batching.py",
        "expired requests are computed",
        "waiting.result.done() or waiting.deadline <= now",
        "waiting.result.done()",
    ),
    Mutation(
        "serving/fair_queue.py",
        "a client that was idle saves its share",
        "self._clock = max(self._clock, min(times))",
        "self._clock = min(self._clock, min(times))",
    ),
    Mutation(
        "serving/http_guard.py",
        "the beginning of the key is enough",
        'hmac.compare_digest(key.encode("latin-1"), self.settings.api_key.encode())',
        "len(key) > 0 and self.settings.api_key.startswith(key)",
    ),
    Mutation("serving/routes.py", "held bytes are not given back", "self._hold(request, -len(body))", "pass"),
    Mutation("serving/work_estimates.py", "edges that are explained cost nothing", "if explain:", "if False:"),
    Mutation("utils/safe_loading.py", "a level too deep", "range(MAX_JSON_DEPTH + 2)", "range(MAX_JSON_DEPTH + 3)"),
    Mutation("utils/safe_loading.py", "negative sizes are unbounded", "else -largest", "else -float('inf')"),
    Mutation("models/checkpoint.py", "another is primary", "(name in primary, name)", "(name not in primary, name)"),
    Mutation(
        "features/word_table.py",
        "a capital sigma is lowered in its run alone",
        "if any(_SIGMA in text for text in texts)",
        "if False",
    ),
    Mutation(
        "features/word_table.py",
        "the lead has a word more",
        "position < np.array(",
        "position <= np.array(",
    ),
    Mutation(
        "features/candidate_texts.py",
        "BM25 is not normalised",
        "scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)",
        "scores",
    ),
)
