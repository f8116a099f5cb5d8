"""Constrained decoding: a local model can write nothing but a form that is asked for."""

import json
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from graphrerank.extras import optional
from graphrerank.language_models.prompt import is_schema

UNSPELT = "NoExtensionBias"  # why llguidance stops where no token fits


class FormMask:
    """A logits processor of transformers that leaves the tokens by which a form can go on.

    A form is a JSON schema (a text that begins with ``{``), without free white space, or a regular expression. Its
    automaton is that of ``llguidance``, over the tokenizer's bytes. A row whose form is complete can only end.

    Args:
        tokenizer: What :func:`form_tokenizer` returns.
        form: The form.
        num_rows: Texts that are generated at once.

    Raises:
        ValueError: If the form is no schema and no regular expression, or, when called, if the tokens cannot spell it.
    """

    def __init__(self, tokenizer: Any, form: str, *, num_rows: int) -> None:
        matcher = optional("llguidance", "constrained decoding").LLMatcher
        grammar = form_grammar(form)
        self._matchers = [matcher(tokenizer, grammar) for _ in range(num_rows)]
        if problem := self._matchers[0].get_error() if self._matchers else "":
            raise ValueError(
                f"`form` must be a JSON schema or a regular expression, got {form[:80]!r}: {problem[:200]}"
            )
        self._begun = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask ``[num_rows, num_tokens]`` scores of the next tokens by those that were written last."""
        if self._begun:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        self._begun = True
        masked = torch.full_like(scores, -torch.inf)
        for row, matcher in enumerate(self._matchers):
            allowed = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8).bool()
            places = allowed.nonzero().flatten().to(scores.device)
            if matcher.is_error() or matcher.stop_reason() == UNSPELT:
                raise ValueError("no token of the model can continue `form`: its vocabulary lacks a letter of it")
            masked[row, places] = scores[row, places]
        return masked


def form_grammar(form: str) -> str:
    """Return a form in the terms of ``llguidance``; a ValueError if it begins like a schema and is none."""
    matcher = optional("llguidance", "constrained decoding").LLMatcher
    if not is_schema(form):
        return str(matcher.grammar_from_regex(form))
    try:
        json.loads(form)
        return str(matcher.grammar_from_json_schema(form, overrides={"whitespace_flexible": False}))
    except ValueError as error:
        raise ValueError(f"`form` must be a JSON schema or a regular expression, got {form[:80]!r}: {error}") from error


def form_tokenizer(tokenizer: Any, *, num_tokens: int, ends: Sequence[int]) -> Any:
    """Prepare a fast tokenizer of transformers; ``num_tokens`` is the width of the scores, ``ends`` end a text.

    It must decode tokens one by one, to bytes: byte-level BPE (SmolLM, Llama 3, Qwen), and SentencePiece's BPE or
    unigrams, with or without bytes for what they lack (Llama 2, Mistral, Gemma).

    Raises:
        ValueError: If the tokenizer is another one.
    """
    build = optional("llguidance", "constrained decoding").LLTokenizer
    try:
        backend = copy(tokenizer.backend_tokenizer)  # with the tokens that transformers has added
        backend.no_padding()
        backend.no_truncation()
        content = json.loads(backend.to_str())
        if (content["decoder"] or {}).get("type") == "Metaspace":  # as `Sequence`, which llguidance reads
            space = {"type": "Replace", "pattern": {"String": content["decoder"]["replacement"]}, "content": " "}
            content["decoder"] = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
        return build(json.dumps(content), n_vocab=num_tokens, eos_token=list(ends))
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"constrained decoding needs a fast tokenizer of byte-level BPE or SentencePiece, got "
            f"{type(tokenizer).__name__}; `constrained=false` lets the model write what it likes: {error}"
        ) from error
