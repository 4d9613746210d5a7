"""The program of pipelinedp_beam.py with one changed import: the same rows, extractors and parameters on dp_pipelines' path.

In and out: as there. Holds: the program is that file's text, in which one line is another.
"""

import pathlib

PROGRAM = pathlib.Path(__file__).with_name("pipelinedp_beam.py")
BEFORE = "\nimport pipeline_dp "
AFTER = "\nfrom dp_pipelines.transforms import pipeline_dp "


def changed(program: str) -> str:
    """A program with the other import."""
    if program.count(BEFORE) != 1:
        raise ValueError(f"{PROGRAM.name}: must import pipeline_dp in exactly one line")
    return program.replace(BEFORE, AFTER)


if __name__ == "__main__":
    exec(compile(changed(PROGRAM.read_text()), str(PROGRAM), "exec"))  # our own file beside this one
