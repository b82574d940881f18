"""Where things that can be made again are kept between studies."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder, which may not exist yet.

    `$STEPLADDER_CACHE`, else `$XDG_CACHE_HOME/stepladder`, else `~/.cache/stepladder`.
    """
    own = os.environ.get("STEPLADDER_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "stepladder"
