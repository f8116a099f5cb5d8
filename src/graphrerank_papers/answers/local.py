"""Run a chat model of transformers in this process, optionally constrained to the form of a prompt."""

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
from graphrerank.language_models.reply import ANSWERED, CUT_OFF, Reply
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank.utils.files import hash_model

Answer = TypeVar("Answer")

FINGERPRINTED = {".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".jinja"}
#: Sampling temperature of retries. Greedy decoding would repeat the unusable answer.
RETRY_TEMPERATURE = 0.7
#: llguidance's stop reason if no token can continue the form.
UNSPELT = "NoExtensionBias"


@dataclass(eq=False)
class TransformersLanguageModel:
    """Chat model of transformers, loaded at its first use.

    If the answer to a question is unusable, :meth:`ask` samples another one.

    Attributes:
        model: Local folder or Hugging Face hub id of an instruction-tuned causal language model.
        gguf_file: Name of a GGUF file in the folder (requires the package ``gguf``). If None, safetensors are loaded.
        revision: Commit of a hub model. If None, the default branch is used.
        device: Device of the model. If None, CUDA is used if available, and the CPU otherwise.
        dtype: Data type of the weights: ``float32``, ``bfloat16`` or ``float16``.
        max_new_tokens: Maximum number of tokens of an answer.
        batch_size: Number of questions per batch.
        temperature: Sampling temperature. With 0, decoding is greedy.
        max_retries: Maximum number of further attempts per question in :meth:`ask`.
        seed: Random seed of sampling.
        constrained: Whether decoding is constrained to the form of a prompt (:func:`in_form`).
        form: JSON schema or regular expression of every answer. If None, any text is allowed.
    """

    model: str | Path
    _: KW_ONLY
    gguf_file: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str = "float32"
    max_new_tokens: int = 512
    batch_size: int = 8
    temperature: float = 0.0
    max_retries: int = 2
    seed: int = 0
    constrained: bool = True
    form: str | None = None

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
        """Return the same loaded model with answers constrained to a form.

        Args:
            form: JSON schema or regular expression.

        Returns:
            Constrained model, or this model if ``constrained`` is False.
        """
        if not self.constrained:
            return self
        twin = replace(self, form=form)
        for name in ("_loaded", "_form_tokenizer"):
            twin.__dict__[name] = getattr(self, name)
        return twin

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation, and parse the answers.

        Args:
            questions: User messages, one per conversation.
            system: System message, or None.
            read: Function that parses an answer. Its ValueError, LookupError or TypeError makes the answer unusable.

        Returns:
            Parsed answer to each question.

        Raises:
            UserError: If a question has no usable answer after all attempts, or is too long for the model.
        """
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
            tries, question = self.max_retries + 1, questions[pending[0]][:60]
            raise UserError(f"{self.model} gave no usable answer in {tries} tries to {question!r}. Last: {problem}")
        return [answers[index] for index in range(len(questions))]

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question once, batch by batch.

        Args:
            questions: User messages, one per conversation.
            system: System message, or None.

        Returns:
            Iterator over the index and the reply of each question.
        """
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
            sizes = f"{length} tokens of a question plus `max_new_tokens` {self.max_new_tokens}"
            raise UserError(f"{self.model} is limited to {limit} tokens of input and output together, got {sizes}")
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
            outcome, length = (CUT_OFF, len(tokens)) if stop is None else (ANSWERED, stop + 1)
            yield Reply(text, outcome, name, count, length)

    @property
    def _ends(self) -> list[int]:
        """Ids of the tokens that end a text."""
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
                f"{self.model}: constrained decoding needs a fast tokenizer that llguidance supports: {error}. "
                "Use `constrained=false` to decode without constraints."
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
            raise UserError(f"`model` must have a chat template, got {self.model!r} without one")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return tokenizer, model.to(device).eval()


class FormMask:
    """Logits processor of transformers that masks the tokens with which a form cannot continue.

    A form is a JSON schema, which begins with ``{`` and is written without optional white space, or a regular
    expression. ``llguidance`` compiles it to an automaton over the bytes of the tokens. Once the form is complete, a
    row can only end.
    """

    def __init__(self, tokenizer: Any, form: str, *, num_rows: int) -> None:
        """Compile a form.

        Args:
            tokenizer: Tokenizer of llguidance.
            form: JSON schema or regular expression.
            num_rows: Number of texts in the batch.

        Raises:
            UserError: If ``form`` is neither a JSON schema nor a regular expression.
        """
        matcher = optional("llguidance", "constrained decoding").LLMatcher
        as_json, as_regex = matcher.grammar_from_json_schema, matcher.grammar_from_regex
        grammar = as_json(form, overrides={"whitespace_flexible": False}) if is_schema(form) else as_regex(form)
        self._matchers = [matcher(tokenizer, grammar) for _ in range(num_rows)]
        if problem := self._matchers[0].get_error():
            raise UserError(f"`form` must be a JSON schema or a regular expression, got {form[:80]!r}: {problem[:200]}")
        self._begun = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask the scores of the next tokens, after advancing each row by its last token.

        Args:
            input_ids: Tokens of each row so far ``[num_rows, length]``.
            scores: Scores of the next tokens ``[num_rows, num_tokens]``.

        Returns:
            Scores with minus infinity for the tokens that are not allowed.

        Raises:
            UserError: If no token of the vocabulary can continue the form.
        """
        if self._begun:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        self._begun = True
        allowed = torch.zeros_like(scores, dtype=torch.bool)
        for row, matcher in enumerate(self._matchers):
            bias = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)
            if matcher.is_error() or matcher.stop_reason() == UNSPELT:
                raise UserError(
                    "no token of the model can continue `form`, because the vocabulary lacks a character that it needs"
                )
            allowed[row, : len(bias)] = bias.bool()
        return scores.masked_fill(~allowed, -torch.inf)
