"""One small file per checkpoint family: a literal table of weight names and what differs from BERT."""
