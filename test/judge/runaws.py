# SPDX-License-Identifier: Apache-2.0
"""Runs AWS CLI commands in one process: a start of the CLI for each takes half a second.

Reads a JSON list of commands, each a list of arguments, from stdin; prints the list of what each answered."""
import contextlib
import io
import json
import sys

from awscli.clidriver import create_clidriver

driver = create_clidriver()
answers = []
for command in json.load(sys.stdin):
    out = io.StringIO()
    out.buffer = io.BytesIO()
    with contextlib.redirect_stdout(out):
        code = driver.main(command + ["--output", "json"])
    text = out.getvalue() or out.buffer.getvalue().decode()
    if code:
        sys.exit("aws %s: exit %s" % (" ".join(command), code))
    answers.append(json.loads(text) if text.strip() else None)
json.dump(answers, sys.stdout)
