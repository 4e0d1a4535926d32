"""What a folder says of its tokenizer counts beside a tokenizer.json, too: ids are those of AutoTokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from model.errors import CheckpointError
from model.tokenization.tokenizer import TextTokenizer
from tests.support.folder_tokenizers import build_tokenizer, train_byte_pairs
from tests.support.folder_tokenizers import find as find_tokenizer

TEXTS = (
    "", " ", "\n\t", "a\u0301b", "[SEP] a [MASK].", "a <mask> b</s>", "<s><pad>x", "it's", "don't  you",
    "x wordword Word a word", "Crème brûlée in Ünder", "中文字 text", "日本語", "ﬁ Ⅷ", "straße",
    "naïve\r\ncafé", "İstanbul", "x" * 300, "🙂", "a\u00a0b", "[unused5] b",
)  # fmt: skip
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<mask>"]
LETTERS = sorted(
    {letter for text in TEXTS for form in (text, text.lower()) for letter in form if letter > " "}
)
WORDS = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "creme", "e", "##e", "u", "##u", "word"]
WORDS = list(dict.fromkeys(WORDS))


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def find(folder: Path, model_type: str) -> TextTokenizer:
    """The tokenizer of a folder with a tokenizer.json."""
    found = build_tokenizer(folder, model_type)
    assert found is not None
    assert found[0] == folder / "tokenizer.json"
    return TextTokenizer.limited(found[1], found[0], max_length=512)


def check(folder: Path, model_type: str) -> None:
    """Ids of texts and pairs are those of AutoTokenizer."""
    write(folder, "config.json", {"model_type": model_type})
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = find(folder, model_type)
    assert [one.token_ids for one in ours.encode(TEXTS)] == theirs(list(TEXTS))["input_ids"]
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    assert [one.token_ids for one in ours.encode(pairs)] == theirs(pairs)["input_ids"]


def token(content: str, **flags: bool) -> dict[str, Any]:
    kept = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word", "special"), False)
    return {"content": content, **kept, **flags}


WORD_PIECES: list[dict[str, Any]] = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
    {"cls_token": "[MASK]", "sep_token": "word"},
    {"unk_token": "[PAD]"},
    {"bos_token": "word"},
    {"eos_token": {"__type": "AddedToken", **token("word", lstrip=True)}},
    {"extra_special_tokens": ["word"]},
    {"extra_special_tokens": {}},
    {"extra_special_tokens": {"boundary_token": "word"}},
    {"additional_special_tokens": ["word", "[PAD]"]},
    {"model_specific_special_tokens": {"image_token": "word"}},
    {"image_token": "word"},
    {"added_tokens_decoder": {"last": token("word", special=True), "2": token("[CLS]")}},
    {"added_tokens_decoder": {"last": token("word", lstrip=True, normalized=True)}},
    {"added_tokens_decoder": {"last": token("word", single_word=True)}},
    {"padding_side": "left", "truncation": True, "max_length": 7, "stride": 2},
    {"do_basic_tokenize": False, "never_split": ["a"], "wordpieces_prefix": "@@", "clean_text": False},
    {"add_bos_token": True, "add_eos_token": True},
    {"clean_up_tokenization_spaces": True, "add_prefix_space": True, "trim_offsets": False},
]


@pytest.mark.in_turns
@pytest.mark.parametrize("settings", WORD_PIECES, ids=str)
@pytest.mark.parametrize("name", ["BertTokenizer", "DistilBertTokenizerFast", "TokenizersBackend", None])
@pytest.mark.parametrize("listed", [False, True], ids=["", "special_tokens_map"])
def test_settings_of_word_pieces(
    name: str | None, settings: dict[str, Any], listed: bool, tmp_path: Path
) -> None:
    """Each key with a value other than the one that tokenizer.json was saved with."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    saved = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=bool(settings))
    saved.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    special = {
        key: value for key, value in settings.items() if "token" in key and isinstance(value, str | list)
    }
    if listed:
        write(tmp_path, "special_tokens_map.json", special)
        settings = {key: value for key, value in settings.items() if key not in special}
    written = json.dumps(settings | ({} if name is None else {"tokenizer_class": name}))
    written = written.replace('"last"', f'"{len(WORDS) - 1}"')
    (tmp_path / "tokenizer_config.json").write_text(written, encoding="utf-8")
    check(tmp_path, "bert")


@pytest.fixture(scope="module")
def byte_pairs() -> Tokenizer:
    """Pairs of bytes in the form of RoBERTa."""
    return train_byte_pairs(TEXTS, 400)


@pytest.mark.parametrize(
    "settings",
    [{}, {"add_prefix_space": True}, {"sep_token": "<s>"}, {"mask_token": "word"}, {"trim_offsets": False}],
    ids=str,
)
@pytest.mark.parametrize("name", ["RobertaTokenizer", "PreTrainedTokenizerFast", None])
def test_settings_of_byte_pairs(
    name: str | None, settings: dict[str, Any], byte_pairs: Tokenizer, tmp_path: Path
) -> None:
    """As those of word pieces."""
    transformers.PreTrainedTokenizerFast(tokenizer_object=byte_pairs).save_pretrained(tmp_path)
    named = {} if name is None else {"tokenizer_class": name}
    write(tmp_path, "tokenizer_config.json", settings | named)
    check(tmp_path, "roberta")


QWEN2_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    "settings", [{}, *({"add_prefix_space": value} for value in (None, True, False))], ids=str
)
@pytest.mark.parametrize("saved", ["bytes", "bytes and a space", "words", "whole words"])
@pytest.mark.parametrize(
    "name", ["GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2Tokenizer", "PreTrainedTokenizerFast"]
)
def test_classes_of_byte_pairs_take_only_the_pairs(
    name: str, saved: str, settings: dict[str, Any], byte_pairs: Tokenizer, tmp_path: Path
) -> None:
    """Those of GPT-2 and Qwen2 cut words by rules of their own, whichever a tokenizer.json was saved with."""
    tokenizer = Tokenizer.from_str(byte_pairs.to_str())
    if saved.startswith("bytes"):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space="space" in saved)
    else:
        cut = pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.model.ignore_merges = saved == "whole words"
    around = {"special_tokens": [("<s>", 0), ("</s>", 2)]}
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", **around)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    if settings.get("add_prefix_space", "") is None and name.startswith("GPT2"):
        settings = {}  # null, with which transformers fails
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    write(tmp_path, "tokenizer_config.json", {"tokenizer_class": name, **special, **settings})
    check(tmp_path, "eurobert")


def train_fallback(special: list[str], *texts: str) -> Tokenizer:
    """Pairs of characters, which fall back to bytes, in the form of Llama and Gemma."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))  # noqa: S106
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=60,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
FALLBACKS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    *(
        (family, {"tokenizer_class": name, **legacy, **space})
        for family, name in (("llama", "LlamaTokenizerFast"), ("mistral", "LlamaTokenizer"))
        for legacy in ({}, {"legacy": True})
        for space in ({}, {"add_prefix_space": False})
    ),
    ("gemma", {"tokenizer_class": "GemmaTokenizerFast"}),
    ("gemma3_text", {}),
    ("gemma3_text", {"tokenizer_class": "PreTrainedTokenizerFast"}),
]


@pytest.mark.in_turns
@pytest.mark.parametrize("saved", ["prepended", "cut", "bytes"])
@pytest.mark.parametrize(("family", "settings"), FALLBACKS, ids=str)
def test_settings_of_pairs_that_fall_back_to_bytes(
    family: str, settings: dict[str, Any], saved: str, tmp_path: Path
) -> None:
    """Llama's class and Gemma's put their own steps around pairs, but Llama's not around those of bytes."""
    gemma = family.startswith("gemma")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] if gemma else ["<unk>", "<s>", "</s>"]
    texts = (*TEXTS, "the man beats the boy", "  two  spaces", "a <s> b</s>c", "<bos>a <eos>b")
    tokenizer = train_fallback(special, *texts)
    if saved == "prepended":
        steps = [normalizers.NFKC(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
    elif saved == "cut":
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    first, last = special[2 if gemma else 1], special[1 if gemma else 2]
    around = [(one, special.index(one)) for one in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        f"{first} $A {last}", f"{first} $A $B {last}", special_tokens=around
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "tokenizer_config.json", settings | ({} if gemma else LLAMA))
    write(tmp_path, "config.json", {"model_type": family})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = find(tmp_path, family)
    assert [one.token_ids for one in ours.encode(texts)] == theirs(list(texts))["input_ids"]


SAVED = (
    ("Albert", "do_lower_case"),
    ("Albert", "keep_accents"),
    ("Albert", "add_prefix_space"),
    ("DebertaV2", "do_lower_case"),
    ("DebertaV2", "split_by_punct"),
    ("DebertaV2", "add_prefix_space"),
    ("XLMRoberta", "add_prefix_space"),
    ("Camembert", "add_prefix_space"),
)
PIECES = ["▁", "a", "b", "c", "A", "é", "e", "'", ".", "word", "▁word", "▁a"]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize(("name", "field"), SAVED)
def test_settings_of_pieces_say_what_a_tokenizer_json_does(
    name: str, field: str, value: bool, saved: bool, tmp_path: Path
) -> None:
    """Ids are those of transformers, or the start ends with the file, the setting and the way out."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[UNK]")
    scores = [*((one, 0.0) for one in special), *((one, -1.0 - n) for n, one in enumerate(PIECES))]
    kind = getattr(transformers, f"{name}Tokenizer")
    kind(vocab=scores, **{field: saved}).save_pretrained(tmp_path)
    write(tmp_path, "tokenizer_config.json", {"tokenizer_class": f"{name}Tokenizer", field: value})
    if value != saved:
        sentence = rf"tokenizer_config\.json: {field} is (true|false), .* save the tokenizer"
        with pytest.raises(CheckpointError, match=sentence):
            find(tmp_path, "")
        return
    theirs, ours = kind.from_pretrained(tmp_path), find(tmp_path, "")
    for text in ("word", "a.b", "Aé  c", "'a'", ""):
        assert ours.encode([text])[0].token_ids == theirs(text)["input_ids"]


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("beside", [False, True], ids=["vocab.txt", "tokenizer.json"])
def test_a_class_with_rules_of_its_own_is_refused(file: str, beside: bool, tmp_path: Path) -> None:
    """Japanese words are found by MeCab: other words would have other ids, whichever file says so."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    if beside:
        transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    says = {"tokenizer_class": "BertJapaneseTokenizer"}
    config = {"model_type": "bert", **(says if file == "config.json" else {})}
    with pytest.raises(CheckpointError, match=rf"/{file}: tokenizer_class is 'BertJapaneseTokenizer'.*: use"):
        find_tokenizer(tmp_path, config, {} if file == "config.json" else says)


def test_the_class_in_config_json_goes_before_the_family(tmp_path: Path) -> None:
    """And that in tokenizer_config.json before both."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    config = {"model_type": "bert", "tokenizer_class": "MPNetTokenizer"}
    for settings, name in (({}, "MPNet"), ({"tokenizer_class": "BertTokenizerFast"}, "Bert")):
        found = find_tokenizer(tmp_path, config, settings)
        assert found is not None
        theirs = getattr(transformers, f"{name}Tokenizer").from_pretrained(tmp_path)
        assert found[1].encode("a b").ids == theirs("a b")["input_ids"]


@pytest.mark.parametrize("said", ["tokenizer_config.json", "tokenizer.json"])
def test_texts_are_truncated_at_the_side_that_the_folder_names(said: str, tmp_path: Path) -> None:
    """In tokenizer_config.json, or else where tokenizer.json was saved with one."""
    from model.checkpoints.folder import read_folder
    from tests.references.checkpoints import write_bert

    write_bert(tmp_path)
    file = tmp_path / said
    content = json.loads(file.read_text(encoding="utf-8"))
    if said == "tokenizer.json":
        content["truncation"] = {
            "direction": "Left",
            "max_length": 4,
            "strategy": "LongestFirst",
            "stride": 0,
        }
    else:
        content["truncation_side"] = "left"
    write(tmp_path, said, content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = " ".join("abcdefghij" * 20)
    (ours,) = read_folder(tmp_path).tokenizer.encode([text])
    assert ours.token_ids == theirs(text, truncation="longest_first")["input_ids"]
    assert ours.token_ids[1] != theirs("a")["input_ids"][1]


@pytest.mark.parametrize(
    ("settings", "segments"),
    [
        ({"tokenizer_class": "BertTokenizer"}, 2),
        ({"tokenizer_class": "DistilBertTokenizer"}, 1),
        ({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "attention_mask"]}, 1),
        ({"tokenizer_class": "DistilBertTokenizer", "model_input_names": ["input_ids", "token_type_ids"]}, 2),
    ],
    ids=str,
)
def test_pairs_have_segments_if_the_tokenizer_gives_them(
    settings: dict[str, Any], segments: int, tmp_path: Path
) -> None:
    """A model with two segments that is given none takes both texts for the first."""
    from model.checkpoints.folder import read_folder
    from tests.references.checkpoints import write_bert

    write_bert(tmp_path)
    write(tmp_path, "tokenizer_config.json", settings)
    columns = transformers.AutoTokenizer.from_pretrained(tmp_path)([("the man", "a boy")])
    (ours,) = read_folder(tmp_path).tokenizer.encode([("the man", "a boy")])
    assert len({*ours.segment_ids}) == segments
    given = columns.get("token_type_ids", [[0] * len(ours)])
    assert ours.segment_ids == given[0]
