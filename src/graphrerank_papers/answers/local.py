"""A chat model of transformers that runs in this process instead of behind an endpoint."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from graphrerank.checks import check_choice, check_counts, check_not_negative
from graphrerank.files import hash_model
from graphrerank.graphs import DTYPES
from graphrerank.language_models.reply import ANSWERED, CUT, Reply
from graphrerank_papers.answers.constrained import FormMask, form_tokenizer

Answer = TypeVar("Answer")

FINGERPRINTED = {".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".jinja"}
RETRY_TEMPERATURE = 0.7  # of retries, as greedy decoding would repeat the answer


@dataclass(eq=False)
class TransformersLanguageModel:
    """Asks an instruction-tuned model, loaded at its first use.

    An answer that its reader refuses is sampled again. The same seed gives the same answers. A
    ValueError at loading says that the model is not found, or has no chat template.
    """

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
    constrained: bool = True  # whether it can write nothing but the form that a prompt asks for (:func:`in_form`)
    form: str | None = None  # a JSON schema or a regular expression that every answer has; None for any text

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
        prefix = [] if system is None else [{"role": "system", "content": system}]
        answers: dict[int, Answer] = {}
        problem = ""
        for attempt in range(self.max_retries + 1):
            pending = [index for index in range(len(questions)) if index not in answers]
            for start in range(0, len(pending), self.batch_size):
                batch = pending[start : start + self.batch_size]
                conversations = [[*prefix, {"role": "user", "content": questions[index]}] for index in batch]
                for index, reply in zip(batch, self._generate(conversations, attempt), strict=True):
                    try:
                        answers[index] = read(reply.text)
                    except (ValueError, LookupError, TypeError) as error:
                        problem = repr(error)
        if missing := [text for index, text in enumerate(questions) if index not in answers]:
            raise ValueError(
                f"{self.model} gave no usable answer in {self.max_retries + 1} tries for the text "
                f"{missing[0][:60]!r}; last: {problem}"
            )
        return [answers[index] for index in range(len(questions))]

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, batch by batch; see :meth:`LanguageModel.replies`."""
        prefix = [] if system is None else [{"role": "system", "content": system}]
        for start in range(0, len(questions), self.batch_size):
            batch = [
                [*prefix, {"role": "user", "content": text}] for text in questions[start : start + self.batch_size]
            ]
            yield from enumerate(self._generate(batch, 0), start)

    def _generate(self, conversations: Sequence[list[dict[str, str]]], attempt: int) -> list[Reply]:
        import torch

        tokenizer, model = self._loaded
        texts = [
            tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) for turns in conversations
        ]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        length = batch["input_ids"].shape[1]
        limit = getattr(model.config, "max_position_embeddings", None)
        if limit is not None and length + self.max_new_tokens > limit:
            raise ValueError(
                f"{self.model} accepts and generates at most {limit} tokens, got a question of {length} with "
                f"`max_new_tokens` {self.max_new_tokens}"
            )
        temperature = self.temperature or (RETRY_TEMPERATURE if attempt else 0.0)
        sampling: dict[str, Any] = (
            {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        )
        if self.form is not None:
            sampling["logits_processor"] = [FormMask(self._form_tokenizer, self.form, num_rows=len(texts))]
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(self.seed + attempt)
            output = model.generate(
                **batch, **sampling, max_new_tokens=self.max_new_tokens, pad_token_id=tokenizer.pad_token_id
            )
        written = output[:, length:]
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        read = batch["attention_mask"].sum(1).tolist()
        stops = set(self._ends)
        replies = []
        for text, tokens, count in zip(texts, written.tolist(), read, strict=True):
            stop = next((place for place, token in enumerate(tokens) if token in stops), None)
            outcome, length = (CUT, len(tokens)) if stop is None else (ANSWERED, stop + 1)
            replies.append(Reply(text, outcome, self.model_name, count, length))
        return replies

    @property
    def model_name(self) -> str:
        """The model's name in reports: the file or the folder, or the hub's id."""
        return self.gguf_file or str(self.model).rstrip("/").rpartition("/")[2]

    @property
    def _ends(self) -> list[int]:
        """Tokens that end a text."""
        tokenizer, model = self._loaded
        ends = model.generation_config.eos_token_id
        return sorted({*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None})

    @cached_property
    def _form_tokenizer(self) -> Any:
        tokenizer, model = self._loaded
        return form_tokenizer(tokenizer, num_tokens=model.config.get_text_config().vocab_size, ends=self._ends)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source = {
            "revision": self.revision,
            "trust_remote_code": False,
            **({"gguf_file": self.gguf_file} if self.gguf_file else {}),
        }
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model, padding_side="left", **source)
            model = AutoModelForCausalLM.from_pretrained(self.model, dtype=getattr(torch, self.dtype), **source)
        except (OSError, ValueError, ImportError) as error:
            raise ValueError(
                f"`model` must be a local folder or a reachable hub id of a causal language model, got "
                f"{self.model!r}: {error}"
            ) from error
        if tokenizer.chat_template is None:
            raise ValueError(f"{self.model}: needs a model with a chat template, found none")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return tokenizer, model.to(device).eval()
