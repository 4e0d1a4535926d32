"""The tests, one file for each module of the product and one for each family of checkpoints."""
