"""Log-probabilities in OpenAI's form."""

from __future__ import annotations

from mindnano.engine.sampling import Sampled
from mindnano.server.schemas.chat import TokenLogprob, TopLogprob
from mindnano.tokenizer import Tokenizer

LOWEST = -9999.0  # in place of minus infinity, which JSON doesn't have


def entries(tokenizer: Tokenizer, sampled: list[Sampled]) -> list[TokenLogprob]:
    return [
        TokenLogprob(
            *_token(tokenizer, one.token, one.logprob or 0.0),
            [TopLogprob(*_token(tokenizer, token, logprob)) for token, logprob in one.top or []],
        )
        for one in sampled
    ]


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> tuple[str, float, list[int]]:
    data = tokenizer.token_bytes(token, skip_special=False)
    return data.decode("utf-8", "replace"), max(logprob, LOWEST), list(data)
