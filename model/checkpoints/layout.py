"""Reads the layout of a checkpoint folder, from Hugging Face or from sentence-transformers.

sentence-transformers adds `modules.json`, a list of modules and their folders, in one of two forms. Releases
before 5.4 write dotted types such as `sentence_transformers.models.Pooling` and booleans `pooling_mode_*`;
later releases write other dotted types, and `pooling_mode` as a word or a list. The last part of the type is
the same in both.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from model.checkpoints.cross_encoder import LogitScore, read_logit_score
from model.checkpoints.dense import read_splade
from model.checkpoints.hybrid import HYBRID_ROLE, is_hybrid
from model.checkpoints.late_interaction import (
    check_no_roles,
    read_interaction,
    read_multi_vector_roles,
    read_pylate_roles,
    read_stanford_roles,
)
from model.checkpoints.sentence_config import SentenceConfig, read_sentence_config
from model.choices import Interaction
from model.contract import SIMILARITIES, PoolingMode, Role, Similarity
from model.errors import CheckpointError
from model.fields import switch_of
from model.files import present, read_json, shown
from model.heads.sparse import Splade
from model.keys.files import HYBRID, find_sentence_file
from model.modules.listing import AUTOENCODER, MASK, STATIC, read_modules
from model.tokenization.roles import RoleRules

# sentence-transformers concatenates the pooled vectors in this order.
_MODES_BEFORE_5_4: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
MODES: dict[str, PoolingMode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""The pooling modes, by the names that folders have for them since release 5.4."""
_MOST_PROMPTS = 1000
_LONGEST_PROMPT = 10_000
"""Characters of a prompt, which is tokenized with every text that it is put before."""
_BARE = ("Normalize", "FlexibleQuantizer")
"""The kinds of steps that have no weights."""
_MODELS = ("SentenceTransformer", "SparseEncoder", "CrossEncoder", "ColBERT", "MultiVectorEncoder")
_NEXT_WORD = "text-generation"
_GENERAL = "config_sentence_transformers.json"


@dataclass(frozen=True)
class Layout:
    """The folders of a model's parts, and how it makes sentence vectors.

    `transformer` holds config.json, the weights and the tokenizer, and `sentence` its settings for texts.
    `steps` are the kinds and folders of the modules after the pooling, except a last Normalize, for which
    `normalize` is set; the first `truncate_dim` components of the result are kept. `similarity` is the
    function that compares sentence vectors. `splade` says how predicted words are pooled, None without such
    a module; `autoencoder` is the folder of the module that makes sparse vectors from sentence vectors; both
    keep `most` components. `logit_score` names the tokens whose logits score a pair, None in other models.
    `roles` are the rules of late interaction, and `token_dense` the folders of the linear layers that make
    its token vectors. `modules` are the kinds and folders of all modules. A `hybrid` model has the layers of
    bge-m3 beside its transformer. A `static` one has a table of token vectors instead of a transformer.
    `queries` is the folder with the weights of words in queries, which then need no transformer;
    `plain_queries` says that texts without a role are such queries. A `multi_vector` model is one of late
    interaction saved by sentence-transformers. `interaction` says how late interaction makes scores.
    """

    transformer: Path
    sentence: SentenceConfig
    pooling: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True
    steps: tuple[tuple[str, Path], ...] = ()
    normalize: bool = False
    truncate_dim: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: Similarity = "cosine"
    splade: Splade | None = None
    autoencoder: Path | None = None
    most: int | None = None
    logit_score: LogitScore | None = None
    roles: Mapping[Role, RoleRules] = field(default_factory=dict)
    token_dense: tuple[Path, ...] = ()
    modules: tuple[tuple[str, Path], ...] = ()
    hybrid: bool = False
    static: bool = False
    multi_vector: bool = False
    interaction: Interaction = field(default_factory=Interaction)
    queries: Path | None = None
    plain_queries: bool = False

    @property
    def weighted(self) -> tuple[Path, ...]:
        """The folders of modules after the transformer that have weights."""
        steps = (subfolder for kind, subfolder in self.steps if kind not in _BARE)
        return (*steps, *self.token_dense, *([self.autoencoder] if self.autoencoder else ()))


def read_layout(folder: Path) -> Layout:
    """Read the layout of a checkpoint folder; raises CheckpointError if it is not one."""
    layout = _read_layout(folder)
    if not is_hybrid(layout.transformer):
        return layout
    if layout.roles or layout.splade or layout.autoencoder or layout.logit_score:
        raise CheckpointError(
            f"{folder} has the layers of bge-m3 ({', '.join(HYBRID)}) but is configured for late "
            "interaction, sparse vectors or scores: remove these files, or use files from the same model."
        )
    roles: Mapping[Role, RoleRules] = dict.fromkeys(get_args(Role), HYBRID_ROLE)
    if layout.modules:
        return replace(layout, roles=roles, hybrid=True)
    return replace(layout, roles=roles, hybrid=True, pooling=("cls",), normalize=True)  # as FlagEmbedding


def _read_layout(folder: Path) -> Layout:
    modules_file = folder / "modules.json"
    if not present(modules_file):
        if is_model2vec(folder):
            return Layout(folder, SentenceConfig(None), modules=((STATIC, folder),), static=True)
        if present(folder / _GENERAL):
            raise CheckpointError(
                f"{folder} has a {_GENERAL} but no modules.json, which says how vectors are made: download "
                f"the folder again, or remove {_GENERAL} to serve its transformer alone."
            )
        return Layout(
            folder,
            read_sentence_config(folder, plain=True),
            pooling=_plain_pooling(folder),
            roles=read_stanford_roles(folder),
        )
    found = read_modules(folder, modules_file)
    modules = found.listed
    paths = dict(modules)
    (first, transformer), *_ = modules
    sentence = SentenceConfig(None) if first == STATIC else read_sentence_config(transformer)
    pooling, include_prompt = _pooling(paths.get("Pooling"))
    general_file = folder / _GENERAL
    general = read_json(general_file, optional=True)
    _check_kind(general_file, general, sentence.task, paths)
    logit_score = _logit_score(transformer, general, sentence.task, paths.get("LogitScore"))
    prompts, default_prompt_name = _prompts(general_file, general)
    multi = paths.get(MASK)
    if (general.get("model_type") == "MultiVectorEncoder") != (multi is not None):
        having = "with" if multi else "without"
        raise CheckpointError(
            f"{general_file}: model_type is {shown(general.get('model_type'))}, {having} the module {MASK}; "
            "the model_type MultiVectorEncoder and this module belong together: use files from the same "
            "model."
        )
    interaction, most = Interaction(), _count(general_file, general, "max_active_dims")
    if multi is None:
        check_no_roles(find_sentence_file(transformer))
        roles = read_pylate_roles(folder, transformer)
    else:
        sentence_file = find_sentence_file(transformer)
        roles = read_multi_vector_roles(general_file, transformer, general, sentence_file, paths)
        interaction = read_interaction(general_file, general, roles)
    if multi is not None and (level := _level(paths["Normalize"])) != "token_embeddings":
        raise CheckpointError(
            f"{paths['Normalize'] / 'config.json'}: module_input_name is {level}; in a MultiVectorEncoder it "
            "must be token_embeddings: save the model again with sentence-transformers."
        )
    steps, normalize = _after(modules_file, modules, tokens=bool(roles))
    if (steps or normalize) and not ("Pooling" in paths or roles or first == STATIC):
        raise CheckpointError(
            f"{modules_file} lists modules for sentence vectors but no Pooling, and {general_file} has no "
            "settings for late interaction: one of these files is not the model's own; download both again."
        )
    return Layout(
        transformer,
        sentence,
        pooling=pooling,
        include_prompt=include_prompt,
        steps=() if roles else tuple(steps),
        normalize=normalize,
        truncate_dim=_count(general_file, general, "truncate_dim"),
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        similarity="cosine" if roles else _similarity(general_file, general),  # PyLate says MaxSim
        splade=_splade(paths.get("SpladePooling"), most),
        autoencoder=paths.get(AUTOENCODER),
        most=most,
        logit_score=logit_score,
        roles=roles,
        token_dense=tuple(path for _, path in steps) if roles else (),
        modules=modules,
        static=first == STATIC,
        multi_vector=multi is not None,
        interaction=interaction,
        queries=found.queries,
        plain_queries=found.plain_queries,
    )


def is_model2vec(folder: Path) -> bool:
    """Return whether the config.json of a folder is model2vec's; raises CheckpointError."""
    return bool(read_json(folder / "config.json", optional=True).get("model_type") == "model2vec")


def _check_kind(file: Path, general: Mapping[str, Any], task: str, kinds: Container[str]) -> None:
    """Raise CheckpointError if the kind of a model does not fit its modules."""
    kind = general.get("model_type")
    if kind not in (None, *_MODELS):
        raise CheckpointError(f"{file}: model_type is {shown(kind)}; it must be one of {', '.join(_MODELS)}.")
    features = AUTOENCODER in kinds and task != "fill-mask"
    if not (features or "SpladePooling" in kinds) and (kind == "SparseEncoder" or task == "fill-mask"):
        lacks = (
            "no SpladePooling" if task == "fill-mask" else "neither a SpladePooling nor a SparseAutoEncoder"
        )
        raise CheckpointError(
            f"{file} and its transformer say that the model has sparse vectors (model_type {shown(kind)}, "
            f"transformer_task {task}), but modules.json has {lacks}: use files from the same model."
        )


def _logit_score(
    transformer: Path, general: Mapping[str, Any], task: str, folder: Path | None
) -> LogitScore | None:
    """Read the module that makes a score from logits, None without one; raises CheckpointError."""
    kind = general.get("model_type")
    if (folder is not None) != (task == _NEXT_WORD) or (folder is not None and kind != "CrossEncoder"):
        raise CheckpointError(
            f"{find_sentence_file(transformer)}: transformer_task is {task} and model_type {shown(kind)}, "
            f"{'without' if folder is None else 'with'} the module LogitScore; the model_type CrossEncoder, "
            f"the transformer_task {_NEXT_WORD} and the module LogitScore are served only together: use "
            "files from the same model."
        )
    return None if folder is None else read_logit_score(folder)


def _after(
    file: Path, modules: Sequence[tuple[str, Path]], *, tokens: bool
) -> tuple[list[tuple[str, Path]], bool]:
    """Return the modules that change pooled vectors, without a last Normalize, and whether there is one.

    With `tokens`, those that change vectors of tokens, which always get unit length. Raises CheckpointError.
    """
    kinds = [kind for kind, _ in modules]
    pooled = kinds.index("Pooling") if "Pooling" in kinds else 0
    steps = []
    for number, (kind, subfolder) in enumerate(modules):
        if kind == "Normalize":
            level = _level(subfolder)
            if level != "sentence_embedding" and number < pooled:
                raise CheckpointError(
                    f"{subfolder / 'config.json'}: module_input_name is {level}, and {file} lists this "
                    "Normalize before the Pooling: sentence-transformers then pools token vectors of unit "
                    "length, but headlight pools them as they are; use a model that was trained without "
                    "this Normalize."
                )
            if not tokens and number > pooled and level == "sentence_embedding":
                steps.append((kind, subfolder))
        elif kind in ("LayerNorm", "FlexibleQuantizer", AUTOENCODER) and tokens:
            raise CheckpointError(
                f"{file} lists a {kind}, which late-interaction models cannot have: remove it."
            )
        elif kind in ("Dense", "LayerNorm", "FlexibleQuantizer"):
            steps.append((kind, subfolder))
    normalize = bool(steps) and steps[-1][0] == "Normalize"
    return steps[:-1] if normalize else steps, normalize


def _level(folder: Path) -> str:
    """Return what a Normalize scales: sentence_embedding or token_embeddings; raises CheckpointError."""
    file = folder / "config.json"
    config = read_json(file, optional=True)
    level = config.get("module_input_name", "sentence_embedding")
    output = config.get("module_output_name")
    if level not in ("sentence_embedding", "token_embeddings") or output not in (None, level):
        raise CheckpointError(
            f"{file}: module_input_name is {shown(level)} and module_output_name {shown(output)}; a "
            "Normalize must read and write the same vectors, sentence_embedding or token_embeddings: set "
            "both names to one of these, or use another model."
        )
    return str(level)


def _count(file: Path, config: Mapping[str, Any], name: str) -> int | None:
    """Read a number of at least 1, None if there is none; raises CheckpointError."""
    value = config.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(
            f"{file}: {name} is {shown(value)}; it must be a whole number of at least 1, or null."
        )
    return value


def _splade(folder: Path | None, most: int | None) -> Splade | None:
    """Read how a sparse encoder pools words, of which it keeps `most`; None without such a module."""
    return None if folder is None else replace(read_splade(folder), most=most)


def _pooling(folder: Path | None) -> tuple[tuple[PoolingMode, ...], bool]:
    if folder is None:
        return ("mean",), True
    file = folder / "config.json"
    config = read_json(file)
    if not config:
        raise CheckpointError(f"{file} is empty, and does not say how vectors are pooled: download it again.")
    include_prompt = switch_of(file, config, "include_prompt", default=True)
    named = config.get("pooling_mode")
    if named is None:
        on = [mode for key, mode in _MODES_BEFORE_5_4.items() if switch_of(file, config, key, default=False)]
        return tuple(on) or ("mean",), include_prompt
    names = named if isinstance(named, list) else [named]
    known = all(isinstance(name, str) and name in MODES for name in names)
    if not known or not names or len(set(names)) < len(names):
        raise CheckpointError(
            f"{file}: pooling_mode is {shown(named)}; it must be made of {list(MODES)}, each at most once."
        )
    return tuple(MODES[name] for name in names), include_prompt


def _plain_pooling(folder: Path) -> tuple[PoolingMode, ...]:
    """Return the pooling of a folder without modules, as sentence-transformers 6 chooses it.

    In a decoder that continues texts, only the last token attends to all others.
    """
    config = read_json(folder / "config.json", optional=True)
    listed = config.get("architectures")
    continues = isinstance(listed, list) and bool(listed) and str(listed[0]).endswith("ForCausalLM")
    return ("last",) if continues and config.get("is_causal", True) else ("mean",)


def _prompts(file: Path, general: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    """Read the named prompts of a model, and the name of the default one."""
    prompts, default = general.get("prompts"), general.get("default_prompt_name")
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, dict):
        raise CheckpointError(f"{file}: prompts is {shown(prompts)}; it must map names to texts.")
    if len(prompts) > _MOST_PROMPTS:
        raise CheckpointError(
            f"{file} has {len(prompts)} prompts; the limit is {_MOST_PROMPTS}: remove the prompts that you "
            "do not need."
        )
    prompts = {name: "" if prompt is None else prompt for name, prompt in prompts.items()}
    for name, prompt in prompts.items():
        if not isinstance(prompt, str) or not (_encodable(name) and _encodable(prompt)):
            raise CheckpointError(
                f"{file}: the prompt {shown(name)} is {shown(prompt)}; it must be valid Unicode text."
            )
        if len(prompt) > _LONGEST_PROMPT:
            raise CheckpointError(
                f"{file}: the prompt {shown(name)} has {len(prompt)} characters; the limit is "
                f"{_LONGEST_PROMPT}: shorten it."
            )
    if default is not None and (not isinstance(default, str) or default not in prompts):
        names = ", ".join(map(shown, list(prompts)[:10])) or "none"
        raise CheckpointError(
            f"{file}: default_prompt_name is {shown(default)}; it must be one of the prompts ({names}) or "
            "null."
        )
    return prompts, default


def _similarity(file: Path, general: Mapping[str, Any]) -> Similarity:
    """Read the function that compares sentence vectors; releases before 3.0 wrote none, later ones null."""
    named = general.get("similarity_fn_name")
    if named is None:
        return "cosine"
    for known in SIMILARITIES:
        if named == known:
            return known
    raise CheckpointError(
        f"{file}: similarity_fn_name is {shown(named)}; it must be one of {list(SIMILARITIES)} or null."
    )


def _encodable(text: str) -> bool:
    """Return whether a text can be encoded: JSON can hold half a surrogate pair, tokenizers reject it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
