"""Aider: what the lines of its Markdown history are.

Evidence: io.py and base_coder.py of Aider-AI/aider (0.86). A reply that itself contains a line of
`#### ` or `> ` cannot be told from a prompt or an output.
"""

from __future__ import annotations

import re

NAME = "aider"
CHAT_FILE = ".aider.chat.history.md"
# Of prompt_toolkit: a time, then the lines of one input.
INPUT_FILE = ".aider.input.history"

STARTED = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
PROMPT = b"####"
OUTPUT = b">"
INPUT_TIME = re.compile(r"# (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s*$")
# Other commands are answered by Aider itself: no turn of the model.
SENT_COMMANDS = re.compile(r"/(?:ask|code|architect|context|help)\s+\S")

MODEL = re.compile(r"(?:Main model|Model): (\S+)")
EDITED = re.compile(r"Applied edit to (.+)")
# Aider rounds from 1,000 on ("2.5k"): there is no exact number in the history.
TOKENS = re.compile(
    r"Tokens: (?P<input_tokens>[\d.]+k?) sent"
    r"(?:, (?P<cache_write_tokens>[\d.]+k?) cache write)?"
    r"(?:, (?P<cached_input_tokens>[\d.]+k?) cache hit)?"
    r", (?P<output_tokens>[\d.]+k?) received"
)
