"""The files of a model folder, with a table of keys for each; finds unknown keys and unsupported values."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from model.errors import CheckpointError
from model.files import present, read_json
from model.keys.config import CONFIG
from model.keys.key import Judged, Table, judge_keys
from model.keys.sentences import ARTIFACT, GENERAL, MODEL2VEC, MODULE, MODULES, SENTENCE
from model.keys.tokenizer import SPECIAL_TOKENS, TOKENIZER, TOKENIZER_CONFIG

SENTENCE_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The file that sentence-transformers reads about a transformer: the first of these that has a key."""

FILES: dict[str, Table] = {
    "config.json": CONFIG,
    "tokenizer_config.json": TOKENIZER_CONFIG,
    "tokenizer.json": TOKENIZER,
    "special_tokens_map.json": SPECIAL_TOKENS,
    "sentence_*_config.json": SENTENCE,
    "config_sentence_transformers.json": GENERAL,
    "modules.json": MODULES,
    **{f"config.json of {kind}": table for kind, table in MODULE.items() if table},
    "config.json of model2vec": MODEL2VEC,
    "artifact.metadata": ARTIFACT,
}
"""All tables, by the names of their files in docs/models.md."""

_TOKENIZER_ARGUMENTS = ("processor_kwargs", "tokenizer_args")
ADAPTERS = "adapter_config.json"

HYBRID = ("sparse_linear.safetensors", "colbert_linear.safetensors")
"""The layers of bge-m3 above its encoder: for weights of tokens, and for late interaction."""

OTHER_GRAPHS = tuple(
    f"model_{what}.onnx"
    for what in (
        *("optimized", "O1", "O2", "O3", "fp16"),
        *("uint8", "quint8_avx2"),
        *("quantized", "int8", "qint8_avx512_vnni", "qint8_avx512", "qint8_arm64"),
    )
)
"""Names of graphs by exporters for Qdrant, transformers.js and sentence-transformers, the most exact first.

Unsigned weights are exact on every processor; signed 8-bit ones are not on x86 without VNNI.
"""

LOADING = (
    *("revision", "token", "cache_dir", "local_files_only", "trust_remote_code", "subfolder", "use_fast"),
    *("attn_implementation", "torch_dtype", "dtype", "device_map", "low_cpu_mem_usage", "use_safetensors"),
    *("add_pooling_layer", "variant", "weights_only", "use_auth_token", "force_download", "tokenizer_class"),
    *("provider", "file_name", "export", "return_unused_kwargs"),
)
"""Arguments for loading, in sentence_*_config.json, that change no result."""


def find_sentence_file(transformer: Path) -> Path:
    """Find the file that sentence-transformers reads about a transformer; it may be missing."""
    files = [transformer / name for name in SENTENCE_FILES]
    return next((file for file in files if present(file) and read_json(file)), files[0])


def check_keys(
    folder: Path,
    transformer: Path,
    modules: Sequence[tuple[str, Path]],
    *,
    config: bool,
    queries: Path | None = None,
) -> list[str]:
    """Return the keys of a folder's files that no table lists, each with its file.

    `modules` are the kinds and folders of its modules; config.json is left out unless `config`. `queries` is
    the folder of a tokenizer for queries alone. Raises CheckpointError for a value that changes results and
    is not supported.
    """
    if present(transformer / ADAPTERS):
        raise CheckpointError(
            f"{transformer / ADAPTERS} describes adapters of peft, which are not read: merge them into the "
            "weights (`merge_and_unload`), save the model again, and remove the file."
        )
    unknown = []
    files = list(judge_files(folder, transformer, modules, config=config))
    if queries is not None:
        tables = ("tokenizer_config.json", TOKENIZER_CONFIG), ("special_tokens_map.json", SPECIAL_TOKENS)
        files += [(queries / name, _judge(queries / name, table)) for name, table in tables]
    for file, keys in files:
        for key in keys:
            if key.verdict == "refused":
                raise CheckpointError(f"{file}: {key.name} {key.told}.")
        unknown += [f"{key.name} ({file})" for key in keys if key.verdict == "unknown"]
    return unknown


def judge_files(
    folder: Path, transformer: Path, modules: Sequence[tuple[str, Path]], *, config: bool
) -> Iterator[tuple[Path, list[Judged]]]:
    """Yield each of a folder's files with how its keys are treated; the arguments are as in `check_keys`."""
    for file, table in _files(folder, transformer, modules, config=config):
        yield file, _judge(file, table)


def _files(
    folder: Path, transformer: Path, modules: Sequence[tuple[str, Path]], *, config: bool
) -> Iterator[tuple[Path, Table]]:
    if modules and modules[0][0] == "StaticEmbedding":
        yield from _static_files(folder, modules)
        return
    if config:
        yield transformer / "config.json", CONFIG
    yield transformer / "tokenizer_config.json", TOKENIZER_CONFIG
    yield transformer / "special_tokens_map.json", SPECIAL_TOKENS
    if modules:
        yield folder / "modules.json", MODULES
        yield folder / "config_sentence_transformers.json", GENERAL
        yield find_sentence_file(transformer), SENTENCE
        yield from ((path / "config.json", MODULE[kind]) for kind, path in modules if MODULE[kind])
    else:
        yield folder / "artifact.metadata", ARTIFACT


def _static_files(folder: Path, modules: Sequence[tuple[str, Path]]) -> Iterator[tuple[Path, Table]]:
    """Yield the files of a table of token vectors; its tokenizer is read from tokenizer.json alone."""
    (_, table), *others = modules
    yield table / "config.json", MODEL2VEC
    if present(folder / "modules.json"):
        yield folder / "modules.json", MODULES
        yield folder / "config_sentence_transformers.json", GENERAL
        yield from ((path / "config.json", MODULE[kind]) for kind, path in others if MODULE[kind])


def _judge(file: Path, table: Table) -> list[Judged]:
    if file.name == "modules.json":
        entries = read_json(file, kind=list)
        return list(dict.fromkeys(key for entry in entries for key in judge_keys(entry, table)))
    content = read_json(file, optional=True)
    keys = judge_keys(content, table)
    for name in _TOKENIZER_ARGUMENTS if table is SENTENCE else ():
        given = {key: value for key, value in (content.get(name) or {}).items() if key not in LOADING}
        keys += [key._replace(name=f"{name}.{key.name}") for key in judge_keys(given, TOKENIZER_CONFIG)]
    return keys
