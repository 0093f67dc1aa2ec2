# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs moto's own tests against the local region.

Environment: MOTO_SUITE_LIST, a file with the ids of the tests to run, one a line (a line that ends in
"::*" selects a whole file or class); MOTO_SUITE_RESULTS, the file that gets one JSON object for each
test; AWS_ENDPOINT_URL and the access key of the region.
"""

import json
import os
import signal
import sys
import types
import unittest

# A test may take this long, in seconds.
TIME_LIMIT = int(os.environ.get("MOTO_SUITE_TEST_SECONDS", "60"))


def _install_freezegun_stand_in():
    """A frozen clock does not freeze a server: tests that use freezegun are skipped."""

    def skip(*_args, **_kwargs):
        raise unittest.SkipTest("the test freezes the clock of its own process")

    def freeze_time(*_args, **_kwargs):
        def decorate(func):
            return lambda *args, **kwargs: skip()

        decorate.__enter__ = skip
        return decorate

    module = types.ModuleType("freezegun")
    module.freeze_time = freeze_time
    sys.modules["freezegun"] = module


try:
    import freezegun  # noqa: F401
except ImportError:
    _install_freezegun_stand_in()

# The region knows one access key; moto would replace it by its own.
from moto.core.config import default_user_config  # noqa: E402

default_user_config["core"]["mock_credentials"] = False


class TestTimeLimit(BaseException):
    """Not an Exception, so that clients and loops that wait do not swallow it."""

    __test__ = False


def _read_list():
    with open(os.environ["MOTO_SUITE_LIST"], encoding="utf-8") as file:
        return {line.rstrip("\n") for line in file if line.strip()}


def _name(item):
    return item.nodeid.removeprefix("tests/")


def pytest_collection_modifyitems(config, items):
    wanted = _read_list()
    files = {line.removesuffix("::*") for line in wanted if line.endswith("::*")}
    kept = [i for i in items if _name(i) in wanted or _name(i).split("::")[0] in files]
    dropped = [i for i in items if i not in kept]
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


def _write(result):
    with open(os.environ["MOTO_SUITE_RESULTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def pytest_runtest_protocol(item, nextitem):
    def expire(_signum, _frame):
        raise TestTimeLimit(f"the test took more than {TIME_LIMIT} s")

    signal.signal(signal.SIGALRM, expire)
    # Again each second, in case that a cleanup handler swallows it.
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT, 1)


def pytest_runtest_logreport(report):
    name = report.nodeid.removeprefix("tests/")
    if report.when == "call" or report.outcome != "passed":
        text = report.longreprtext if report.failed else ""
        if report.skipped and isinstance(report.longrepr, tuple):
            text = report.longrepr[2]
        _write({"id": name, "outcome": report.outcome, "when": report.when, "text": text[-6000:]})
    if report.when == "teardown":
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_collectreport(report):
    if report.failed:
        _write({"id": report.nodeid, "outcome": "failed", "when": "collect", "text": str(report.longrepr)})
