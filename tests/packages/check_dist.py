"""Checks what `make dist` built in clean environments, and writes the list of what an installation consists of.

In: a wheel and an sdist in dist/, the program uv, a Python, requirements.lock. Out: `dist/NAME-VERSION.cdx.json`, a bill of
materials in CycloneDX 1.6; exit code 1 if an environment cannot be made or its command fails. Holds: each environment has one of
the two files and the locked versions, and runs in a folder outside the clone; the list is valid by CycloneDX's own schema and is
the same each time. Not covered: extras, and other versions (`make test-packages`).

    python tests/packages/check_dist.py --uv build/lock/bin/uv [--python python3.12]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BILL_OF_MATERIALS = "cyclonedx-bom==7.5.0"
"""The tool of the CycloneDX project, with its version."""

UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")


class DistError(Exception):
    """A command failed, or printed something else than it should."""


def call(*command: object, cwd: pathlib.Path) -> str:
    """Run a command and return what it printed.

    Raises:
        DistError: it failed; the message holds its output.
    """
    words = [str(word) for word in command]
    variables = {name: value for name, value in os.environ.items() if name not in UNSET}
    done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DistError(f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def checked(built: pathlib.Path, work: pathlib.Path, uv: pathlib.Path, python: str) -> pathlib.Path:
    """Install a wheel or an sdist into a clean environment, publish a report with it, and return its Python.

    Args:
        built: the wheel or the sdist.
        work: an empty folder for the environment and the report.
        uv: the program that installs.
        python: of the environment.

    Raises:
        DistError: a command failed, or another version answered.
    """
    own = work / "environment" / "bin" / "python"
    program = own.with_name("dp-pipelines")
    call(uv, "venv", "--quiet", "--python", python, work / "environment", cwd=work)
    call(uv, "pip", "install", "--quiet", "--python", own, "--constraint", ROOT / "requirements.lock", built, cwd=work)
    call(uv, "pip", "check", "--quiet", "--python", own, cwd=work)
    version = built.name.removesuffix(".tar.gz").split("-")[1]
    if (printed := call(program, "--version", cwd=work)) != f"dp-pipelines {version}\n":
        raise DistError(f"{built.name} calls itself {printed.strip()!r}")
    call(own, ROOT / "examples" / "shop" / "make_rows.py", cwd=work)
    (work / "weekly.yaml").write_bytes((ROOT / "examples" / "shop" / "weekly.yaml").read_bytes())
    call(program, "run", "weekly.yaml", "--output", "out", cwd=work)
    call(program, "ledger", "verify", "weekly.yaml", "--against", "out/manifest.json", cwd=work)
    if not (work / "out" / "report.html").is_file():
        raise DistError(f"{built.name} published no page")
    return own


def write_bill_of_materials(
    wheel: pathlib.Path, own: pathlib.Path, work: pathlib.Path, uv: pathlib.Path
) -> pathlib.Path:
    """Write what an environment with the wheel consists of, with licences, and return the path of the list.

    Args:
        wheel: names the list.
        own: the Python of that environment.
        work: an empty folder for the tool.
        uv: the program that installs.

    Raises:
        DistError: the tool failed, or its list is not valid.
    """
    target = wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".cdx.json")
    tool = work / "tool" / "bin" / "python"
    call(uv, "venv", "--quiet", "--python", own, work / "tool", cwd=work)
    call(uv, "pip", "install", "--quiet", "--python", tool, BILL_OF_MATERIALS, cwd=work)
    options = ("--spec-version", "1.6", "--output-reproducible", "--validate", "--mc-type", "library")
    options += ("--pyproject", ROOT / "pyproject.toml", "--output-file", target)
    call(tool.with_name("cyclonedx-py"), "environment", *options, own, cwd=work)
    return target


def main() -> int:
    """Check both files and write the list. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uv", type=pathlib.Path, required=True, help="the program uv")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    given = parser.parse_args()
    os.environ["UV_PYTHON_DOWNLOADS"] = "never"
    uv = given.uv.absolute()
    (wheel,) = (ROOT / "dist").glob("*.whl")
    (sdist,) = (ROOT / "dist").glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="check-dist-", ignore_cleanup_errors=True) as folder:
        try:
            for built in (wheel, sdist):
                work = pathlib.Path(folder).resolve() / built.suffix[1:]
                work.mkdir()
                own = checked(built, work, uv, given.python)
                print(f"{built.name}: installed, and a report published", flush=True)
                if built == wheel:
                    print(f"{write_bill_of_materials(wheel, own, work, uv).name}: valid")
        except DistError as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
