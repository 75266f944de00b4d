"""A byte-level BPE tokenizer made from the dialogues of a miniature."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from pytest_vllm_gates.miniatures.recipe import Tokens
from pytest_vllm_gates.miniatures.rendering import QUOTE, UNQUOTE

_QUOTED = re.compile(f"{QUOTE}(.*?){UNQUOTE}", re.DOTALL)


class MiniatureTokenizer:
    """Encodes prompts as a server does, and completions with quoted tokens as plain text."""

    def __init__(self, tokens: Tokens, texts: Iterable[str], vocab_size: int) -> None:
        self._plain = _trained(tokens, texts, vocab_size)
        # A second one without the added tokens, for text that only looks like one of them.
        self._full = Tokenizer.from_str(self._plain.to_str())
        self._full.add_special_tokens([_added(t, special=True) for t in tokens.special])
        self._full.add_tokens([_added(t, special=False) for t in tokens.markers + tokens.words])
        if tokens.bos and tokens.adds_bos:
            self._full.post_processor = processors.TemplateProcessing(
                single=f"{tokens.bos} $A",
                pair=f"{tokens.bos} $A {tokens.bos} $B",
                special_tokens=[(tokens.bos, self.id_of(tokens.bos))],
            )

        if tokens.appended:
            self._full.post_processor = processors.TemplateProcessing(
                single=f"$A {tokens.appended}",
                pair=f"$A {tokens.appended} $B {tokens.appended}",
                special_tokens=[(tokens.appended, self.id_of(tokens.appended))],
            )

    def id_of(self, token: str) -> int:
        """Return the id of an added token."""
        id_: int | None = self._full.token_to_id(token)
        assert id_ is not None, token  # noqa: S101
        return id_

    def prompt_ids(self, text: str) -> list[int]:
        """Token ids of a rendered prompt."""
        return list(self._full.encode(text, add_special_tokens=False).ids)

    def text_ids(self, text: str) -> list[int]:
        """Token ids of a text to embed, with the tokens that the tokenizer adds."""
        return list(self._full.encode(text).ids)

    def completion_ids(self, text: str) -> list[int]:
        """Token ids of a rendered completion; quoted parts become ordinary tokens."""
        ids: list[int] = []
        for index, part in enumerate(_QUOTED.split(text)):
            encoder = self._plain if index % 2 else self._full
            ids += encoder.encode(part, add_special_tokens=False).ids
        return ids

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`."""
        self._full.save(str(folder / "tokenizer.json"), pretty=False)


def _added(token: str, *, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _trained(tokens: Tokens, texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train merges on the text between added tokens; those never take part in a merge."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if tokens.split:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(tokens.split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if tokens.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size - len(tokens.added),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    added = re.compile("|".join(re.escape(token) for token in (*tokens.added, QUOTE, UNQUOTE)))
    pieces = [piece for text in texts for piece in added.split(text) if piece]
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def write_config(tokens: Tokens, folder: Path, context: int) -> None:
    """Write `tokenizer_config.json`; the tokens themselves are in `tokenizer.json`."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens.bos,
        "eos_token": tokens.eos,
        "pad_token": tokens.pad,
        # Without this list transformers takes only bos, eos and pad for special.
        "additional_special_tokens": list(tokens.special),
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        **tokens.names,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
