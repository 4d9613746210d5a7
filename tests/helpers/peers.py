"""Other libraries' answers, from their own environment: `.venv-peers`, which `make .venv-peers/installed` makes.

In: a script and what it is asked. Out: what it prints as JSON. Holds: nothing of ours is in that environment; a test that asks
is skipped, and says how to get it, where the environment is missing. Tests only.
"""

import json
import pathlib
import subprocess
from typing import Any

import pytest

ENVIRONMENT = pathlib.Path(__file__).parents[2] / ".venv-peers"


def ask(script: str, question: Any) -> Any:
    """What a script answers.

    Args:
        script: Python; `question` is there, and it prints its answer as the last line, as JSON.
        question: goes to it as JSON.
    """
    if not (ENVIRONMENT / "installed").is_file():
        pytest.skip("the peers' environment is missing: run `make .venv-peers/installed`")
    start = "import json, sys\nquestion = json.load(sys.stdin)\n"
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-I", "-c", start + script],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
