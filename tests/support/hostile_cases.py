"""Folders of models in which every file can be read and something does not fit."""

import torch

from tests.model.checkpoints.test_layout import BEFORE, write, write_modules
from tests.support.hostile_folders import (
    QUERY,
    WEIGHTS,
    WORDS,
    Damage,
    as_dtype,
    both_names,
    config,
    edit,
    header,
    module,
    outside,
    put,
    shards,
    tensors,
    text,
    two_of_each,
)
from tests.support.hostile_tokenizers import TOKENIZERS

ST, POOLING, DENSE = "config_sentence_transformers.json", "1_Pooling/config.json", "2_Dense/config.json"
LENGTH = "it must be a whole number of tokens, at least 1"

CASES: dict[str, tuple[Damage, str]] = {
    # config.json
    "layers without end": (
        config(num_hidden_layers=100_000),
        "num_hidden_layers is 100000; it must be at most",
    ),
    "layers beyond 64 bits": (config(num_hidden_layers=10**30), "num_hidden_layers is 1000"),
    "many layers": (config(num_hidden_layers=1000), "missing: encoder.layer."),
    "layers that are true": (config(num_hidden_layers=True), "num_hidden_layers is True; it must be a whole"),
    "a negative size": (config(hidden_size=-32), "hidden_size is -32; it must be at least 1"),
    "a size of half": (config(hidden_size=32.5), "hidden_size is 32.5; it must be a whole number"),
    "an infinite size": (config(hidden_size=float("inf")), "hidden_size is inf; it must be a whole number"),
    "a size that is NaN": (config(vocab_size=float("nan")), "vocab_size is nan; it must be a whole number"),
    "words beyond memory": (
        config(vocab_size=2**24),
        "misshapen: embeddings.word_embeddings.weight (92, 32)",
    ),
    "words beyond 64 bits": (
        config(vocab_size=2**62),
        "vocab_size is 4611686018427387904; it must be at most",
    ),
    "positions beyond": (config(max_position_embeddings=2**24), "misshapen: embeddings.position_embeddings"),
    "an inner size beyond": (config(intermediate_size=2**20), "misshapen: encoder.layer.0.intermediate"),
    "no heads": (config(num_attention_heads=0), "num_attention_heads is 0; it must be at least 1"),
    "segments that are a list": (config(type_vocab_size=[2]), "type_vocab_size is [2]; it must be a whole"),
    "epsilon NaN": (config(layer_norm_eps=float("nan")), "layer_norm_eps is nan; it must be a number from 0"),
    "epsilon 1e999": (
        config(layer_norm_eps=float("inf")),
        "layer_norm_eps is inf; it must be a number from 0",
    ),
    "epsilon below 0": (
        config(layer_norm_eps=-1e-12),
        "layer_norm_eps is -1e-12; it must be a number from 0",
    ),
    "epsilon of a text": (config(layer_norm_eps="1e-12"), "layer_norm_eps is '1e-12'; it must be a number"),
    "an activation of objects": (config(hidden_act={"gelu": 1}), "hidden_act \"{'gelu': 1}\" is not one of"),
    "a type of a megabyte": (config(model_type="x" * 10**6), "is not one of the supported families: bert"),
    # modules.json and what it names
    "a module above": (
        module(1, path="../1_Pooling"),
        "the path '../1_Pooling' of a module is not a folder inside",
    ),
    "a module deep above": (module(1, path="1_Pooling/../../x"), "of a module is not a folder inside"),
    "a module at the root": (module(1, path="/etc"), "the path '/etc' of a module is not a folder inside"),
    "a module elsewhere by a link": (outside, "the path '1_Pooling' of a module is not a folder inside"),
    "a module with a zero in its name": (module(1, path="1_Pool\0ing"), "of a module is not a folder inside"),
    "a module with a long name": (module(1, path="x" * 5000), "of a module is not a folder inside"),
    "a module of a number": (module(1, path=7), "the type and the path of every module must be strings"),
    "a module of no type": (module(1, type=None), "the type and the path of every module must be strings"),
    "a module that is code": (module(1, type="os.system"), "modules.json lists Transformer, system, Dense"),
    "a module that is a number": (
        lambda f: write(f, "modules.json", [1]),
        "every module needs a type and a path",
    ),
    "modules without end": (
        lambda f: write_modules(f, *[f"{BEFORE}.{k}" for k in ("Transformer", *["Dense"] * 70)]),
        "and 61 more: headlight serves a Transformer",
    ),
    # prompts, lengths, pooling
    "an unknown default prompt": (
        edit(ST, default_prompt_name="other"),
        "default_prompt_name is 'other'; it must",
    ),
    "a default prompt that is a list": (
        edit(ST, default_prompt_name=["query"]),
        "default_prompt_name is ['query']",
    ),
    "an unknown similarity": (
        edit(ST, similarity_fn_name="hamming"),
        "similarity_fn_name is 'hamming'; it must be one of",
    ),
    "a similarity that is a list": (edit(ST, similarity_fn_name=["dot"]), "similarity_fn_name is ['dot']"),
    "prompts in a list": (edit(ST, prompts=["a"]), "prompts is ['a']; it must map names to texts"),
    "prompts that are a text": (
        edit(ST, prompts="query: "),
        "prompts is 'query: '; it must map names to texts",
    ),
    "a prompt that is a number": (
        edit(ST, prompts={"query": 5}),
        "the prompt 'query' is 5; it must be valid Unicode text",
    ),
    "a prompt of megabytes": (
        edit(ST, prompts={"query": "the " * 10**6}),
        "the prompt 'query' has 4000000 characters; the limit is 10000",
    ),
    "prompts without end": (
        edit(ST, prompts={f"{i}": "the " for i in range(20_000)}, default_prompt_name=None),
        "has 20000 prompts; the limit is 1000",
    ),
    "queries that are filled up without end": (
        edit(ST, model_type="ColBERT", query_length=2**20),
        "query_length is 1048576; it must be a whole number of tokens from 1 to 4096",
    ),
    "half a character": (
        text(ST, "the: ", "\\ud83d"),
        "the prompt 'query' is '\\ud83d'; it must be valid Unicode text",
    ),
    "a negative length": (edit("sentence_bert_config.json", max_seq_length=-1), LENGTH),
    "no length at all": (edit("sentence_bert_config.json", max_seq_length=0), LENGTH),
    "a length of a text": (edit("sentence_bert_config.json", max_seq_length="40"), LENGTH),
    "a length that is NaN": (edit("sentence_bert_config.json", max_seq_length=float("nan")), LENGTH),
    "a length that is true": (edit("sentence_bert_config.json", max_seq_length=True), LENGTH),
    "a length of two tokens": (edit("sentence_bert_config.json", max_seq_length=2), "no room for text"),
    "lower case that is a word": (
        edit("sentence_bert_config.json", do_lower_case="no"),
        "do_lower_case is 'no'; it",
    ),
    "pooling of a list in a list": (
        edit(POOLING, pooling_mode=[["mean"]]),
        "pooling_mode is [['mean']]; it must be made of",
    ),
    "pooling of a number": (edit(POOLING, pooling_mode=3), "pooling_mode is 3; it must be made of"),
    "pooling of one kind for ever": (edit(POOLING, pooling_mode=["mean"] * 10**5), "each at most once"),
    "pooling that is a word": (
        edit(POOLING, pooling_mode_max_tokens="no"),
        "pooling_mode_max_tokens is 'no'; it must",
    ),
    "a prompt in the pooling of 0": (
        edit(POOLING, include_prompt=0),
        "include_prompt is 0; it must be true or false",
    ),
    # the linear layer
    "a linear layer of others": (
        edit(DENSE, in_features=31),
        "in_features is 31 and out_features 8; in_features must be 32",
    ),
    "a linear layer of 2^40": (
        edit(DENSE, out_features=2**40),
        "out_features 1099511627776; in_features must be 32",
    ),
    "a linear layer of true": (edit(DENSE, out_features=True), "out_features True; in_features must be 32"),
    "a linear layer of -8": (edit(DENSE, out_features=-8), "out_features -8; in_features must be 32"),
    "an activation in a list": (
        edit(DENSE, activation_function=["Tanh"]),
        "activation_function ['Tanh'] is not supported",
    ),
    "a bias that is a word": (edit(DENSE, bias="yes"), "bias is 'yes'; it must be true or false"),
    "a linear layer with NaN": (put("linear.weight", float("nan"), WEIGHTS[1]), "has a NaN or an infinity"),
    "a linear layer for another": (edit(DENSE, out_features=9), "the weights do not match config.json"),
    # safetensors
    "embeddings in int32": (as_dtype(WORDS, torch.int32), f"F32, F16, BF16: {WORDS} I32"),
    "a matrix of booleans": (as_dtype(QUERY, torch.bool), f"F32, F16, BF16: {QUERY} BOOL"),
    "a matrix in eight bits": (as_dtype(QUERY, torch.float8_e4m3fn), f"{QUERY} F8_E4M3"),
    "NaN in a matrix": (put(QUERY, float("nan")), f"the tensor {QUERY} has a NaN or an infinity"),
    "infinity in an embedding": (put(WORDS, float("inf")), f"the tensor {WORDS} has a NaN or an infinity"),
    "infinities that cancel": (
        lambda f: (put(WORDS, float("inf"))(f), put("embeddings.LayerNorm.bias", -float("inf"))(f)),
        "has a NaN or an infinity",
    ),
    "a matrix of nothing": (
        tensors(lambda t: t.update({QUERY: torch.zeros(0, 32)})),
        f"{QUERY} (0, 32) instead",
    ),
    "a matrix of one number": (
        tensors(lambda t: t.update({QUERY: torch.tensor(1.0)})),
        f"{QUERY} () instead",
    ),
    "no weights at all": (tensors(lambda t: t.clear()), "missing: embeddings.LayerNorm.bias, "),
    "an adapter": (tensors(lambda t: t.update(lora=torch.zeros(2))), "unexpected: lora"),
    "ten thousand tensors more": (
        tensors(lambda t: t.update({f"x{i}": torch.zeros(1) for i in range(10_000)})),
        "and 9992 more",
    ),
    "a tensor under two names": (
        both_names,
        "are two names for the same tensor, 'embeddings.word_embeddings.weight'",
    ),
    "data that overlap": (
        header(lambda h: h[QUERY].update(data_offsets=h[WORDS]["data_offsets"])),
        "model.safetensors cannot be read",
    ),
    "data beyond the file": (
        header(lambda h: h[QUERY].update(data_offsets=[2**40, 2**40 + 4096])),
        "model.safetensors cannot be read",
    ),
    "a shape beyond 64 bits": (
        header(lambda h: h[QUERY].update(shape=[2**40, 2**40])),
        "model.safetensors cannot be read",
    ),
    "a negative shape": (
        header(lambda h: h[QUERY].update(shape=[-32, -32])),
        "model.safetensors cannot be read",
    ),
    "a dtype that is none": (
        header(lambda h: h[QUERY].update(dtype="F31")),
        "model.safetensors cannot be read",
    ),
    # shards
    "a shard above": (
        shards({"a": "../model.safetensors"}),
        "weight_map names the file '../model.safetensors'",
    ),
    "a shard at the root": (shards({"a": "/etc/passwd"}), "weight_map names the file '/etc/passwd'"),
    "a shard that is a number": (
        shards({"a": 1}),
        "weight_map names the file 1, which is not a file name",
    ),
    "a shard that is the folder": (
        shards({"a": "."}),
        "weight_map names the file '.', which is not a file name",
    ),
    "shards that are a text": (shards("model.safetensors"), "has no weight_map"),
    "shards without end": (shards({str(i): f"{i}.x" for i in range(2000)}), "weight_map names 2000 files"),
    "a shard that is not there": (shards({"a": "b.safetensors"}), "b.safetensors is missing"),
    "a tensor in two shards": (two_of_each, "and so does a.safetensors: save the checkpoint again"),
    **TOKENIZERS,
}
"""What is done to a folder that is whole, and a part of the sentence that refuses it then."""
