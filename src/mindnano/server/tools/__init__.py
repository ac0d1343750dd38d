"""Tool calls: a model's own form of writing them, as a grammar to hold it to and a reader to understand it."""
