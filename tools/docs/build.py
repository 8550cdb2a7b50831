"""`python -m tools.docs.build` checks the commands and manifests in the pages and builds the site; any warning is an error.

mkdocs is called in this process, so that its warnings are shown and its progress is not. The build reads no clock and no network: the
same pages give the same site.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from tools.docs.commands import refused_commands
from tools.docs.manifests import refused_manifests

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = Path(__file__).with_name("mkdocs.yml")
CONSTANT = {"NO_MKDOCS_2_WARNING": "true", "SOURCE_DATE_EPOCH": "0"}
"""The theme prints no advertisement, and pages carry no date of the build."""


def main() -> int:
    refused = [*refused_commands(ROOT), *refused_manifests(ROOT)]
    for text in refused:
        print(text, file=sys.stderr)
    return 1 if not _is_built() or refused else 0


def _is_built() -> bool:
    os.environ.update(CONSTANT)
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import MkDocsException

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("mkdocs")
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        build(load_config(str(CONFIGURATION), strict=True))
    except MkDocsException as error:
        print(error, file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
