"""A chat model of transformers in this process, which can be constrained to write nothing but a prompt's form."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphrerank.core import DTYPES
from graphrerank.installation.extras import optional
from graphrerank.language_models.prompt import is_schema
from graphrerank.language_models.reply import ANSWERED, CUT, Reply
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank.utils.files import hash_model

Answer = TypeVar("Answer")

FINGERPRINTED = {".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".jinja"}
RETRY_TEMPERATURE = 0.7  # of retries, as greedy decoding would repeat the answer
UNSPELT = "NoExtensionBias"  # llguidance's reason for stopping if no token fits


@dataclass(eq=False)
class TransformersLanguageModel:
    """Asks an instruction-tuned model, loaded at its first use; an answer that its reader refuses is sampled again."""

    model: str | Path  # a local folder, or a model id of the Hugging Face hub
    _: KW_ONLY
    gguf_file: str | None = None  # in that folder, to load (needs the package `gguf`); None for safetensors
    revision: str | None = None  # commit of a hub model
    device: str | None = None  # None for CUDA if there is one
    dtype: str = "float32"  # or `bfloat16` or `float16`
    max_new_tokens: int = 512  # maximum of an answer
    batch_size: int = 8  # questions
    temperature: float = 0.0  # of sampling; 0 for the likeliest answer
    max_retries: int = 2  # attempts after the first
    seed: int = 0  # of sampling
    constrained: bool = True  # write nothing but the form of a prompt (:func:`in_form`)
    form: str | None = None  # JSON schema or regular expression of every answer; None for any text

    def __post_init__(self) -> None:
        check_counts(max_new_tokens=self.max_new_tokens, batch_size=self.batch_size)
        check_not_negative(max_retries=self.max_retries, temperature=self.temperature)
        check_choice(DTYPES, dtype=self.dtype)
        self.model = str(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, or id and revision of a hub model, with the settings that determine the answers."""
        weights = hash_model(str(self.model), self.revision, FINGERPRINTED)
        settings = (self.gguf_file, self.dtype, self.max_new_tokens, self.temperature, self.seed)
        return repr(("transformers", weights, *settings, *(() if self.form is None else (self.form,))))

    def in_form(self, form: str) -> "TransformersLanguageModel":
        """Return the same loaded model with answers of a form; itself unless it is ``constrained``."""
        if not self.constrained:
            return self
        twin = replace(self, form=form)
        for name in ("_loaded", "_form_tokenizer"):
            twin.__dict__[name] = getattr(self, name)
        return twin

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation; see :meth:`LanguageModel.ask`."""
        answers: dict[int, Answer] = {}
        pending, problem = list(range(len(questions))), ""
        for attempt in range(self.max_retries + 1):
            replies = self._generate([questions[index] for index in pending], system, attempt)
            for index, reply in zip(pending, replies, strict=True):
                try:
                    answers[index] = read(reply.text)
                except (ValueError, LookupError, TypeError) as error:
                    problem = repr(error)
            pending = [index for index in pending if index not in answers]
        if pending:
            tries, shown = self.max_retries + 1, f"the text {questions[pending[0]][:60]!r}"
            raise UserError(f"{self.model} gave no usable answer in {tries} tries for {shown}; last: {problem}")
        return [answers[index] for index in range(len(questions))]

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, batch by batch; see :meth:`LanguageModel.replies`."""
        return enumerate(self._generate(questions, system, 0))

    def _generate(self, questions: Sequence[str], system: str | None, attempt: int) -> Iterator[Reply]:
        for start in range(0, len(questions), self.batch_size):
            yield from self._generate_batch(questions[start : start + self.batch_size], system, attempt)

    def _generate_batch(self, questions: Sequence[str], system: str | None, attempt: int) -> Iterator[Reply]:
        tokenizer, model = self._loaded
        prefix = [] if system is None else [{"role": "system", "content": system}]
        conversations = [[*prefix, {"role": "user", "content": question}] for question in questions]
        texts = tokenizer.apply_chat_template(conversations, tokenize=False, add_generation_prompt=True)
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        length = batch["input_ids"].shape[1]
        limit = getattr(model.config, "max_position_embeddings", None)
        if limit is not None and length + self.max_new_tokens > limit:
            asked = f"a question of {length} with `max_new_tokens` {self.max_new_tokens}"
            raise UserError(f"{self.model} accepts and generates at most {limit} tokens, got {asked}")
        temperature = self.temperature or (RETRY_TEMPERATURE if attempt else 0.0)
        sampling: dict[str, Any] = {"do_sample": temperature > 0, "temperature": temperature or None}
        if self.form is not None:
            sampling["logits_processor"] = [FormMask(self._form_tokenizer, self.form, num_rows=len(texts))]
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(self.seed + attempt)
            sampling |= {"max_new_tokens": self.max_new_tokens, "pad_token_id": tokenizer.pad_token_id}
            output = model.generate(**batch, **sampling)
        written = output[:, length:]
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        read = batch["attention_mask"].sum(1).tolist()
        name = self.gguf_file or str(self.model).rstrip("/").rpartition("/")[2]
        for text, tokens, count in zip(texts, written.tolist(), read, strict=True):
            stop = next((index for index, token in enumerate(tokens) if token in self._ends), None)
            outcome, length = (CUT, len(tokens)) if stop is None else (ANSWERED, stop + 1)
            yield Reply(text, outcome, name, count, length)

    @property
    def _ends(self) -> list[int]:
        """Tokens that end a text."""
        tokenizer, model = self._loaded
        ends = model.generation_config.eos_token_id
        return sorted({*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None})

    @cached_property
    def _form_tokenizer(self) -> Any:
        tokenizer, model = self._loaded
        library = optional("llguidance.hf", "constrained decoding")
        try:
            return library.from_tokenizer(tokenizer, model.config.get_text_config().vocab_size, self._ends)
        except ValueError as error:
            raise UserError(
                f"{self.model}: constrained decoding needs a fast tokenizer that llguidance reads: {error}; "
                "`constrained=false` lets the model write what it likes"
            ) from error

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source: dict[str, Any] = {"revision": self.revision, "trust_remote_code": False}
        source |= {"gguf_file": self.gguf_file} if self.gguf_file else {}
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model, padding_side="left", **source)
            model = AutoModelForCausalLM.from_pretrained(self.model, dtype=getattr(torch, self.dtype), **source)
        except (OSError, ValueError, ImportError) as error:
            needed = "a local folder or a reachable hub id of a causal language model"
            raise UserError(f"`model` must be {needed}, got {self.model!r}: {error}") from error
        if tokenizer.chat_template is None:
            raise UserError(f"{self.model}: needs a model with a chat template, found none")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return tokenizer, model.to(device).eval()


class FormMask:
    """A logits processor of transformers that keeps the tokens by which a form can continue.

    A form is a JSON schema (begins with ``{``), without free white space, or a regular expression. Its automaton is
    that of ``llguidance``, over the bytes of its tokenizer. A row whose form is complete can
    only end. A form that the tokens cannot spell is an error.
    """

    def __init__(self, tokenizer: Any, form: str, *, num_rows: int) -> None:
        matcher = optional("llguidance", "constrained decoding").LLMatcher
        as_json, as_regex = matcher.grammar_from_json_schema, matcher.grammar_from_regex
        grammar = as_json(form, overrides={"whitespace_flexible": False}) if is_schema(form) else as_regex(form)
        self._matchers = [matcher(tokenizer, grammar) for _ in range(num_rows)]
        if problem := self._matchers[0].get_error():
            raise UserError(f"`form` must be a JSON schema or a regular expression, got {form[:80]!r}: {problem[:200]}")
        self._begun = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask ``[num_rows, num_tokens]`` scores of the next tokens by those that were written last."""
        if self._begun:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        self._begun = True
        allowed = torch.zeros_like(scores, dtype=torch.bool)
        for row, matcher in enumerate(self._matchers):
            bias = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)
            if matcher.is_error() or matcher.stop_reason() == UNSPELT:
                raise UserError("no token of the model can continue `form`: its vocabulary lacks a letter of it")
            allowed[row, : len(bias)] = bias.bool()
        return scores.masked_fill(~allowed, -torch.inf)
