# SPDX-License-Identifier: Apache-2.0
"""Runs AWS CLI commands in one process, since each start of the CLI takes half a second.

Each line of stdin is {"endpoint": URL, "commands": [[argument, ...], ...]}. Each line of stdout is {"answers": [...]} with
the outputs of the commands, or {"error": text}."""
import contextlib
import io
import json
import sys

from awscli.clidriver import create_clidriver

driver = create_clidriver()
stdout = sys.stdout
clients, create = {}, driver.session.create_client


def client(service, **settings):
    """Creates one client per service and region. The CLI creates one per command, which takes half of its time."""
    key = (service, settings["endpoint_url"])
    if key not in clients:
        clients[key] = create(service, **settings)
    return clients[key]


driver.session.create_client = client


def run(endpoint, command):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = driver.main(command + ["--output", "json", "--endpoint-url", endpoint])
    if code:
        raise RuntimeError("aws %s: exit %s: %s" % (" ".join(command), code, err.getvalue()))
    text = out.getvalue()
    return json.loads(text) if text.strip() else None


for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"answers": [run(request["endpoint"], c) for c in request["commands"]]}
    except RuntimeError as e:
        answer = {"error": str(e)}
    stdout.write(json.dumps(answer) + "\n")
    stdout.flush()
