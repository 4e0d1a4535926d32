"""From texts to tokens with their offsets and words, also of texts too long to tokenize at once."""
