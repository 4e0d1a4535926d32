"""Token classifiers of random weights, and the entities that `transformers` finds with them."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.references.checkpoints import write_bert
from tests.references.classifiers import label_fields, load_pipeline

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG", "MISC", "B-MISC")
GROUPINGS = ("simple", "first", "average", "max")


@dataclass(frozen=True)
class Tagger:
    """A token classifier in a folder, as `transformers` loads it."""

    folder: Path
    pipeline: Any

    @classmethod
    def load(cls, folder: Path) -> "Tagger":
        """Load a folder with `transformers`."""
        return cls(folder, load_pipeline("token-classification", folder))

    def entities(self, text: str, grouping: str) -> list[dict[str, Any]]:
        """What the pipeline finds in a text; with "none", the label of each token that is not "O"."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Tokenizer does not support real words")
            found: list[dict[str, Any]] = self.pipeline(text, aggregation_strategy=grouping)
        return found

    def entities_of_pair(self, pair: tuple[str, str], grouping: str) -> list[list[dict[str, Any]]]:
        """What the steps of the pipeline find in each text of a pair, which it does not take itself."""
        from transformers.pipelines.token_classification import AggregationStrategy

        strategy, found = AggregationStrategy(grouping), []
        read = self.pipeline.tokenizer(*pair, return_offsets_mapping=True, return_special_tokens_mask=True)
        probabilities = self.logits(read["input_ids"], read["token_type_ids"]).softmax(-1).numpy()
        for number, text in enumerate(pair):
            others = [sequence != number for sequence in read.sequence_ids()]
            tokens = self.pipeline.gather_pre_entities(
                text, read["input_ids"], probabilities, read["offset_mapping"], others, strategy
            )
            entities = self.pipeline.aggregate(tokens, strategy)
            found.append([entity for entity in entities if entity["entity_group"] != "O"])
        return found

    def logits(self, ids: list[int], segments: list[int]) -> torch.Tensor:
        """The logits (N, labels) of one input, alone."""
        given = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([segments])}
        with torch.inference_mode():
            logits: torch.Tensor = self.pipeline.model(**given).logits[0]
        return logits


def write_tagger(folder: Path, *, bytes_alone: bool = False, **options: Any) -> Tagger:
    """Save a small token classifier; its tokenizer is a WordPiece, or `bytes_alone` a byte-level BPE."""
    names = label_fields(LABELS)
    if bytes_alone:
        options["vocab_size"] = 300
    write_bert(folder, architecture="BertForTokenClassification", **names, **options)
    if bytes_alone:
        _write_byte_level(folder)
    return Tagger.load(folder)


def _write_byte_level(folder: Path) -> None:
    """Replace the tokenizer of a folder by one of bytes and the most common pairs of some sentences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    roles = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[*roles.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the man beats the boy in the other world, hello there"] * 4, trainer)
    ids = {token: number for number, token in enumerate(roles.values())}
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    named = {f"{role}_token": token for role, token in roles.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | named), encoding="utf-8")
