"""The keys of a tokenizer's files."""

from model.keys.key import Table, harmless, refused, used

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")

SPECIAL_TOKENS: Table = {
    **used(
        "tokens that are found in texts before all else, if tokenizer_config.json has no "
        "`added_tokens_decoder`",
        *_ROLES, *_LISTS, "*_token",
    ),
}  # fmt: skip

TOKENIZER_CONFIG: Table = {
    **used("the choice of the tokenizer", "tokenizer_class", "auto_map"),
    **used("the longest text", "model_max_length", "max_len"),
    **used("the side at which texts are truncated, unless a request names one", "truncation_side"),
    **used(
        "tokens that are found in texts before all else",
        *_ROLES, *_LISTS, "added_tokens_decoder", "model_specific_special_tokens", "*_token",
    ),
    **used("lower-casing, accents and ideographs of WordPiece, also beside a tokenizer.json",
        "do_lower_case", "strip_accents", "tokenize_chinese_chars",
    ),
    **used("a space before the text, also beside a tokenizer.json", "add_prefix_space", "trim_offsets"),
    **used("a space after each special token in the text, of LlamaTokenizer", "legacy"),
    **used(
        "normalization of SentencePiece; beside a tokenizer.json it must say the same",
        "keep_accents", "split_by_punct",
    ),
    **used("whether the texts of a pair have segments", "model_input_names"),
    **used("the template for pairs, only for rerankers that read messages", "chat_template"),
    **used("the tokens for gaps of T5, without a tokenizer.json", "extra_ids"),
    **used("the rules for tweets of BertweetTokenizer, refused if true", "normalization"),
    **used("refused without a tokenizer.json, and otherwise unused, as in transformers",
        "do_basic_tokenize", "never_split", "add_bos_token", "add_eos_token",
    ),
    **refused(
        "special tokens in a text are always one token each",
        "set it to false, or take these tokens out of the tokenizer",
        "split_special_tokens", served=(None, False),
    ),
    **harmless(
        "texts are not padded", "padding_side", "pad_token_type_id", "pad_to_multiple_of", "padding",
        "pad_to_max_length",
    ),
    **harmless(
        "only for calls that headlight does not make",
        *("max_length", "stride", "truncation", "truncation_strategy", "return_*", "use_fast", "verbose"),
        *("is_split_into_words", "device_map", "from_slow", "trust_remote_code", "fix_mistral_regex"),
    ),
    **harmless(
        "only for decoding ids, where the tokenizer's decoder sets the spaces",
        "clean_up_tokenization_spaces*", "spaces_between_special_tokens", "wordpieces_prefix", "errors",
    ),
    **harmless(
        "only for chats", "response_template", "response_schema", "chat_control_tokens",
        "use_default_system_prompt",
    ),
    **harmless(
        "only for tokenizer classes that are refused",
        *("do_word_tokenize", "do_subword_tokenize", "word_tokenizer_type", "subword_tokenizer_type"),
        *("mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs", "do_convert_rare_words"),
    ),
    **harmless(
        "already in the files of the vocabulary",
        *("sp_model_kwargs", "vocab_type", "remove_space", "unk_id", "clean_text", "vocab_size"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id"),
        "mask_token_id",
    ),
    **harmless(
        "names and notes",
        *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file"),
        *("backend", "is_local", "local_files_only", "processor_class", "transformers_version", "model_id"),
        *("init_inputs", "_commit_hash", "files_loaded", "full_tokenizer_file", "added_tokens_file"),
        "tokenizer_config_file",
    ),
}  # fmt: skip

TOKENIZER: Table = {
    **used(
        "the tokenizer, except for what tokenizer_config.json overrides; another key is refused",
        *("model", "normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "version"),
    ),
    **used(
        "the side at which texts are truncated (`direction`), if tokenizer_config.json names none; the "
        "length is a setting of the program that saved it",
        "truncation",
    ),
    **harmless("texts are not padded", "padding"),
}
