"""Lists the packages to install: every folder that holds code. pyproject.toml declares all else.

A folder that is added or deleted, such as that of an extension, needs no change here. The folders `transforms` and `jobs` are
parts of `dp_pipelines`: nothing generic is installed at top level.
"""

import pathlib

from setuptools import setup

FOLDERS = {"dp_pipelines": "dp_pipelines", "dp_pipelines.transforms": "transforms", "dp_pipelines.jobs": "jobs"}
"""The folder of each package at the top, by the name under which it is imported."""


def packages(root: pathlib.Path) -> list[str]:
    """Return the names of all packages, sorted.

    Args:
        root: the folder of this project.
    """
    return sorted(
        ".".join([package, *module.parent.relative_to(root / folder).parts])
        for package, folder in FOLDERS.items()
        for module in (root / folder).rglob("__init__.py")
    )


if __name__ == "__main__":
    setup(packages=packages(pathlib.Path(__file__).parent), package_dir=FOLDERS)
