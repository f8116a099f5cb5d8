"""A random model over bytes, which writes rubbish unless it is held to a form."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from graphrerank.language_models.prompt import in_form, shipped_prompt
from graphrerank_papers.answers.judges import PairwiseJudge
from graphrerank_papers.answers.local import FormMask, TransformersLanguageModel
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.writers import MapReduceWriter, PromptedWriter
from graphrerank_papers.knowledge.language_model import LanguageModelKnowledgeExtractor

needs_llguidance = pytest.mark.skipif(find_spec("llguidance") is None, reason="llguidance is optional")

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }}<end>{% endfor %}assistant "
WINNER = '{"type": "object", "properties": {"winner": {"enum": [0, 1, 2]}}, "required": ["winner"], ' \
    '"additionalProperties": false}'  # fmt: skip
FREE = {"max_new_tokens": 450, "temperature": 1.5}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def make(model: Path, **settings: Any) -> TransformersLanguageModel:
    return TransformersLanguageModel(model, device="cpu", **{"max_new_tokens": 6, **settings})


def test_answers_do_not_depend_on_what_shares_a_batch(model: Path) -> None:
    questions = ["a", "b c d e f g", "x y"]
    alone = [make(model, batch_size=1).ask([question], system="s", read=str)[0] for question in questions]
    assert make(model, batch_size=3).ask(questions, system="s", read=str) == alone
    assert len(set(alone)) > 1
    assert make(model).ask([], system=None, read=str) == []


def test_an_answer_that_is_refused_is_asked_for_again_with_the_same_outcome_for_a_seed(model: Path) -> None:
    def run(seed: int) -> tuple[list[str], list[str]]:
        seen: list[str] = []

        def read(text: str) -> str:
            seen.append(text)
            if len(seen) < 3:
                raise ValueError("not yet")
            return text

        return make(model, seed=seed, max_new_tokens=20).ask(["a b"], system=None, read=read), seen

    (answer,), seen = run(1)
    assert answer == seen[2]
    assert seen[1] != seen[0]  # sampled
    assert run(1) == ([answer], seen)


def test_errors_of_answers_questions_and_models(model: Path, tmp_path: Path) -> None:
    def refuse(text: str) -> str:
        raise ValueError("no JSON")

    with pytest.raises(ValueError, match=r"no usable answer in 2 tries to 'a b'\. Last: ValueError\('no JSON"):
        make(model, max_retries=1).ask(["a b"], system=None, read=refuse)
    with pytest.raises(ValueError, match=r"limited to 4096 tokens of input and output together, got \d+ tokens"):
        make(model).ask(["a " * 2100], system=None, read=str)
    with pytest.raises(ValueError, match=r"`model` must be a local folder or a reachable hub id .* got '.*nothing'"):
        make(tmp_path / "nothing").ask(["a"], system=None, read=str)


QUESTIONS = [f"{number} or {number + 1}?" for number in range(12)]


@needs_llguidance
def test_every_answer_has_the_schema_and_none_without_it(model: Path) -> None:
    plain = [reply.text for _, reply in make(model, **FREE).replies(QUESTIONS, system=None)]
    for text in plain:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    replies = dict(in_form(make(model, **FREE), WINNER).replies(QUESTIONS, system=None))
    winners = [json.loads(replies[row].text)["winner"] for row in range(12)]
    assert set(winners) == {0, 1, 2}  # the model chooses
    assert {reply.outcome for reply in replies.values()} == {"answered"}
    assert {reply.text for reply in replies.values()} <= {f'{{"winner":{number}}}' for number in range(3)}


@needs_llguidance
def test_every_answer_of_a_prompt_in_json_is_usable(model: Path) -> None:
    contexts = [Context(("Metz lies in Lorraine.",), 4)] * 6
    counts = {}
    for constrained in (True, False):
        writer = PromptedWriter(make(model, **FREE, constrained=constrained), shipped_prompt("json_answer"))
        replies = writer.write(QUESTIONS[:6], contexts)
        counts[constrained] = [reply.outcome for reply in replies]
        assert all(bool(reply.text) == (reply.outcome == "answered") for reply in replies)
    assert counts == {True: ["answered"] * 6, False: ["unusable"] * 6}


@needs_llguidance
def test_fingerprints_and_a_form_that_loads_nothing_again(model: Path, tmp_path: Path) -> None:
    plain, loose = make(model, **FREE), make(model, **FREE, constrained=False)
    twin = in_form(plain, WINNER)
    (tmp_path / "config.json").write_text("{}")
    others = [make(model, **FREE, seed=1), make(model), make(tmp_path), make(Path("hub/id"))]
    assert len({each.fingerprint for each in (plain, twin, *others)}) == 6
    assert make(model, **FREE, batch_size=2).fingerprint == plain.fingerprint
    assert twin._loaded is plain._loaded
    assert (in_form(plain, None), in_form(loose, WINNER)) == (plain, loose)
    for form in ("a(", '{"type": "nothing"}'):
        with pytest.raises(ValueError, match="`form` must be a"):
            FormMask(plain._form_tokenizer, form, num_rows=1)


@pytest.mark.slow
def test_a_real_small_instruct_model_answers_and_makes_nothing_up(
    small_chat: Callable[[int], TransformersLanguageModel],
) -> None:
    chat = small_chat(48)
    (answer,) = chat.ask(["What is the capital of France?"], system="Answer in one word.", read=str)
    assert "Paris" in answer
    extractor, text = LanguageModelKnowledgeExtractor(chat, tries=1), "Lothair II died in Piacenza in 869."
    (knowledge,) = extractor.extract([text])
    assert extractor.skipped == ([] if knowledge.entities or knowledge.relations else [text])
    summaries = ("Metz fell in the spring after a siege of two months.", "Nancy was never taken.")
    (cited,) = MapReduceWriter(chat, tries=1).write(["Which towns fell?"], [Context(summaries, 15)])
    assert bool(cited.text) == bool(cited.citations)
    assert cited.text or cited.outcome == "unusable" or cited.helpfulness == (0,)
    judge = PairwiseJudge(chat, criteria={"directness": "How directly is the question answered?"}, tries=1)
    verdicts = judge.compare(["Which towns fell?"], ["Metz fell."], ["There are many towns in Lorraine."])
    assert {-1.0, 0.0, 1.0} >= set(torch.cat([verdicts.forward, verdicts.backward]).nan_to_num().flatten().tolist())
