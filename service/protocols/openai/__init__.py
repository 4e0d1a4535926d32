"""The protocol of OpenAI, and those of Jina and Voyage, which share its paths and differ in fields."""
