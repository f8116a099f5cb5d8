from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from graphrerank_papers.answers.local import TransformersLanguageModel
from graphrerank_papers.knowledge.language_model import LanguageModelKnowledgeExtractor

WORDS = ["[PAD]", "[UNK]", "[EOS]", "user", "system", "assistant", *"abcdefghijklmnopqrstuvwxyz"]
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} [EOS] {% endfor %}assistant "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama over letters, written as transformers writes models."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=2, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make(model: Path, **settings) -> TransformersLanguageModel:
    return TransformersLanguageModel(model, device="cpu", **{"max_new_tokens": 6, **settings})


def test_answers_do_not_depend_on_what_shares_a_batch(model: Path) -> None:
    questions = ["a", "b c d e f g", "x y"]
    alone = [make(model, batch_size=1).ask([question], system="s", read=str)[0] for question in questions]
    assert make(model, batch_size=3).ask(questions, system="s", read=str) == alone
    assert len(set(alone)) > 1
    assert make(model).ask([], system=None, read=str) == []


def test_the_system_message_is_read(model: Path) -> None:
    chat = make(model)
    assert len({*chat.ask(["a"], system=None, read=str), *chat.ask(["a"], system="q r s t", read=str)}) == 2


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


def test_no_usable_answer_is_an_error_that_shows_text_and_reason(model: Path) -> None:
    def refuse(text: str) -> str:
        raise ValueError("no JSON")

    with pytest.raises(ValueError, match=r"no usable answer in 2 tries for the text 'a b'; last: ValueError\('no JSON"):
        make(model, max_retries=1).ask(["a b"], system=None, read=refuse)


def test_question_beyond_the_models_length_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match=r"accepts and generates at most 64 tokens, got a question of \d+ with"):
        make(model).ask(["a " * 70], system=None, read=str)


def test_fingerprint_tells_models_and_settings_apart(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    made = [make(model), make(model, seed=1), make(model, temperature=0.5), make(tmp_path), make(Path("hub/id"))]
    assert len({one.fingerprint for one in made}) == len(made)
    assert make(model, batch_size=2).fingerprint == made[0].fingerprint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "`max_new_tokens` must be a positive integer, got 0"),
        ({"max_retries": -1}, "`max_retries` must not be negative, got -1"),
        ({"temperature": -1.0}, "`temperature` must not be negative, got -1.0"),
        ({"dtype": "int8"}, "`dtype` must be one of .* got 'int8'"),
    ],
)
def test_numbers_out_of_range(model: Path, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(model, **settings)


def test_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`model` must be a local folder or a reachable hub id .* got '.*nothing'"):
        make(tmp_path / "nothing").ask(["a"], system=None, read=str)


@pytest.mark.slow
def test_a_real_small_instruct_model_answers_and_bad_knowledge_is_skipped_not_made_up(
    small_chat: Callable[[int], TransformersLanguageModel],
) -> None:
    chat = small_chat(48)
    (answer,) = chat.ask(["What is the capital of France?"], system="Answer in one word.", read=str)
    assert "Paris" in answer
    extractor = LanguageModelKnowledgeExtractor(chat, tries=1)
    text = "Lothair II died in Piacenza in 869."
    (knowledge,) = extractor.extract([text])
    assert extractor.skipped == ([] if knowledge.entities or knowledge.relations else [text])
