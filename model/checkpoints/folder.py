"""What is the same of a model however it is run: its config, its tokenizer, and what follows the encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.checkpoints.conversion import no_tokenizer
from model.checkpoints.dense import read_dense
from model.checkpoints.layout import Layout, read_layout
from model.contract import Encoding, ModelInfo, PoolingMode
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.families import FAMILIES, graph_only
from model.files import present, read_json, reason, shown
from model.heads.dense import Dense
from model.tokenization.tokenizer import TextTokenizer

_DEFAULT_LENGTH = 512
_ODD_TEXTS = ("a", "the 字 \U00012000 \u00e9 \U0001f642 \u0001 0", "a" * 64 + "!")
"""A text as any other, one of characters that few vocabularies have, and one for careless patterns."""
_LONG = 2048


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was read, without the weights of its encoder.

    Of a model that only a graph runs, which is of none of FAMILIES, `config` tells sizes alone.
    `dense` maps pooled vectors to sentence vectors, layer after layer; most models have none.
    """

    path: Path
    model_type: str
    config: EncoderConfig
    tokenizer: TextTokenizer
    dense: tuple[Dense, ...]
    layout: Layout

    def describe(
        self,
        *,
        backend: str,
        device: str,
        dtype: str,
        provider: str | None = None,
        exposes_attention: bool = True,
    ) -> ModelInfo:
        """Describe the model and how it runs, for `/info`."""
        pooling: tuple[PoolingMode, ...] = self.layout.pooling
        pooled = self.config.hidden_size * len(pooling)
        return ModelInfo(
            family=self.model_type,
            layers=self.config.num_layers,
            heads=self.config.num_heads,
            hidden_size=self.config.hidden_size,
            max_length=self.tokenizer.max_length,
            pooling=pooling,
            normalize=self.layout.normalize,
            sentence_size=len(self.dense[-1].bias) if self.dense else pooled,
            dense=bool(self.dense),
            prompts=self.layout.prompts,
            default_prompt_name=self.layout.default_prompt_name,
            include_prompt=self.layout.include_prompt,
            backend=backend,
            device=device,
            dtype=dtype,
            provider=provider,
            exposes_attention=exposes_attention,
        )


def read_folder(path: Path, *, graph: bool = False) -> ModelFolder:
    """Read the folder of a model; raises CheckpointError, in one sentence, when it cannot be served.

    With `graph`, which runs by itself, the model may be of any family.
    """
    layout = read_layout(path)
    file = layout.transformer / "config.json"
    raw = read_json(file)
    family = FAMILIES.get(str(raw.get("model_type")))
    if family is None and not graph:
        raise CheckpointError(
            f"{file}: model_type {shown(raw.get('model_type'))} is not one of the supported families: "
            f"{', '.join(FAMILIES)}; of any other, an ONNX graph is served for embeddings, onnx/model.onnx "
            "with HEADLIGHT_BACKEND=onnx."
        )
    config = _read_config(file, graph_only.read_config if family is None else family.read_config, raw)
    limits = [n for n in (layout.max_length, config.position_limit) if n is not None]
    if not present(layout.transformer / "tokenizer.json"):
        raise CheckpointError(no_tokenizer(layout.transformer, weights=not graph))
    tokenizer = TextTokenizer.from_file(
        layout.transformer / "tokenizer.json",
        max_length=min(limits, default=_DEFAULT_LENGTH),
        lower_case=layout.lower_case,
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{path}: the tokenizer knows {tokenizer.vocab_size} tokens and the model embeds "
            f"{config.vocab_size}: they do not belong together."
        )
    dense = read_dense(layout.dense, config.hidden_size * len(layout.pooling))
    model_type = family.name if family is not None else shown(raw.get("model_type")).strip("'")
    _try_tokenizer(layout.transformer / "tokenizer.json", tokenizer, layout, config)
    return ModelFolder(path, model_type, config, tokenizer, dense, layout)


def runs_with_torch(path: Path) -> bool:
    """Say whether the encoder of a folder is of one of FAMILIES; where that cannot be told, too."""
    try:
        return read_json(read_layout(path).transformer / "config.json").get("model_type") in [*FAMILIES]
    except CheckpointError:
        return True  # which is what then says what is wrong


def _read_config(
    file: Path, read: Callable[[Mapping[str, Any]], EncoderConfig], raw: Mapping[str, Any]
) -> EncoderConfig:
    try:
        return read(raw)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{file}: the field {error} is missing.") from error


def _try_tokenizer(file: Path, tokenizer: TextTokenizer, layout: Layout, config: EncoderConfig) -> None:
    """Tokenize what is likely to show a fault, so that it shows now and not to a client."""
    try:
        encodings = [
            *tokenizer.encode([*_ODD_TEXTS, ("a", "b"), "a " * (2 * min(tokenizer.max_length, _LONG))]),
            *(e for prompt in layout.prompts.values() for e in tokenizer.encode(["a"], prompt=prompt)),
        ]
    except (KeyboardInterrupt, SystemExit, CheckpointError):
        raise
    except BaseException as error:  # the library raises bare Exception, and panics are none
        raise CheckpointError(
            f"{file} cannot tokenize a text: {reason(error)}; put the model's own file in its place."
        ) from error
    if not any(map(len, encodings)):
        raise CheckpointError(f"{file} makes no token of any text: put the model's own file in its place.")
    for encoding in encodings:
        if (problem := _fault(encoding, tokenizer.max_length, config)) is not None:
            raise CheckpointError(f"{file} {problem}: put the model's own file in its place.")


def _fault(encoding: Encoding, max_length: int, config: EncoderConfig) -> str | None:
    """Say what of a tokenized text the model cannot run."""
    if max(encoding.token_ids, default=0) >= config.vocab_size:
        largest = max(encoding.token_ids)
        return f"gives token {largest} and the model embeds {config.vocab_size}: they do not belong together"
    # A model of one segment, or of none, reads both texts of a pair as that one.
    if config.segments > 1 and max(encoding.segment_ids, default=0) >= config.segments:
        return f"gives segment {max(encoding.segment_ids)} and the model has {config.segments}"
    if len(encoding) > max_length:
        return f"cuts a text to {len(encoding)} tokens and the model reads {max_length}"
    return None
