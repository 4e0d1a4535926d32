"""Folders whose tokenizer.json can be read, and would fail, hang or take all memory on some text."""

from tests.support.hostile_folders import (
    Damage,
    nested,
    normalizer,
    precompiled,
    replaced,
    tokenizer,
    unigram,
)

SEPARATOR = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
ONLY = {"Sequence": {"id": "A", "type_id": 0}}
DOUBLING = replaced({"Regex": "x*"}, "yy")

TOKENIZERS: dict[str, tuple[Damage, str]] = {
    "no token for the unknown": (
        tokenizer(lambda t: t["model"].update({"unk_token": "[GONE]"})),
        "unk_token is '[GONE]'",
    ),
    "no word at all": (
        tokenizer(lambda t: t["model"].update(vocab={})),
        "unk_token is '[UNK]', which is not in",
    ),
    "a model that is a list": (
        tokenizer(lambda t: t.update(model=[])),
        "model is [], which is not an object",
    ),
    "a model of no kind": (
        tokenizer(lambda t: t.update(model={"type": "GPT"})),
        "tokenizer.json cannot be read",
    ),
    "a word beyond the embedding": (
        tokenizer(lambda t: t["model"]["vocab"].update(far=92)),
        "has 93 tokens",
    ),
    "a word of 2^32": (
        tokenizer(lambda t: t["model"]["vocab"].update(far=2**32 - 1)),
        "embeddings for only 92",
    ),
    "a word of -1": (
        tokenizer(lambda t: t["model"]["vocab"].update(far=-1)),
        "tokenizer.json cannot be read",
    ),
    "a special token beyond": (
        tokenizer(lambda t: t["post_processor"]["special_tokens"]["[SEP]"].update(ids=[10**6])),
        "returns token id 1000000, but the model has embeddings for only 92",
    ),
    "a segment beyond": (
        tokenizer(lambda t: t["post_processor"]["pair"][3]["Sequence"].update(type_id=7)),
        "returns segment 7, but the model has only 2",
    ),
    "a text given twice": (
        tokenizer(lambda t: t["post_processor"].update(single=[{"Sequence": {"id": "A", "type_id": 0}}] * 9)),
        "post_processor must take each text of an input exactly once",
    ),
    "a million tokens around a text": (
        tokenizer(
            lambda t: t["post_processor"]["special_tokens"]["[SEP]"].update(
                ids=[3] * 10**6, tokens=["x"] * 10**6
            )
        ),
        "post_processor has 4000006 special tokens in all; the limit is 256",
    ),
    "a thousand tokens around a single text": (
        tokenizer(lambda t: t["post_processor"].update(single=[*[SEPARATOR] * 1000, ONLY])),
        "post_processor has 1008 special tokens in all; the limit is 256",
    ),
    "a thousand times a thousand tokens": (
        tokenizer(
            lambda t: (
                t["post_processor"]["special_tokens"]["[SEP]"].update(ids=[3] * 1000, tokens=["x"] * 1000),
                t["post_processor"].update(single=[*[SEPARATOR] * 1000, ONLY]),
            )
        ),
        "special tokens in all; the limit is 256",
    ),
    "tokens around a text in many steps": (
        tokenizer(
            lambda t: t.update(post_processor={"type": "Sequence", "processors": [t["post_processor"]] * 100})
        ),
        "post_processor has 1000 special tokens in all; the limit is 256",
    ),
    "more ids than tokens around a text": (
        tokenizer(lambda t: t["post_processor"]["special_tokens"]["[SEP]"].update(ids=[3] * 3)),
        "post_processor has 3 ids and 1 tokens for '[SEP]'",
    ),
    "a token of a megabyte around a text": (
        tokenizer(lambda t: t["post_processor"]["special_tokens"]["[SEP]"].update(tokens=["x" * 10**6])),
        "a token of post_processor for '[SEP]' has 1000000 characters; the limit is 1000",
    ),
    "an unknown token of a megabyte": (
        tokenizer(lambda t: t["model"].update(unk_token="x" * 10**6)),
        "model.unk_token has 1000000 characters; the limit is 1000",
    ),
    "a word of a megabyte": (
        tokenizer(lambda t: t["model"]["vocab"].update({"x" * 10**6: 5})),
        "a token of model.vocab has 1000000 characters; the limit is 1000",
    ),
    "a beginning of words of a megabyte": (
        tokenizer(lambda t: t["model"].update(continuing_subword_prefix="#" * 10**6)),
        "model.continuing_subword_prefix has 1000000 characters; the limit is 1000",
    ),
    "a piece of every length": (
        tokenizer(lambda t: t.update(model=unigram(["a" * n for n in range(1, 1000)]))),
        "model.vocab has 871 tokens of more than 128 characters; the limit is 128",
    ),
    "a text of special tokens": (
        tokenizer(
            lambda t: t["post_processor"]["special_tokens"]["[SEP]"].update(ids=[3] * 50, tokens=["x"] * 50)
        ),
        "no room for text",
    ),
    "words of any length": (
        tokenizer(lambda t: t["model"].update(max_input_chars_per_word=10**9)),
        "max_input_chars_per_word is 1000000000; the limit is 1000",
    ),
    "a text that doubles": (
        normalizer(*[DOUBLING] * 60),
        "normalizer can make a text more than 32 times as long",
    ),
    "a letter of a megabyte": (
        normalizer(replaced({"String": "a"}, "b" * 10**6)),
        "more than 32 times as long",
    ),
    "a letter of a megabyte in a map": (
        normalizer(precompiled("b" * 10**6)),
        "normalizer can make a text more than 32 times as long",
    ),
    "a megabyte before a text": (
        normalizer({"type": "Prepend", "prepend": "b" * 10**6}),
        "normalizer can make a text more than 32 times as long",
    ),
    "a token that becomes a megabyte": (
        tokenizer(lambda t: t.update(decoder=replaced({"String": "a"}, "b" * 10**6))),
        "decoder can make a text longer than its tokens",
    ),
    "expressions without end": (
        normalizer(*[replaced({"Regex": r"\p{L}" * 400}, "")] * 100),
        "its regular expressions have 200000 characters in all; the limit is 10000",
    ),
    "an expression that is none": (normalizer(replaced({"Regex": "("}, "")), "tokenizer.json cannot be read"),
    "an expression that never ends": (
        normalizer(replaced({"Regex": "(a+)+$"}, "")),
        "the expression `(a+)+$` takes too long",
    ),
    "an expression that never ends for another word": (
        normalizer(replaced({"Regex": "(xy|yx|x|y)+z"}, "")),
        "the expression `(xy|yx|x|y)+z` takes too long",
    ),
    "a slow expression in the decoder": (
        tokenizer(lambda t: t.update(decoder=replaced({"Regex": r"\s+$"}, ""))),
        r"the expression `\s+$` takes too long",
    ),
    "steps in steps": (
        tokenizer(lambda t: t.update(normalizer=nested(300))),
        "tokenizer.json cannot be read",
    ),
    "a thousand steps": (
        normalizer(*[{"type": "Lowercase"}] * 1000),
        "it has 1003 steps before and after its model",
    ),
    "added tokens without end": (
        tokenizer(lambda t: t.update(added_tokens=[{"id": 1}] * 300_000)),
        "added_tokens has 300000 entries",
    ),
    "added tokens of megabytes": (
        tokenizer(lambda t: t["added_tokens"].extend({"content": f"{i}" * 10**6} for i in range(3))),
        "characters in all; the limit is 2097152",
    ),
    "added tokens of nothing": (
        tokenizer(lambda t: t.update(added_tokens=[{}])),
        "tokenizer.json cannot be read",
    ),
}
"""What is done to a folder that is whole, and a part of the sentence that refuses it then."""
