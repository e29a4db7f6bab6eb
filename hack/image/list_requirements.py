"""Prints what the image installs: the dependencies with all extras, and what builds the wheel."""

import sys
import tomllib
from pathlib import Path

FOR_EDITABLE_INSTALLS = "editables"  # hatchling asks for it then, which nobody answers without build isolation


def requirements(pyproject: dict) -> list[str]:
    project = pyproject["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    own = project["name"]
    everything = [*pyproject["build-system"]["requires"], FOR_EDITABLE_INSTALLS, *project["dependencies"], *extras]
    return sorted({line for line in everything if not line.startswith(own)})


if __name__ == "__main__":
    print("\n".join(requirements(tomllib.loads(Path(sys.argv[1]).read_text()))))
