"""No key of a folder's files is ignored in silence."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.errors import CheckpointError
from model.keys.files import FILES
from model.keys.key import find_key
from tests.references.checkpoints import write_bert
from tests.support.key_table import documented, rendered


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT in the form of sentence-transformers."""
    write_bert(tmp_path)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write(tmp_path / "modules.json", modules)
    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    return tmp_path


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def edit(file: Path, **fields: Any) -> None:
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    write(file, content | fields)


READ = (
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "sentence_bert_config.json",
    "sentence_xlm-roberta_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)


@pytest.mark.parametrize("name", READ)
def test_a_key_that_no_table_has_is_one_warning(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the file and the key; with `strict`, it is an error instead."""
    with caplog.at_level(logging.WARNING):
        read_folder(folder, strict=True)
        assert not caplog.records
        edit(folder / name, attention_in_reverse=True)
        load_checkpoint(folder)
    (record,) = caplog.records
    assert f"attention_in_reverse ({folder / name})" in record.getMessage()
    with pytest.raises(CheckpointError, match=r"attention_in_reverse .*HEADLIGHT_STRICT=off"):
        load_checkpoint(folder, strict=True)


TABLES = {
    "sentence_bert_config.json": "sentence_*_config.json",
    "sentence_xlm-roberta_config.json": "sentence_*_config.json",
    "1_Pooling/config.json": "config.json of Pooling",
}
REFUSED = [
    (name, key, {"served": "by nothing"})
    for name in READ
    for key, row in FILES[TABLES.get(name, name)].items()
    if row.verdict == "refused"
]


@pytest.mark.parametrize(("name", "key", "value"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_refused_with_the_way_out(folder: Path, name: str, key: str, value: Any) -> None:
    """One sentence names the file, the key, its value and what to do."""
    edit(folder / name, **{key: value})
    with pytest.raises(CheckpointError) as refusal:
        read_folder(folder)
    said = str(refusal.value)
    assert str(folder / name) in said
    assert key in said
    assert "by nothing" in said
    assert ": " in said.partition("; ")[2]


def test_adapters_of_peft_are_refused(folder: Path) -> None:
    """transformers would load them in silence, too."""
    write(folder / "adapter_config.json", {})
    with pytest.raises(CheckpointError, match=r"adapter_config\.json .*merge"):
        read_folder(folder)


def test_the_document_has_the_tables() -> None:
    """docs/models.md shows the tables that the code reads."""
    assert documented() == rendered()


def test_every_field_that_transformers_reads_is_in_the_table() -> None:
    """A field of a family's config is never unknown."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    families = (
        *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "mpnet"),
        *("deberta-v2", "modernbert", "eurobert", "nomic_bert", "t5", "mt5", "umt5", "esm", "ultrabert"),
        *("roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert", "rembert"),
        *("jina_embeddings_v3", "qwen3", "qwen2", "gemma3_text", "gemma", "llama", "mistral", "lfm2"),
        *("embedding_gemma2_text", "embedding_gemma2"),
    )
    unknown = {
        (family, name)
        for family in families
        for name in CONFIG_MAPPING[family]().to_dict().keys() - PretrainedConfig().to_dict().keys()
        if find_key(name, FILES["config.json"]) is None
    }
    saved = {("", n) for n in PretrainedConfig().to_dict() if find_key(n, FILES["config.json"]) is None}
    assert unknown | saved == set()


SAVED = {
    "sentence_*_config.json": (
        *("transformer_task", "modality_config", "module_output_name", "processing_kwargs", "unpad_inputs"),
        *("max_seq_length", "do_lower_case", "query_length", "document_length", "query_expansion"),
        *("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs"),
    ),
    "config_sentence_transformers.json": (
        *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
        *("truncate_dim", "max_active_dims", "activation_fn", "keep_in_fp32_modules", "requirements"),
        *("query_prefix", "document_prefix", "query_length", "document_length", "skiplist_words"),
        *("do_query_expansion", "attend_to_expansion_tokens", "query_expansion"),
    ),
    "modules.json": ("idx", "name", "path", "type", "kwargs"),
    "config.json of Pooling": ("embedding_dimension", "word_embedding_dimension", "pooling_mode"),
    "config.json of Dense": ("in_features", "out_features", "bias", "use_residual", "module_output_name"),
    "config.json of Normalize": ("module_input_name", "module_output_name"),
    "config.json of LayerNorm": ("dimension",),
    "config.json of Dropout": ("dropout",),
    "config.json of LogitScore": ("true_token_id", "false_token_id", "module_input_name"),
    "config.json of SpladePooling": ("pooling_strategy", "activation_function", "chunk_size"),
}
"""What the modules of sentence-transformers 6.2 read."""


@pytest.mark.parametrize("file", SAVED)
def test_every_key_of_sentence_transformers_is_in_the_table(file: str) -> None:
    """Each is used, harmless or refused."""
    assert [name for name in SAVED[file] if find_key(name, FILES[file]) is None] == []


@pytest.mark.parametrize(
    "name",
    [
        "Bert",
        "DistilBert",
        "MPNet",
        "Roberta",
        "XLMRoberta",
        "Camembert",
        "T5",
        "Albert",
        "DebertaV2",
        "Esm",
        "Llama",
        "Gemma",
        "Qwen2",
    ],
)
def test_every_argument_of_a_tokenizer_is_in_the_table(name: str) -> None:
    """Whatever tokenizer_config.json may have for a class of transformers."""
    import inspect

    import transformers

    taken = inspect.signature(getattr(transformers, f"{name}Tokenizer").__init__).parameters
    given = {
        one for one in taken if one not in ("self", "args", "kwargs", "vocab", "merges") and one[0] != "_"
    }
    assert {one for one in given if find_key(one, FILES["tokenizer_config.json"]) is None} == set()
