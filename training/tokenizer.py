"""Byte-level BPE in the official format, with Ling's special tokens, pre-split pattern and chat template."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mindnano.tokenizer.ling import TEMPLATE
from training import chats, data
from training.retrieval import Fact
from training.words import KEYS

PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SPECIAL = {"bos": "<|startoftext|>", "pad": "<|endoftext|>", "eos": "<|role_end|>"}
# Marks of the chat format: a token each, but text (a decoder keeps them).
MARKS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
ROLES = ("<role>", "</role>")
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def _corpus(folder: Path) -> Iterator[str]:
    random = Random("tokenizer")
    yield from data.texts(folder, "train")
    yield from data.stories("train")[:4000]
    for _ in range(4000):
        yield "".join(text for text, _ in chats.chat(random, folder))
    for _ in range(400):  # so that every key is one token
        for key in KEYS:
            fact = Fact.draw(random, key)
            yield f" {fact.lead()} {fact.value}. {fact.question}"


def train(folder: Path, target: Path, size: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja into `target`."""
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    special = [AddedToken(s, special=True, normalized=False) for s in (*SPECIAL.values(), *ROLES)]
    marks = [AddedToken(s, special=False, normalized=False) for s in MARKS]
    made.train_from_iterator(
        _corpus(folder),
        trainers.BpeTrainer(
            vocab_size=size - len(MARKS), special_tokens=special, show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        ),
    )  # fmt: skip
    made.add_tokens(marks)
    target.mkdir(parents=True, exist_ok=True)
    made.save(str(target / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL["bos"], "eos_token": SPECIAL["eos"],
        "pad_token": SPECIAL["pad"], "add_bos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": 131072, "fast_tokenizer": True,
    }  # fmt: skip
    (target / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (target / "chat_template.jinja").write_text(TEMPLATE)


def load(run: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(run / "tokenizer.json"))


def ids(run: Path) -> dict[str, int]:
    """Ids of the special tokens: bos, pad, eos."""
    made = load(run)
    return {name: made.token_to_id(token) for name, token in SPECIAL.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tokenizer.")
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--size", type=int, default=2560)
    args = parser.parse_args()
    train(args.data, args.run, args.size)
    made = load(args.run)
    whole = "\n".join(data.texts(args.data, "valid"))
    print(
        f"{made.get_vocab_size()} tokens, {len(whole) / len(made.encode(whole).ids):.2f} characters a token"
    )
    print("keys of several tokens:", [k for k in KEYS if len(made.encode(f" {k}").ids) > 1])
    from training.words import NAMES

    print("names of several tokens:", [k for k in NAMES if len(made.encode(f" {k}").ids) > 1])


if __name__ == "__main__":
    main()
