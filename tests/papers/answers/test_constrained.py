"""A random model over bytes, which writes rubbish unless it is held to a form."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.prompt import in_form, shipped_prompt
from graphrerank_papers.answers.answer_judge import PairwiseJudge
from graphrerank_papers.answers.constrained import FormMask, form_grammar
from graphrerank_papers.answers.local import TransformersLanguageModel
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.prompted_writer import PromptedWriter

pytest.importorskip("llguidance", reason="llguidance is optional")

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }}<end>{% endfor %}assistant "
WINNER = '{"type": "object", "properties": {"winner": {"enum": [0, 1, 2]}}, "required": ["winner"], ' \
    '"additionalProperties": false}'  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(BPE(tokens, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast) + 6, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=4096, pad_token_id=fast.pad_token_id,
        eos_token_id=fast.eos_token_id, bos_token_id=None,
    )  # fmt: skip  # more scores than tokens, as models are often padded
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make(folder: Path, **settings: Any) -> TransformersLanguageModel:
    return TransformersLanguageModel(folder, device="cpu", **{"max_new_tokens": 450, "temperature": 1.5, **settings})


QUESTIONS = [f"{number} or {number + 1}?" for number in range(12)]


def test_every_answer_has_the_schema_and_none_without_it(folder: Path) -> None:
    plain = [reply.text for _, reply in make(folder).replies(QUESTIONS, system=None)]
    for text in plain:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    replies = dict(in_form(make(folder), WINNER).replies(QUESTIONS, system=None))
    winners = [json.loads(replies[row].text)["winner"] for row in range(12)]
    assert set(winners) == {0, 1, 2}  # the model chooses
    assert {reply.outcome for reply in replies.values()} == {"answered"}
    assert {reply.text for reply in replies.values()} <= {f'{{"winner":{number}}}' for number in range(3)}


def test_rows_of_a_batch_end_by_themselves(folder: Path) -> None:
    pattern = "a{1,30}b"
    texts = in_form(make(folder, batch_size=12), pattern).ask(QUESTIONS, system=None, read=str)
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len({len(text) for text in texts}) > 1


def test_every_answer_of_a_prompt_in_json_is_usable(folder: Path) -> None:
    contexts = [Context(("Metz lies in Lorraine.",), 4)] * 6
    counts = {}
    for constrained in (True, False):
        writer = PromptedWriter(make(folder, constrained=constrained), shipped_prompt("json_answer"))
        replies = writer.write(QUESTIONS[:6], contexts)
        counts[constrained] = [reply.outcome for reply in replies]
        assert all(bool(reply.text) == (reply.outcome == "answered") for reply in replies)
    assert counts == {True: ["answered"] * 6, False: ["unusable"] * 6}


def test_no_verdict_is_skipped(folder: Path, tmp_path: Path) -> None:
    model = AnswerCache(make(folder, max_new_tokens=1600), tmp_path)
    judge = PairwiseJudge(model, criteria={"directness": "How direct?"}, tries=1)
    verdicts = judge.compare(QUESTIONS[:4], ["Metz"] * 4, ["Nancy"] * 4)
    assert judge.skipped == []
    assert not verdicts.scores.isnan().any()


def test_a_form_changes_the_fingerprint_and_loads_nothing_again(folder: Path) -> None:
    plain = make(folder)
    twin = in_form(plain, WINNER)
    assert twin.fingerprint != plain.fingerprint
    assert twin._loaded is plain._loaded
    assert in_form(plain, None) is plain
    loose = make(folder, constrained=False)
    assert in_form(loose, WINNER) is loose
    assert in_form("no local model", WINNER) == "no local model"


@pytest.mark.parametrize("form", ['{"type": ', "a(", '{"type": "nothing"}'])
def test_what_is_no_form_is_refused(folder: Path, form: str) -> None:
    with pytest.raises(ValueError, match="`form` must be a"):
        FormMask(make(folder)._form_tokenizer, form, num_rows=1)


def test_a_schema_has_no_free_white_space() -> None:
    assert "whitespace_flexible" in form_grammar(WINNER)
