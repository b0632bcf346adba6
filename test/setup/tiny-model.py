#!/usr/bin/env python3
"""Writes the folder of a tiny model that vLLM loads with --load-format dummy: Qwen2's shape with two layers, a byte-level BPE
vocabulary of its own, a ChatML template with tools, and no weights. What it says is noise; how it counts is real.

usage: tiny-model.py FOLDER
"""
import glob
import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 4096
CONTEXT = 8192
END, START, STOP = SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# As Qwen2.5's: a system message is there always, tools stand in it, a call and its result have tags of their own.
CHAT_TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""".strip("\n")


def train():
    """Learns merges from Python's own library, which is there wherever this runs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()  # as Qwen's; transformers does it for the model's type, whatever stands here
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:80]
    tokenizer.train(sources, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    tokenizer = train()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    end, stop = tokenizer.token_to_id(END), tokenizer.token_to_id(STOP)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": STOP, "pad_token": END,
        "additional_special_tokens": [START, STOP], "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE})
    write(folder, "special_tokens_map.json", {"eos_token": STOP, "pad_token": END})
    write(folder, "generation_config.json", {"eos_token_id": stop, "pad_token_id": end})
    write(folder, "config.json", {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16",
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.02,
        "tie_word_embeddings": True, "use_sliding_window": False, "max_position_embeddings": CONTEXT,
        "vocab_size": tokenizer.get_vocab_size(), "bos_token_id": None, "eos_token_id": stop, "pad_token_id": end})


main()
