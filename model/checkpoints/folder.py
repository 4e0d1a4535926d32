"""Reads the parts of a model that all backends share: config, tokenizer, pooling and dense layers."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.checkpoints.conversion import no_tokenizer
from model.checkpoints.cross_encoder import why_not_comparable
from model.checkpoints.dense import read_autoencoder, read_dense, read_steps
from model.checkpoints.hybrid import read_hybrid, warn_of_pickles
from model.checkpoints.late_interaction import check_roles
from model.checkpoints.layout import Layout, read_layout
from model.checkpoints.peft.tasks import Adapter, find_adapters, with_adapters
from model.contract import Encoding, HeadInfo, HeadKind, ModelInfo, PoolingMode, SentenceWant
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.families import graph_only
from model.families.family import Family
from model.families.own.headlight import HEADLIGHT
from model.families.table import explain_unsupported, find_family
from model.families.tokenizers import find_tokenizer_class, has_segments
from model.fields import switch_of
from model.files import read_json, reason, shown
from model.heads.dense import Dense, First, Step, UnitLength
from model.heads.sparse import AutoEncoder, TokenWeights
from model.keys.files import HYBRID, check_keys
from model.keys.token_roles import find_mask, find_padding
from model.templates.places import parse_template
from model.templates.reading import find_template, special_tokens
from model.templates.tokenizer import TemplateTokenizer
from model.tokenization.building import find_tokenizer
from model.tokenization.roles import RoleTokenizer
from model.tokenization.tokenizer import TextTokenizer

log = logging.getLogger(__name__)

_DEFAULT_LENGTH = 512
_ODD_TEXTS = ("a", "", "the 字 \U00012000 \u00e9 \U0001f642 \u0001 0")
"""An ordinary text, an empty one, and one with characters that few vocabularies contain."""
_ORDINARY = (
    "hello world, the man and a boy in 2024",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z 0 1 2 3 4 5 6 7 8 9",
    "我们在北京学习中文 日本語のテキスト 안녕하세요",
    "привет мир γεια σου مرحبا بالعالم नमस्ते",
    "MKTAYIAKQRQISFVKSHFSRQ ACGTACGT",
)
"""Texts in many scripts, and biological sequences: every vocabulary contains parts of some of them."""
_LONG = 2048
_NAMED = 8
"""How many unknown keys a message names."""


@dataclass(frozen=True)
class ModelFolder:
    """The content of a model folder, without the weights of its encoder.

    `raw` is its config.json. For a model outside of FAMILIES, which runs only as a graph, `config` holds only
    sizes. `dense` are the steps from pooled vectors to sentence vectors; most models have none.
    """

    path: Path
    model_type: str
    raw: Mapping[str, Any]
    config: EncoderConfig
    tokenizer: TextTokenizer
    dense: tuple[Step, ...]
    layout: Layout
    token_dense: tuple[Dense, ...] = ()
    """Layers from hidden states of tokens to late-interaction vectors, if they are in files of their own."""
    token_weights: TokenWeights | None = None
    """The layer that makes sparse vectors from the hidden states of tokens, in a hybrid model."""
    mask_token: int | None = None
    """The id of the token that stands for any word, if there is one."""
    padding_token: int | None = None
    """The id of the token that texts are filled up with, if there is one."""
    no_ranking: str | None = None
    """Why texts cannot be ranked by its vectors, None if they can."""
    vector_size: int | None = None
    """The number of components of a text's vector, if its graph returns nothing else; `dense` are then the
    steps that remain, and the pooling of `layout` is empty if no file names it."""
    projection: Dense | None = None
    """The first of `dense`, if it is stored among the weights of the encoder."""
    adapters: tuple[Adapter, ...] = ()
    """The adapters in files of their own, in the order of the config's tasks."""
    autoencoder: AutoEncoder | None = None
    """The layer that makes sparse vectors from the model's own vectors of texts."""

    @property
    def head(self) -> HeadInfo | None:
        """What the model predicts if its weights have no head, None if nothing."""
        if self.autoencoder is not None:
            return HeadInfo("autoencoder", size=len(self.autoencoder.dense.bias), kept=self.autoencoder.most)
        if self.token_dense:
            size = len(self.token_dense[-1].bias)
        elif self.layout.multi_vector:
            size = self.config.hidden_size
        else:
            return None
        kind: HeadKind = "late_interaction" if self.token_weights is None else "hybrid"
        return HeadInfo(kind, size=size, interaction=self.layout.interaction)

    def _keeping(self, head: HeadInfo | None) -> HeadInfo | None:
        """Add to the description of a head how many words its sparse vectors keep."""
        splade = self.layout.splade
        return head if head is None or splade is None else replace(head, kept=splade.most)

    def check_head(self, predicts: HeadInfo | None) -> None:
        """Raise CheckpointError if what the weights predict (None: nothing) contradicts the other files."""
        if (self.token_weights or self.autoencoder) is not None and predicts is not None:
            own = "a SparseAutoEncoder" if self.autoencoder else f"the layers of bge-m3 ({', '.join(HYBRID)})"
            raise CheckpointError(
                f"{self.path} has {own}, but its weights predict {predicts.kind}: remove "
                f"{'that module' if self.autoencoder else 'these files'}, or use files from the same model."
            )
        if self.layout.splade is not None and (predicts is None or predicts.kind != "masked_words"):
            raise CheckpointError(
                f"{self.path}: the weights of the masked-language-model head, which SpladePooling needs, "
                "are missing: use a checkpoint whose architecture ends in ForMaskedLM, with all its weights."
            )

    @property
    def family(self) -> Family:
        """The family of its checkpoint; raises CheckpointError for one that runs only as a graph."""
        family = find_family(self.raw)
        if family is None:
            raise CheckpointError(f"{self.path}: {self.model_type} runs only as a graph.")
        return family

    def describe(
        self,
        *,
        backend: str,
        device: str,
        dtype: str,
        provider: str | None = None,
        exposes_attention: bool = True,
        task: str | None = None,
        head: HeadInfo | None = None,
    ) -> ModelInfo:
        """Describe the model and how it runs, for `/info`; `task` is the one it was exported for.

        `head` is what its weights predict.
        """
        pooling: tuple[PoolingMode, ...] = self.layout.pooling
        pooled = self.vector_size or self.config.hidden_size * len(pooling)
        layers = range(self.config.num_layers)
        return ModelInfo(
            family=self.model_type,
            layers=self.config.num_layers,
            heads=self.config.num_heads,
            attention_layers=self.config.attending if exposes_attention else (),
            hidden_size=self.config.hidden_size,
            max_length=self.tokenizer.max_length,
            pooling=pooling,
            normalize=self.layout.normalize,
            sentence_size=reduce(lambda size, step: step.size(size), self.dense, pooled),
            dense=bool(self.dense),
            prompts=self.layout.prompts,
            default_prompt_name=self.layout.default_prompt_name,
            include_prompt=self.layout.include_prompt,
            backend=backend,
            device=device,
            dtype=dtype,
            provider=provider,
            exposes_attention=exposes_attention,
            exposes_tokens=self.vector_size is None,
            tasks=() if task is None else (task,),
            default_task=task,
            head=self._keeping(head or self.head),
            similarity=self.layout.similarity,
            no_ranking=self.no_ranking,
            mask_token=self.mask_token,
            padding_token=self.padding_token,
            differentiable=not self.config.per_layer_size,
            head_sizes=tuple(self.config.within(self.config.layer(i)).head_size for i in layers),
            score_scale=self.config.scale if self.config.similarity == "dot_product" else 1.0,
            pairs_take_prompt=not isinstance(self.tokenizer, TemplateTokenizer)
            or self.tokenizer.pairs_take_prompt,
            nonlinear=next((step.nonlinear for step in self.dense if step.nonlinear), None),
        )


def read_folder(path: Path, *, graph: bool = False, strict: bool = False) -> ModelFolder:
    """Read the folder of a model; raises CheckpointError if it cannot be served.

    With `graph`, the model may be of any family, because its graph defines the computation. Keys of its files
    that no table lists are named in a warning, or refused if `strict`.
    """
    layout = read_layout(path)
    if layout.static:
        raise CheckpointError(
            f"{path} is a table of token vectors, which needs neither PyTorch nor a graph: serve it as it is."
        )
    file = layout.transformer / "config.json"
    raw = read_json(file)
    family = find_family(raw)
    if family is None and not graph:
        raise CheckpointError(f"{file}: {explain_unsupported(raw)}.")
    # A graph contains what its config says, and all fields of a config in our own form are read.
    account(path, layout, config=not graph and family is not HEADLIGHT, strict=strict)
    config = _read_config(file, graph_only.read_config if family is None else family.read_config, raw)
    default = None if family is None else family.default_task
    adapters = [] if family is None or graph else find_adapters(layout.transformer, raw, default)
    config = with_adapters(config, adapters, default)
    limits = [n for n in (layout.sentence.max_length, config.position_limit) if n is not None]
    model_type = family.name if family is not None else shown(raw.get("model_type")).strip("'")
    settings = layout.sentence.tokenizer_settings
    name = find_tokenizer_class(layout.transformer, raw, settings, family)
    keeps = family is not None and family.keeps_tokenizer
    found = find_tokenizer(layout.transformer, name, settings, keeps=keeps)
    if found is None:
        raise CheckpointError(no_tokenizer(layout.transformer, weights=not graph))
    source, whole = found
    kind = TextTokenizer if layout.sentence.messages is None else TemplateTokenizer
    tokenizer = kind.limited(
        whole,
        source,
        max_length=min(limits, default=_DEFAULT_LENGTH),
        lower_case=layout.sentence.lower_case,
        side=layout.sentence.truncation_side,
        segments=config.segments <= 1 or has_segments(name, settings),
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, but the model has embeddings for "
            f"only {config.vocab_size}: use the tokenizer and the weights of the same model."
        )
    dense = read_steps(layout.steps, config.hidden_size * len(layout.pooling))
    if layout.truncate_dim is not None:
        # sentence-transformers truncates last, after which vectors no longer have unit length.
        dense = (*dense, *([UnitLength()] if layout.normalize else ()), First(layout.truncate_dim))
        layout = replace(layout, normalize=False)
    size = reduce(lambda size, step: step.size(size), dense, config.hidden_size * len(layout.pooling))
    own = SentenceWant(layout.pooling, normalize=layout.normalize)
    autoencoder = read_autoencoder(layout.autoencoder, size, own, layout.most)
    token_dense, token_weights = _read_token_layers(layout, config, whole)
    if layout.roles:
        masked = family is not None and family.masks_embeddings
        check_roles(file, config, layout.roles, masked_embeddings=masked)
        for role, rules in layout.roles.items():
            tokenizer.roles[role] = RoleTokenizer(
                whole,
                rules,
                max_length=tokenizer.max_length,
                file=source,
                slow=tokenizer.slow,
                side=tokenizer.side,
            )
    if isinstance(tokenizer, TemplateTokenizer):
        _use_template(layout, tokenizer)
        if layout.default_prompt_name is not None and not tokenizer.pairs_take_prompt:
            raise CheckpointError(
                f"{path}: default_prompt_name is {shown(layout.default_prompt_name)}, but the chat template "
                "has no system message to hold a prompt: set default_prompt_name to null."
            )
    try_tokenizer(source, tokenizer, layout, config)
    no_ranking = why_not_comparable(path, raw)
    mask = find_mask(layout.transformer, whole)
    padding = find_padding(layout.transformer, whole)
    return ModelFolder(
        path,
        model_type,
        raw,
        config,
        tokenizer,
        dense,
        layout,
        token_dense,
        token_weights,
        mask,
        padding,
        no_ranking,
        adapters=tuple(adapters),
        autoencoder=autoencoder,
    )


def _read_token_layers(
    layout: Layout, config: EncoderConfig, tokenizer: Tokenizer
) -> tuple[tuple[Dense, ...], TokenWeights | None]:
    """Read the layers that make vectors and weights of tokens; raises CheckpointError."""
    if layout.hybrid:
        weights, dense = read_hybrid(layout.transformer, config.hidden_size, tokenizer)
        return (dense,), weights
    warn_of_pickles(layout.transformer)
    return read_dense(layout.token_dense, config.hidden_size, level="token_embeddings"), None


def _use_template(layout: Layout, tokenizer: TemplateTokenizer) -> None:
    """Give a tokenizer the chat template that its pairs are rendered in; raises CheckpointError."""
    sentence = layout.sentence
    file, source = find_template(layout.transformer, sentence.tokenizer_settings)
    variables = {**special_tokens(sentence.tokenizer_settings), **sentence.template}
    suffixed = switch_of(file, variables, "restore_suffix", default=True)
    variables.pop("restore_suffix", None)
    try:
        template = parse_template(source, variables, structured=sentence.messages == "structured")
        tokenizer.use(replace(template, suffixed=suffixed))
    except CheckpointError as error:
        raise CheckpointError(f"{file}: the chat template {error}.") from error


def account(path: Path, layout: Layout, *, config: bool, strict: bool) -> None:
    """Log the keys of a folder's files that no table lists, or raise CheckpointError for them if `strict`."""
    unknown = check_keys(path, layout.transformer, layout.modules, config=config, queries=layout.queries)
    if not unknown:
        return
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    named = ", ".join(name if len(name) < 200 else shown(name) for name in unknown[:_NAMED]) + more
    if strict:
        raise CheckpointError(
            f"{path} has keys that headlight does not know: {named}; remove them if they change nothing, or "
            "set HEADLIGHT_STRICT=off to ignore them."
        )
    log.warning(
        "%s has keys that headlight does not know and ignores: %s; HEADLIGHT_STRICT=on refuses them",
        path,
        named,
    )


def has_weights(path: Path) -> bool:
    """Return whether a folder has safetensors of its encoder; in a broken one, at its top level."""
    try:
        transformer = read_layout(path).transformer
    except CheckpointError:
        transformer = path
    return any(transformer.glob("model.safetensors*"))


def runs_with_torch(path: Path) -> bool:
    """Return whether a folder's encoder belongs to one of FAMILIES; also True if the folder is broken."""
    try:
        return find_family(read_json(read_layout(path).transformer / "config.json")) is not None
    except CheckpointError:
        return True  # loading it with PyTorch then reports what is wrong


def _read_config(
    file: Path, read: Callable[[Mapping[str, Any]], EncoderConfig], raw: Mapping[str, Any]
) -> EncoderConfig:
    try:
        return read(raw)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{file}: the field {error} is missing.") from error


def try_tokenizer(file: Path, tokenizer: TextTokenizer, layout: Layout, config: EncoderConfig) -> None:
    """Tokenize texts that are likely to fail, so that a fault shows at startup and not in a request."""
    try:
        encodings = [
            *tokenizer.encode(
                [*_ODD_TEXTS, ("a", "b"), "a " * tokenizer.fitting(2 * min(tokenizer.max_length, _LONG))]
            ),
            *(e for prompt in layout.prompts.values() for e in tokenizer.encode(["a"], prompt=prompt)),
        ]
    except (KeyboardInterrupt, SystemExit, CheckpointError):
        raise
    except BaseException as error:  # the library raises bare Exception, and its panics not even that
        raise CheckpointError(
            f"{file} cannot tokenize a text: {reason(error)}; replace it with the model's own file."
        ) from error
    if not any(map(len, encodings)):
        raise CheckpointError(f"{file} makes no tokens from any text: replace it with the model's own file.")
    ordinary = {
        one
        for encoding in tokenizer.encode(_ORDINARY)
        for one, special in zip(encoding.token_ids, encoding.special, strict=True)
        if not special
    }
    if len(ordinary) <= 1:
        raise CheckpointError(
            f"{file} turns everything in test texts of eight scripts into the same token: its vocabulary is "
            "missing, or was read with the wrong tokenizer class; replace it with the model's own file."
        )
    for encoding in encodings:
        if (problem := _fault(encoding, tokenizer.max_length, config)) is not None:
            raise CheckpointError(f"{file} {problem}: replace it with the model's own file.")


def _fault(encoding: Encoding, max_length: int, config: EncoderConfig) -> str | None:
    """Return why the model cannot run a tokenized text, None if it can."""
    if max(encoding.token_ids, default=0) >= config.vocab_size:
        largest = max(encoding.token_ids)
        return f"returns token id {largest}, but the model has embeddings for only {config.vocab_size} tokens"
    # A model with at most one segment uses it for both texts of a pair.
    if config.segments > 1 and max(encoding.segment_ids, default=0) >= config.segments:
        return f"returns segment {max(encoding.segment_ids)}, but the model has only {config.segments}"
    if len(encoding) > max_length:
        return f"truncates a text to {len(encoding)} tokens, but the model reads only {max_length}"
    return None
