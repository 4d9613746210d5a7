"""A command takes jemalloc's memory; whoever has chosen a pool keeps it, and so do programs that use the library."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest

PRINT_AT_END = """
import atexit, sys
import pyarrow as pa
atexit.register(lambda: print(pa.default_memory_pool().backend_name, file=sys.stderr))
"""
COMMAND = PRINT_AT_END + (
    "sys.argv = ['dp-pipelines', 'plan', 'nowhere.yaml']\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())\n"
)
LIBRARY = PRINT_AT_END + "from dp_pipelines.jobs.cli.main import main\nmain(['plan', 'nowhere.yaml'])\n"


def pool(program: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"} | variables
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    return done.stderr.splitlines()[-1]


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
def test_a_command_takes_jemalloc_and_a_program_that_calls_it_keeps_its_own() -> None:
    assert pool(COMMAND) == "jemalloc"
    assert pool(LIBRARY) == pool(PRINT_AT_END)


def test_the_pool_that_the_environment_names_stays() -> None:
    assert pool(COMMAND, ARROW_DEFAULT_MEMORY_POOL="system") == "system"
