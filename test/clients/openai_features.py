"""Each feature of the official OpenAI client: chat, tools, structured output, embeddings, completions, Responses."""

import json

import openai
import pydantic

import told
from told import HTTP2, KEY, MODEL, PATIENCE, URL, WEATHER, Heard, run, usage

heard = Heard()
client = openai.OpenAI(
    base_url=URL + "/v1",
    api_key=KEY,
    max_retries=0,
    timeout=PATIENCE,
    http_client=openai.DefaultHttpxClient(http2=HTTP2, event_hooks={"response": [heard]}),
)
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hello from the matrix"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Forecast", "parameters": WEATHER}}]


class Event(pydantic.BaseModel):
    name: str
    guests: list[str]
    open: bool


def of(u, id=None, **more):
    """The usage of chat, completions or embeddings."""
    details = getattr(u, "prompt_tokens_details", None)
    cached = details.cached_tokens if details else None
    return usage(id or heard.id(), u.prompt_tokens, getattr(u, "completion_tokens", 0), cached=cached, **more)


def chat():
    r = client.chat.completions.create(**ASK, max_completion_tokens=12, n=2, seed=2**60 + 1)
    assert [c.finish_reason for c in r.choices] == ["length"] * 2, r
    assert heard[-1].http_version == ("HTTP/2" if HTTP2 else "HTTP/1.1"), heard[-1].http_version
    assert r._request_id == heard.id()
    yield of(r.usage, operation="chat")


def stream():
    text, used = "", None
    with client.chat.completions.create(**ASK, max_tokens=30, stream=True, stream_options={"include_usage": True}) as s:
        for chunk in s:
            assert used is None, "something follows the usage"
            used = chunk.usage
            assert (used is not None) == (not chunk.choices), chunk
            text += "".join(c.delta.content or "" for c in chunk.choices)
    assert len(text) > 100, text
    yield of(used, operation="chat", stream=True)


def stream_without_usage():
    """Who does not ask for usage sees none, and the journal has it."""
    with client.chat.completions.create(**ASK, max_tokens=21, stream=True) as s:
        chunks = list(s)
    assert all(c.usage is None and c.choices for c in chunks), chunks
    yield usage(heard.id(), None, 21, operation="chat", stream=True)


def called(message):
    call = message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.id and call.function.name == "weather" and arguments["days"] >= 2, message
    return call


def answered(message):
    """The messages after a call: the call, its result, and a question."""
    return [
        *ASK["messages"],
        message,
        {"role": "tool", "tool_call_id": called(message).id, "content": '{"sky":"blue"}'},
    ]


def tools():
    r = client.chat.completions.create(**ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert r.choices[0].finish_reason == "tool_calls", r
    yield of(r.usage)
    end = client.chat.completions.create(
        model=MODEL, messages=answered(r.choices[0].message), tools=TOOLS, max_tokens=9
    )
    assert end.choices[0].message.content and end.usage.prompt_tokens > r.usage.prompt_tokens, end
    yield of(end.usage)


def tools_in_a_stream():
    choice = {"type": "function", "function": {"name": "weather"}}
    with client.chat.completions.stream(
        **ASK, tools=TOOLS, tool_choice=choice, stream_options={"include_usage": True}
    ) as s:
        deltas = [e.type for e in s].count("tool_calls.function.arguments.delta")
        r = s.get_final_completion()
    called(r.choices[0].message)
    assert deltas > 3, deltas
    yield of(r.usage, stream=True)


def structured():
    r = client.chat.completions.parse(**ASK, response_format=Event)
    assert isinstance(r.choices[0].message.parsed, Event), r
    yield of(r.usage)
    with client.chat.completions.stream(**ASK, response_format=Event, stream_options={"include_usage": True}) as s:
        for _ in s:
            pass
        streamed = s.get_final_completion()
    assert streamed.choices[0].message.parsed == r.choices[0].message.parsed, streamed
    yield of(streamed.usage, stream=True)


def embeddings():
    """The client asks for base64 by itself, and decodes it."""
    many = client.embeddings.create(model=MODEL, input=["one", "two"], dimensions=96)
    assert b'"base64"' in heard[-1].request.content, heard[-1].request.content
    assert isinstance(json.loads(heard[-1].content)["data"][1]["embedding"], str)
    yield of(many.usage, operation="embeddings")
    plain = client.embeddings.create(model=MODEL, input=["one", "two"], dimensions=96, encoding_format="float")
    assert isinstance(json.loads(heard[-1].content)["data"][1]["embedding"], list)
    pairs = zip(many.data[1].embedding, plain.data[1].embedding, strict=True)
    assert all(abs(a - b) < 1e-6 for a, b in pairs), (many, plain)
    yield of(plain.usage, operation="embeddings")


def token_ids():
    """What was made of tokens by the client, as LangChain's embeddings do."""
    ids = client.embeddings.create(model=MODEL, input=[[1, 2, 3], [4]])
    assert ids.usage.prompt_tokens == 4, ids.usage
    yield of(ids.usage, operation="embeddings")
    r = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=3)
    yield of(r.usage, operation="completions")


def completions():
    r = client.completions.create(model=MODEL, prompt=["Once", "Twice"], max_tokens=7)
    assert len(r.choices) == 2 and r.usage.completion_tokens == 14, r
    yield of(r.usage, operation="completions")
    with client.completions.create(
        model=MODEL, prompt=["Once", "Twice"], max_tokens=7, stream=True, stream_options={"include_usage": True}
    ) as s:
        chunks = list(s)
    text = "".join(c.text for k in chunks for c in k.choices if c.index == 1)
    assert text == r.choices[1].text, (text, r)
    yield of(chunks[-1].usage, operation="completions", stream=True)


def response_usage(u, **more):
    cached = u.input_tokens_details.cached_tokens
    return usage(heard.id(), u.input_tokens, u.output_tokens, cached=cached, operation="responses", **more)


def responses():
    ask = {"model": MODEL, "input": [{"role": "user", "content": "Hello"}], "instructions": "Be brief."}
    r = client.responses.create(**ask, max_output_tokens=14)
    assert r.output_text and r.status == "incomplete", r
    yield response_usage(r.usage)
    with client.responses.stream(**ask, max_output_tokens=14) as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
    assert text == r.output_text, text
    yield usage(heard.id(), r.usage.input_tokens, 14, operation="responses", stream=True)
    parsed = client.responses.parse(**ask, text_format=Event)
    assert isinstance(parsed.output_parsed, Event), parsed
    yield response_usage(parsed.usage)


def response_tools():
    tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    asked = [{"role": "user", "content": "How is the weather?"}]
    r = client.responses.create(model=MODEL, input=asked, tools=[tool], tool_choice="required")
    call = r.output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["days"] >= 2, r
    yield response_usage(r.usage)
    asked += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}]
    with client.responses.create(model=MODEL, input=asked, tools=[tool], max_output_tokens=11, stream=True) as s:
        end = [e for e in s if e.type in ("response.completed", "response.incomplete")][0].response
    assert end.output_text and end.usage.input_tokens > r.usage.input_tokens, end
    yield response_usage(end.usage, stream=True)


def unicode():
    r = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": told.UNICODE * 50}], max_tokens=5
    )
    yield of(r.usage)


if __name__ == "__main__":
    run(
        *(chat, stream, stream_without_usage, tools, tools_in_a_stream, structured, embeddings, token_ids, completions),
        *(responses, response_tools, unicode),
    )
