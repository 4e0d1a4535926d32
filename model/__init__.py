"""The encoder: its mathematics, weights, tokenizer and backends."""
