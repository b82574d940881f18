"""Text codecs: prompts to tokens and tokens to text, as the policy's folder says.

Folders of the ladder (and of any policy trained from it) need `tokenizers` only; every other model
goes through transformers, with its own chat template and special tokens.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from stepladder.core.errors import SpecError
from stepladder.core.prompt import Prompt
from stepladder.spec import ladder

COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
    "generation_config.json",
    "*.model",
)
"""Files of a policy's folder that belong to its tokenizer and go along with trained weights."""


class TextCodec(Protocol):
    """Turns prompts into tokens and tokens into text."""

    eos_ids: frozenset[int]
    """Every token that ends a completion."""

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's tokens, ready for the first answer token."""
        ...

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return texts without the token that ended them; tags are kept."""
        ...


def load_codec(folder: Path) -> TextCodec:
    """Return the codec of a policy's folder.

    Raises
        SpecError: the folder holds no tokenizer.
    """
    settings = read_json(folder / "tokenizer_config.json")
    if settings.get("chat_template") == ladder.CHAT_TEMPLATE and _tokenizer(folder).exists():
        return LadderCodec(folder)
    return ChatCodec(folder)


class LadderCodec:
    """The ladder's character tokenizer; a prompt is <bos> and its messages' text."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(_tokenizer(folder)))
        self.eos_ids = eos_ids(folder)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's tokens."""
        return tuple(self._tokenizer.encode(prompt.text).ids)

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return texts without their end-of-sequence token."""
        kept = [trim(ids, self.eos_ids) for ids in batch]
        return self._tokenizer.decode_batch(kept, skip_special_tokens=False)


class ChatCodec:
    """Any Hugging Face tokenizer, with its chat template when it has one."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise SpecError(
                "SL0135",
                f"no tokenizer can be loaded: {error}",
                f"model.path {folder}",
                "put tokenizer.json and tokenizer_config.json beside the weights",
            ) from error
        own = self._tokenizer.eos_token_id
        self.eos_ids = eos_ids(folder) | (frozenset() if own is None else {own})

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's tokens, the template's call for an answer included."""
        if not getattr(self._tokenizer, "chat_template", None):
            return tuple(self._tokenizer(prompt.text)["input_ids"])
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        # The template writes the special tokens itself.
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return texts without their end-of-sequence token."""
        kept = [trim(ids, self.eos_ids) for ids in batch]
        return [
            self._tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            for ids in kept
        ]


def trim(ids: Sequence[int], stops: frozenset[int]) -> list[int]:
    """Return the ids without the end-of-sequence token that closes them."""
    return list(ids[:-1] if ids and ids[-1] in stops else ids)


def eos_ids(folder: Path) -> frozenset[int]:
    """Return the end-of-sequence ids of config.json and generation_config.json together."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        value = read_json(folder / name).get("eos_token_id")
        found.update(value if isinstance(value, list) else () if value is None else (value,))
    return frozenset(found)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer's files beside trained weights."""
    for pattern in COPIED:
        for path in sorted(source.glob(pattern)):
            if path.is_file() and path.suffix != ".safetensors":
                shutil.copyfile(path, target / path.name)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; empty when the file is not there."""
    if not path.exists():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def _tokenizer(folder: Path) -> Path:
    return folder / "tokenizer.json"
