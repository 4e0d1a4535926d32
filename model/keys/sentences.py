"""The keys of the files that sentence-transformers, PyLate and Stanford's ColBERT write."""

from model.keys.key import Table, harmless, refused, used

SENTENCE: Table = {
    **used("the longest text", "max_seq_length"),
    **used("lower-casing before the tokenizer", "do_lower_case"),
    **used(
        "the choice of the hidden state; other outputs and modalities than texts are refused",
        "modality_config", "module_output_name", "transformer_task",
    ),
    **used(
        "the longest text (`max_length`), and what a chat template is rendered with; others are refused, "
        "unless they change no result",
        "processing_kwargs",
    ),
    **used(
        "settings as if tokenizer_config.json had them", "tokenizer_args", "processor_kwargs",
    ),
    **used("fields as if config.json had them", "config_args", "config_kwargs"),
    **used("refused, unless they change no result", "model_args", "model_kwargs"),
    **used(
        "queries and documents of a MultiVectorEncoder; refused for other models, unless they are null",
        "query_length", "document_length", "query_expansion",
    ),
    **harmless("how the encoder is run elsewhere, with the same results", "unpad_inputs"),
}  # fmt: skip

GENERAL: Table = {
    **used("prompts", "prompts", "default_prompt_name"),
    **used(
        "the components of a vector that are kept; refused in a MultiVectorEncoder, unless it is null",
        "truncate_dim",
    ),
    **used("the most words of a sparse vector", "max_active_dims"),
    **used("the function of `/similarity`, and the score of a MultiVectorEncoder", "similarity_fn_name"),
    **used("the kind of model", "model_type"),
    **used("the function that turns logits into scores", "activation_fn"),
    **used(
        "queries and documents of late interaction",
        *("query_prefix", "document_prefix", "query_length", "document_length", "skiplist_words"),
        *("do_query_expansion", "attend_to_expansion_tokens"),
    ),
    **refused(
        "headlight runs no code from a model folder", "use a folder without such code",
        "custom_init", served=(None, False),
    ),
    **refused(
        "queries are padded only as PyLate pads them", "use PyLate's do_query_expansion", "query_expansion",
    ),
    **harmless(
        "how the encoder is run elsewhere, or with which libraries",
        "__version__", "requirements", "keep_in_fp32_modules",
    ),
}  # fmt: skip

MODULES: Table = {
    **used("the order of the modules and their folders", "type", "path"),
    **harmless("names and notes", "idx", "name"),
    **refused(
        "arguments for calling a module are not supported", "remove them, or use a model for plain texts",
        "kwargs", served=(None, [], ["quantization"]),
    ),
}  # fmt: skip


MODULE: dict[str, Table] = {
    "Transformer": {},  # its files are those of the tables above
    "StaticEmbedding": {},  # the config.json in its folder is model2vec's, if there is one
    "Pooling": {
        **used(
            "how hidden states are pooled, and whether the prompt's are",
            "pooling_mode", "pooling_mode_*", "include_prompt",
        ),
        **harmless("already in config.json", "embedding_dimension", "word_embedding_dimension"),
    },
    "Dense": {
        **used(
            "the layer",
            *("in_features", "out_features", "bias", "activation_function", "use_residual"),
            *("module_input_name", "module_output_name"),
        ),
    },
    "LayerNorm": used("the size", "dimension"),
    "Normalize": used("whose vectors have unit length", "module_input_name", "module_output_name"),
    "Dropout": harmless("only for training", "dropout"),
    "FlexibleQuantizer": {},  # it has no file
    "SpladePooling": {
        **used("how words are pooled", "pooling_strategy", "activation_function"),
        **harmless("already in config.json", "word_embedding_dimension", "embedding_dimension"),
        **harmless("how much is computed at a time", "chunk_size"),
    },
    "SparseAutoEncoder": {
        **used("the encoder, and how many dimensions are kept", "input_dim", "hidden_dim", "k", "normalize"),
        **harmless("only for training", "k_aux", "dead_threshold"),
    },
    "MultiVectorMask": used(
        "which tokens have vectors", "skiplist_words", "skiplist_tasks", "keep_only_token_ids",
    ),
    "HierarchicalTokenPooling": used(
        "how the vectors of tokens become fewer",
        *("pool_factor", "num_protected_tokens", "normalize_embeddings", "tasks"),
    ),
    "LogitScore": used("the tokens of a score", "true_token_id", "false_token_id", "module_input_name"),
}  # fmt: skip

MODEL2VEC: Table = {
    **used("the kind of model", "model_type"),
    **used("whether vectors have unit length; modules.json must say the same", "normalize"),
    **used("the longest text", "max_length"),
    **harmless("already in the weights", "hidden_dim", "embedding_dtype", "vocabulary_quantization"),
    **harmless("how the table was made", "apply_pca", "apply_zipf", "sif_coefficient", "pooling"),
    **harmless("names and notes", "architectures", "tokenizer_name", "seq_length"),
    **refused(
        "classifiers above a table are not served", "serve the folder of the StaticModel that it was trained "
        "from", "head_config",
    ),
}  # fmt: skip

ARTIFACT: Table = {
    **used(
        "queries and documents of late interaction",
        *("query_maxlen", "doc_maxlen", "query_token_id", "doc_token_id", "attend_to_mask_tokens"),
        "mask_punctuation",
    ),
    **refused(
        "only the cosine of tokens is computed", "use a model that was trained with it",
        "similarity", served=(None, "cosine"),
    ),
    **refused(
        "only ColBERT's interaction is computed", "use a model that was trained with it",
        "interaction", served=(None, "colbert"),
    ),
    **harmless("already in the weights", "dim", "model_name", "checkpoint"),
    **harmless("the words for the markers, which are read by their tokens", "query_token", "doc_token"),
    **harmless(
        "only for training and for an index",
        *("ncells", "centroid_score_threshold", "ndocs", "load_index_with_mmap", "index_*", "nbits"),
        *("kmeans_niters", "resume", "pool_factor", "clustering_mode", "protected_tokens", "bsize"),
        *("accumsteps", "lr", "maxsteps", "save_every", "warmup*", "relu", "nway", "use_ib_negatives"),
        *("reranker", "distillation_alpha", "ignore_scores", "triples", "collection", "queries"),
        *("overwrite", "root", "experiment", "name", "rank", "nranks", "amp", "gpus", "meta"),
        *("avoid_fork_if_possible", "total_visible_gpus"),
    ),
}  # fmt: skip
