"""The steps that classes of byte-level pairs put around the pairs of a tokenizer.json, whatever it says."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from model.fields import switch
from model.tokenization.special_tokens import Defaults

_END = "<|endoftext|>"
GPT2 = Defaults({"unk_token": _END, "bos_token": _END, "eos_token": _END}, required=())
"""The special tokens of `GPT2Tokenizer`, where a folder names no others."""
QWEN2 = Defaults({"unk_token": _END, "eos_token": _END, "pad_token": _END}, required=())
"""Those of `Qwen2Tokenizer`."""
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def dress_bytes(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    """Cut words as GPT-2 and RoBERTa do."""
    space = switch(settings, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)


def dress_qwen2(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    """Compose characters and cut words as Qwen2 does."""
    space = settings.get("add_prefix_space") is not None and switch(
        settings, "add_prefix_space", default=False
    )
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False),
        ]
    )


def reset_pairs(model: models.BPE) -> None:
    """Take off what a tokenizer.json says of its pairs besides themselves, as these classes do."""
    model.dropout = model.unk_token = None
    model.fuse_unk = model.byte_fallback = model.ignore_merges = False
