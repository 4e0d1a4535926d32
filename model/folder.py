"""What is the same of a model however it is run: its config, its tokenizer, and what follows the encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.config import EncoderConfig
from model.dense import Dense, read_dense
from model.errors import CheckpointError
from model.families import FAMILIES
from model.families.family import Family
from model.layout import Layout, read_json, read_layout
from model.tokenizer import TextTokenizer
from model.types import ModelInfo, PoolingMode

_DEFAULT_LENGTH = 512


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was read, without the weights of its encoder.

    `dense` maps pooled vectors to sentence vectors, layer after layer; most models have none.
    """

    path: Path
    family: Family
    config: EncoderConfig
    tokenizer: TextTokenizer
    dense: tuple[Dense, ...]
    layout: Layout

    def describe(
        self, *, backend: str, device: str, dtype: str, provider: str | None = None, opens: bool = True
    ) -> ModelInfo:
        """Say what is served and how it runs."""
        pooling: tuple[PoolingMode, ...] = self.layout.pooling
        pooled = self.config.hidden_size * len(pooling)
        return ModelInfo(
            family=self.family.name,
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
            opens=opens,
        )


def read_folder(path: Path) -> ModelFolder:
    """Read the folder of a model; raises CheckpointError, in one sentence, when it cannot be served."""
    layout = read_layout(path)
    file = layout.transformer / "config.json"
    raw = read_json(file)
    family = FAMILIES.get(str(raw.get("model_type")))
    if family is None:
        raise CheckpointError(
            f"{file}: model_type {raw.get('model_type')!r} is not one of the supported families: "
            f"{', '.join(FAMILIES)}."
        )
    config = _read_config(file, family, raw)
    limits = [n for n in (layout.max_length, config.position_limit) if n is not None]
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
    return ModelFolder(path, family, config, tokenizer, dense, layout)


def _read_config(file: Path, family: Family, raw: Mapping[str, Any]) -> EncoderConfig:
    try:
        return family.read_config(raw)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{file}: the field {error} is missing.") from error
