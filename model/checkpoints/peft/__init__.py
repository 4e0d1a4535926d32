"""Adapters in the form of peft: a folder for each task, with what it is and low-rank matrices."""
