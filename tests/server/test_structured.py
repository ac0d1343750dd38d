"""Response formats: a random model can't but keep to them, and a model's own words go through."""

import json
import re

import jsonschema_rs
import pytest

from mindnano.engine.grammar import Grammars
from mindnano.errors import MindNanoError
from mindnano.server import structured
from mindnano.server.structured import JsonFormat, LarkFormat, RegexFormat
from mindnano.server.tools.markers import Markers

from .running import user

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "home": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
    "$defs": {
        "place": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}
    },
}


def json_schema(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema} | more}


@pytest.mark.parametrize("seed", range(4))
def test_a_random_models_answer_fits_the_schema(ask, seed):
    got = ask(messages=user("x"), response_format=json_schema(PERSON), seed=seed, max_tokens=1500)
    choice = got["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema_rs.validate(PERSON, json.loads(choice["message"]["content"]))


def test_choices_are_held_to_it_apart(ask):
    schema = {"enum": ["one", "two", "three"]}
    got = ask(messages=user("x"), response_format=json_schema(schema), n=4, seed=1)
    assert all(json.loads(choice["message"]["content"]) in schema["enum"] for choice in got["choices"])


def test_a_json_object(ask, says):
    says('{"a": [1, null]}')
    got = ask(messages=user("x"), response_format={"type": "json_object"})
    assert json.loads(got["choices"][0]["message"]["content"]) == {"a": [1, None]}


def test_a_regular_expression(ask):
    pattern = r"(yes|no)/[0-9]{3}\n"
    got = ask(messages=user("x"), response_format={"type": "regex", "regex": pattern}, seed=2)
    assert re.fullmatch(pattern, got["choices"][0]["message"]["content"])


def test_a_lark_grammar(ask):
    grammar = 'start: "<" WORD ("," WORD)* ">"\nWORD: /[ab]{2}/'
    got = ask(
        messages=user("x"), response_format={"type": "grammar", "grammar": grammar}, seed=2, max_tokens=2000
    )
    assert re.fullmatch(r"<[ab]{2}(,[ab]{2})*>", got["choices"][0]["message"]["content"])


def test_the_format_begins_after_the_reasoning(ask, says):
    says('let me see: {"a": 0}\n</think>\n\n{"a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    message = ask(
        messages=user("x"),
        response_format=json_schema(schema),
        chat_template_kwargs={"enable_thinking": True},
    )["choices"][0]["message"]
    assert message["reasoning_content"] == 'let me see: {"a": 0}'
    assert message["content"] == '{"a": 1}'


def test_what_cant_be_enforced_is_left_to_the_model_only_where_told(client):
    format_ = json_schema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
    body = {"messages": user("x"), "max_tokens": 4, "response_format": format_}
    refused = client.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400 and "uniqueItems" in refused.json()["error"]["message"]
    format_["json_schema"]["strict"] = False
    assert client.post("/v1/chat/completions", json=body).status_code == 200


def test_completions_can_be_held_to_a_format(client):
    body = {"prompt": "x", "response_format": {"type": "regex", "regex": "[xyz]{5}"}, "max_tokens": 20}
    text = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert re.fullmatch("[xyz]{5}", text)


def test_responses_can_be_held_to_a_schema(client):
    text = {"format": {"type": "json_schema", "name": "x", "schema": {"enum": [1, 2]}}}
    got = client.post("/v1/responses", json={"input": "x", "text": text}).json()
    assert json.loads(got["output"][0]["content"][0]["text"]) in (1, 2)


def test_messages_can_be_held_to_a_schema(client):
    config = {"format": {"type": "json_schema", "schema": {"enum": [1, 2]}}}
    body = {"messages": user("x"), "max_tokens": 50, "output_config": config}
    got = client.post("/v1/messages", json=body).json()
    assert json.loads(got["content"][0]["text"]) in (1, 2)


def test_white_space_in_json_is_bounded(llm):
    text = structured.grammar(JsonFormat(), None, False, Markers())
    mask = Grammars(llm.tokenizer, llm.eos_token_ids).compile(text)
    space = llm.tokenizer.encode(" ")[0]
    mask.accept(llm.tokenizer.encode("{")[0])
    for _ in range(32):
        assert mask.allowed()[space]
        mask.accept(space)
    assert not mask.allowed()[space]


@pytest.mark.parametrize(
    "form",
    [JsonFormat({"type": "nonsense"}), LarkFormat("start: ("), RegexFormat("("), JsonFormat({"not": {}})],
)
def test_a_wrong_grammar_is_an_error_of_one_line(llm, form):
    text = structured.grammar(form, None, False, Markers())
    with pytest.raises(MindNanoError, match="grammar: ") as error:
        Grammars(llm.tokenizer, llm.eos_token_ids).compile(text)
    assert "\n" not in str(error.value)


def test_an_enormous_schema_takes_bounded_time(client):
    schema = {"type": "array", "items": {"type": "string", "pattern": "(a{1000}){1000}"}, "minItems": 10**9}
    body = {"messages": user("x"), "max_tokens": 2, "response_format": json_schema(schema)}
    assert client.post("/v1/chat/completions", json=body).status_code in (200, 400)
