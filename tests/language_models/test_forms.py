"""The forms of all prompts, filled at random over tokenizers of several kinds, against the parsers of their answers."""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from graphrerank.installation.conf_folder import listed_choices
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.text import WordTokenizer
from graphrerank_documents.draft_folder import parse_question
from graphrerank_papers.answers.judges import parse_decision, parse_winner
from graphrerank_papers.answers.local import FormMask
from graphrerank_papers.answers.writers import answer_in_form, parse_partial_answer
from graphrerank_papers.hipporag import read_selection
from graphrerank_papers.knowledge.language_model import parse_entities, parse_knowledge, parse_names, parse_relations
from graphrerank_papers.knowledge_graph_search import parse_levels
from graphrerank_papers.retag.steps import parse_keywords, parse_relevant, parse_topic, parse_topics
from graphrerank_papers.summaries import parse_summary

hf = pytest.importorskip("llguidance.hf", reason="llguidance is optional")

SPECIAL = ["<unk>", "<pad>", "<end>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = " ".join(chr(code) for code in range(33, 127))  # each is a token: any form can be spelt
TEXT = [LETTERS, 'Metz lies in Lorraine; "Who?" asked 3 kings: {"answer": ["Metz", [1, 2]]}. Decision: yes über'] * 10
ENDS = ('"', "}", "]", '"]', '"}', "]}", "yes")
PARSERS: dict[str, Callable[[str], Any]] = {
    "closed_book": partial(answer_in_form, form="{}"),
    "drafted_question": parse_question,
    "ea_graphrag_entities": parse_names,
    "ea_graphrag_facts": read_selection,
    "ea_graphrag_triples": parse_relations,
    "entities": parse_entities,
    "grapher_entities": parse_entities,
    "grapher_judge": parse_decision,
    "json_answer": partial(answer_in_form, form="{}"),
    "ket_entities": parse_names,
    "ket_relations": parse_relations,
    "knowledge": parse_knowledge,
    "light_rag_keywords": parse_levels,
    "preference": parse_winner,
    "retag_classification": partial(parse_topic, num_topics=999),
    "retag_keywords": parse_keywords,
    "retag_map": parse_partial_answer,
    "retag_merged_topics": partial(parse_topics, limit=20),
    "retag_reduce": partial(parse_partial_answer, is_final=True),
    "retag_relevance": partial(parse_relevant, num_topics=999),
    "retag_topics": partial(parse_topics, limit=20),
    "summary": partial(parse_summary, tokenizer=WordTokenizer(), limit=5000),
}
# what a form does not say, and its reader refuses: names without a letter, blank texts, lists of another length, and
# an answer that helps without citing
BEYOND = (
    "letter or digit|should have at least|\\.\\.\\.|as many|lists, got|none of them blank|cite at least one summary"
)


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False)
    )
    return tokenizer


def sentence_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    special = [*SPECIAL, *BYTES]
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=450, special_tokens=special, show_progress=False)
    )
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(content))  # bytes are tokens as others


@cache
def prepared(kind: Callable[[], Tokenizer]) -> tuple[PreTrainedTokenizerFast, Any]:
    fast = PreTrainedTokenizerFast(tokenizer_object=kind(), unk_token="<unk>", pad_token="<pad>", eos_token="<end>")
    return fast, hf.from_tokenizer(fast, len(fast), [fast.eos_token_id])


def written(kind: Callable[[], Tokenizer], form: str, seed: int) -> str:
    """Write a text of a form at random, with a liking for tokens that end its parts."""
    tokenizer, known = prepared(kind)
    mask, drawn = FormMask(known, form, num_rows=1), torch.Generator().manual_seed(seed)
    liked = torch.zeros(len(tokenizer))
    for token in tokenizer.convert_tokens_to_ids(ENDS):
        if token not in (None, tokenizer.unk_token_id):
            liked[token] = 3.0
    tokens: list[int] = []
    for _ in range(20_000):
        scores = mask(torch.tensor([tokens[-1:]]), 4 * torch.rand(1, len(tokenizer), generator=drawn) + liked)
        token = int(scores.argmax())
        if token == tokenizer.eos_token_id:
            return str(tokenizer.decode(tokens))
        tokens.append(token)
    raise AssertionError("no end")


FORMS = sorted(name for name, settings in listed_choices("prompt").items() if "form" in settings)


def test_every_form_has_a_parser_here() -> None:
    assert sorted(PARSERS) == FORMS


@pytest.mark.parametrize("kind", [byte_level, sentence_piece], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", FORMS)
def test_what_a_form_lets_through_is_usable(name: str, kind: Callable[[], Tokenizer]) -> None:
    form = shipped_prompt(name).form
    for seed in range(3):
        assert usable(PARSERS[name], written(kind, form, seed))


def usable(parse: Callable[[str], Any], text: str) -> bool:
    """Return whether an answer has the form that its parser asks for."""
    try:
        return parse(text) is not None
    except ValueError as error:
        return re.search(BEYOND, str(error)) is not None


def test_a_vocabulary_that_cannot_spell_a_form_is_refused() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "<end>": 1}, []))
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    mask = FormMask(hf.from_tokenizer(fast, 2, [1]), "ab", num_rows=1)
    assert int(mask(torch.tensor([[]]), torch.zeros(1, 2)).argmax()) == 0
    with pytest.raises(ValueError, match="no token of the model can continue `form`"):
        mask(torch.tensor([[0]]), torch.zeros(1, 2))
