"""Adapters as peft saves them: for each task, a folder with a description and low-rank matrices."""
