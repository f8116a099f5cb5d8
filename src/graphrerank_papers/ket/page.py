"""The page of KET-RAG's experiments: table 2 beside the paper's Coverage, sweeps, rerankers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.evaluation.tables import markdown_table
from graphrerank.files import save_figure
from graphrerank_papers.ket.contexts import CONTEXT_MEASURES, ContextResult
from graphrerank_papers.ket.costs import Prices, Tokens
from graphrerank_papers.ket.degrees import Degrees, degrees_table
from graphrerank_papers.ket.report import KETReport

PAPER = {  # Coverage on its MuSiQue questions, table 2: chunks of 1,200 and of 150 tokens
    "text_rag": {1200: 26.4, 150: 76.8},
    "knng_rag": {1200: 21.2, 150: 66.0},
    "kg_rag": {1200: 47.6, 150: 69.6},
    "hybrid_rag": {1200: 49.2, 150: 80.0},
    "keyword_rag": {1200: 50.8, 150: 78.2},
    "skeleton_rag": {1200: 43.4, 150: 69.6},
    "ket_u": {1200: 76.2, 150: 80.2},
    "ket_p": {1200: 77.0, 150: 79.6},
}
PAPER_SWEEPS: Mapping[str, Mapping[float, float]] = {  # KET-RAG-P, tables 3 and 4; its figures have no numbers
    "chunk_tokens": {150: 79.6, 300: 79.6, 600: 77.8, 1200: 77.0},
    "num_splits": {3: 77.0, 2: 70.4, 1: 61.0, 0: 56.8},
    "num_neighbours": {2: 79.6, 4: 80.0, 10: 80.4},
}
SYMBOLS = {
    "core_share": "β, share of core chunks",
    "graph_share": "θ, the skeleton's share of a context",
    "num_splits": "τ, how often chunks of 1,200 tokens are halved",
    "num_neighbours": "K, neighbours of a chunk",
    "chunk_tokens": "tokens of a chunk, halved to 150",
}

Sweep = Mapping[str, Mapping[float, ContextResult]]  # solution -> value -> result


def render_ket(
    degrees: Sequence[Degrees],
    solutions: Sequence[ContextResult],
    sweeps: Mapping[str, Sweep],
    rerankers: Sequence[ContextResult],
) -> str:
    """Write the page, in Markdown.

    Args:
        degrees: One per version, with their plot in ``degrees.png``; empty for none.
        solutions: One per solution and version, with ``solution``, ``chunk_tokens`` and ``num_splits`` as settings.
        sweeps: By setting; each has its plot in ``<setting>.png``.
        rerankers: With ``order`` and ``limit`` as settings.
    """
    parts = ["# KET-RAG's experiments"]
    if degrees:
        parts += ["## Degrees of the graph of nearest chunks", "![degrees](degrees.png)", degrees_table(degrees)]
    if solutions:
        parts += ["## Solutions", _solutions_table(solutions), NOTES]
    for setting, points in sweeps.items():
        parts += [f"## {SYMBOLS[setting]}", f"![Coverage]({setting}.png)", _sweep_table(setting, points)]
    if rerankers:
        parts += ["## Rerankers behind KET-RAG", _rerankers_table(rerankers)]
    return "\n\n".join(parts) + "\n"


NOTES = (
    "Coverage: percent of the questions whose answer occurs in the context. `paper`: table 2, whose vectors and "
    "entities come from OpenAI's models. Seconds: building the index in this run; vectors, entities and stages that "
    "an earlier row left in the cache are not computed again. Model tokens: what a language model would read to "
    "extract entities and relations of the core chunks, each chunk twice (section 5.3, without prompts). USD of the "
    "index: of these tokens and of the encoder's, at the prices of the paper's models (GPT-4o-mini, 0.15 per million "
    "read; text-embedding-3-small, 0.02); where a language model extracts, of what it read and wrote instead."
)


def _solutions_table(results: Sequence[ContextResult]) -> str:
    answered = [name for name in CONTEXT_MEASURES[1:] if name in results[0].values]
    priced = ["USD of answers"] if any(result.answers and result.answers.usd is not None for result in results) else []
    header = ["solution", "tokens", "halved", "Coverage", "paper", *answered, *priced, "USD of index", "index s"]
    header += ["encoder tokens", "model tokens", "entities", "relations", "ms", "context"]
    rows = []
    for result in results:
        solution, length, report = result.settings["solution"], result.settings["chunk_tokens"], result.report
        assert report is not None
        low, high = result.interval("Coverage")
        rows.append(
            [
                f"`{solution}`",
                f"{length:,}",
                str(result.settings["num_splits"]),
                f"{result.mean('Coverage'):.1f} ({100 * low:.1f} to {100 * high:.1f})",
                _paper(solution, length, result.settings["num_splits"]),
                *(f"{result.mean(name):.1f}" for name in answered),
                *(_usd(result) for _ in priced),
                f"{_spent(report).dollars(Prices()):.3f}",
                f"{result.index_seconds:.1f}",
                f"{report.sent.encoder:,}",
                f"{2 * report.core_tokens:,}",
                f"{report.entities:,}",
                f"{report.relations:,}",
                f"{result.milliseconds:.1f}",
                f"{result.context_tokens:,.0f}",
            ]
        )
    return markdown_table(header, rows)


def _spent(report: KETReport) -> Tokens:
    """Return the tokens of an index, of a language model as well where spaCy extracts."""
    extracted = Tokens() if report.num_prompts else Tokens(model_input=2 * report.core_tokens)
    return report.sent + extracted


def _usd(result: ContextResult) -> str:
    return "-" if result.answers is None or result.answers.usd is None else f"{result.answers.usd:.4f}"


def _paper(solution: str, chunk_tokens: int, num_splits: int) -> str:
    """Write the paper's Coverage where it has this row: keywords of chunks of 1,200 tokens are of halved ones."""
    known = PAPER.get(solution, {}).get(chunk_tokens)
    asked = 3 if chunk_tokens == 1200 and solution in ("keyword_rag", "ket_u", "ket_p") else 0
    return "-" if known is None or num_splits != asked else f"{known:.1f}"


def _sweep_table(setting: str, points: Sweep) -> str:
    values = list(next(iter(points.values())))
    first = next(iter(next(iter(points.values())).values()))
    rows = [
        [f"`{name}`" + (f", {measure}" if measure != "Coverage" else ""), *_means(by_value, measure, values)]
        for measure in CONTEXT_MEASURES
        if measure in first.values
        for name, by_value in points.items()
    ]
    if any(point.answers and point.answers.usd is not None for point in next(iter(points.values())).values()):
        rows += [
            [f"`{name}`, USD of answers", *(_usd(point) for point in row.values())] for name, row in points.items()
        ]
    if setting in PAPER_SWEEPS:
        published = [PAPER_SWEEPS[setting].get(value) for value in values]
        rows.append(["paper, `ket_p`", *("-" if coverage is None else f"{coverage:.1f}" for coverage in published)])
    return markdown_table([setting, *(f"{value:g}" for value in values)], rows)


def _means(by_value: Mapping[float, ContextResult], measure: str, values: Sequence[float]) -> list[str]:
    return [f"{by_value[value].mean(measure):.1f}" for value in values]


def _rerankers_table(results: Sequence[ContextResult]) -> str:
    limits = list(dict.fromkeys(result.settings["limit"] for result in results))
    by_cell = {(result.settings["order"], result.settings["limit"]): result for result in results}
    rows = []
    for order in dict.fromkeys(result.settings["order"] for result in results):
        cells = [by_cell.get((order, limit)) for limit in limits]  # None: still to come
        coverage = ["-" if cell is None else f"{cell.mean('Coverage'):.1f}" for cell in cells]
        rows.append([order, *coverage, f"{next(cell for cell in cells if cell is not None).milliseconds:.1f}"])
    first = results[0]
    caption = (
        f"Coverage of the first {len(first.values['Coverage'])} questions in contexts of fewer tokens. Candidates: the "
        "chunks of the whole context, in the order of a reranker, cut to fewer tokens. "
        "ms: including the retrieval; pairs that an earlier row left in the cache are not read again."
    )
    return caption + "\n\n" + markdown_table(["order", *(f"{limit:,} tokens" for limit in limits), "ms"], rows)


def draw_sweep(path: Path, setting: str, points: Sweep) -> None:
    """Draw each measure against a setting as PNG, a line per solution, with 95% intervals and the paper's numbers.

    Measures are Coverage and, where answers were written, EM and F1, a panel each.
    """
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    first = next(iter(next(iter(points.values())).values()))
    measures = [measure for measure in CONTEXT_MEASURES if measure in first.values]
    figure = Figure(figsize=(6 * len(measures), 4), layout="constrained")
    for axes, measure in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True):
        _draw_measure(axes, setting, points, measure)
    save_figure(path, figure)


def _draw_measure(axes: Any, setting: str, points: Sweep, measure: str) -> None:
    values = list(next(iter(points.values())))
    positions = range(len(values))
    for name, by_value in points.items():
        ends = [by_value[value].interval(measure) for value in values]
        (line,) = axes.plot(positions, [by_value[value].mean(measure) for value in values], marker="o", label=name)
        low, high = ([100 * end[side] for end in ends] for side in (0, 1))
        axes.fill_between(positions, low, high, color=line.get_color(), alpha=0.1)
    published = PAPER_SWEEPS.get(setting, {}) if measure == CONTEXT_MEASURES[0] else {}
    points_of_paper = [(position, published[value]) for position, value in enumerate(values) if value in published]
    if points_of_paper:
        axes.plot(*zip(*points_of_paper, strict=True), marker="x", ls="--", color="0.4", label="ket_p in the paper")
    axes.set_xticks(positions, [f"{value:g}" for value in values])
    axes.set(xlabel=SYMBOLS[setting], ylabel=f"{measure} (%), 95% interval")
    axes.grid(alpha=0.3)
    axes.legend()
