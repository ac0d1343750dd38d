"""Training of the small built-in model: data, tokenizer, model in PyTorch, evaluation, export. Not installed."""
