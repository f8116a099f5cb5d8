"""Answers as tables: what became of the questions, and what was read and paid for them."""

from functools import partial

from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.evaluation.tables import (
    Cell,
    Columns,
    Table,
    build_table,
    number_cell,
    p_cell,
    percent_cell,
    system_cell,
)
from graphrerank.language_models.reply import OUTCOMES
from graphrerank_papers.answers.answer_counts import AnswerCounts
from graphrerank_papers.answers.win_rates import WinRate


def answers_table(dataset: DatasetStudy) -> Table:
    """A row per system whose answers were written."""
    answered = [system for system in dataset.systems.values() if system.answers is not None]
    columns: Columns[SystemStudy] = {
        "system": lambda system: system_cell(system.name),
        "written by": lambda system: Cell(_counts(system).writer),
        "model": lambda system: Cell(", ".join(f"{name} ({n})" for name, n in _counts(system).models.items()) or "-"),
        "tokens of a context": lambda system: number_cell(_counts(system).context_tokens, ",.0f"),
        "tokens read": lambda system: number_cell(_counts(system).input_tokens, ",.0f"),
        "tokens written": lambda system: number_cell(_counts(system).output_tokens, ",.0f"),
        "USD": lambda system: number_cell(_counts(system).usd, ".4f"),
        **{outcome: partial(_outcome, outcome) for outcome in OUTCOMES},
        "abstained": lambda system: number_cell(_counts(system).abstained, ",.0f"),
        "repeated": lambda system: number_cell(_counts(system).repeated, ",.0f"),
    }
    caption = (
        "Answers from the packed contexts. Tokens read and written and USD are of all questions, as if this system "
        "were the only one. Model: the names under which it answered. Cut: by the limit of tokens. Refused: by the "
        "model or a filter. Rejected: a request at fault, as one that is too long. Failed: no usable answer in all "
        "attempts. Unusable: not in the form that the prompt asks for. These four are missing, and right nowhere. "
        "Abstained: blank, or said not to know. Repeated: requests beyond the first of a question. Tokens and USD are "
        "without what was rejected or failed."
    )
    if any(_counts(system).verdicts for system in answered):
        columns = {
            **columns,
            "verdicts": lambda system: number_cell(_counts(system).verdicts, ",.0f"),
            "unusable verdicts": lambda system: number_cell(_counts(system).verdicts_unusable, ",.0f"),
            "USD of verdicts": lambda system: number_cell(_counts(system).judge_usd, ".4f"),
        }
        caption += " Verdicts: of the model that judges answers; an unusable one counts as wrong."
    return build_table("answers", caption, answered, columns, text_columns=3)


def wins_table(dataset: DatasetStudy) -> Table:
    """A row per other system and criterion: whose answers a model prefers."""
    columns: Columns[WinRate] = {
        "against": lambda rate: system_cell(rate.baseline),
        "criterion": lambda rate: Cell(rate.criterion),
        "won": lambda rate: number_cell(rate.wins, ",.0f"),
        "tied": lambda rate: number_cell(rate.ties, ",.0f"),
        "lost": lambda rate: number_cell(rate.losses, ",.0f"),
        "no verdict": lambda rate: number_cell(rate.without, ",.0f"),
        "win rate": lambda rate: percent_cell(rate.rate, rate.interval),
        "p": lambda rate: p_cell(rate.p_value),
        "same in both orders": lambda rate: percent_cell(rate.agreement),
    }
    caption = (
        "Answers of the last system against those of each other one, judged by a model in both orders: a win in one "
        "order and a tie in the other is a win, opposite verdicts are a tie, and ties count half. No verdict: both are "
        "blank, one is missing, or an order lacks a usable verdict; these do not count. Win rate: percent with its 95% "
        "bootstrap interval; p: paired randomisation test against one half. Same: percent of the pairs with one "
        "verdict in both orders."
    )
    return build_table("win rates", caption, dataset.win_rates, columns, text_columns=2)


def answer_notes(dataset: DatasetStudy) -> list[str]:
    """List what a reader must know of the answers: questions without one, why, and models that changed."""
    notes = []
    for system in dataset.systems.values():
        if (counts := system.answers) is None:
            continue
        lost = {name: n for name, n in counts.outcomes.items() if name != OUTCOMES[0] and n}
        if lost:
            listed = ", ".join(f"{n} {name}" for name, n in lost.items())
            notes.append(f"answers of {system.name}: {listed} of {counts.questions:,}{_commonest(counts)}")
        if counts.verdicts_unusable:
            notes.append(
                f"answers of {system.name}: {counts.verdicts_unusable:,} of {counts.verdicts:,} verdicts unusable, "
                "which count as wrong"
            )
        if len(counts.models) > 1:
            notes.append(f"answers of {system.name}: the model changed its name, {', '.join(counts.models)}")
    return notes


def _commonest(counts: AnswerCounts) -> str:
    if not counts.problems:
        return ""
    problem, number = max(counts.problems.items(), key=lambda entry: entry[1])
    return f"; {number:,} times: {problem}"


def _counts(system: SystemStudy) -> AnswerCounts:
    assert system.answers is not None
    return system.answers


def _outcome(outcome: str, system: SystemStudy) -> Cell:
    return number_cell(_counts(system).outcomes.get(outcome, 0), ",.0f")
