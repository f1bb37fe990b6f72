"""What detect-secrets finds in texts: a JSON list of texts in, a list of values for each out.

Each text is a file of its own, scanned with the default plugins and filters as its hook does.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def found(text: str, folder: str, scan_file: Any) -> list[str]:
    path = Path(folder) / "text.txt"
    path.write_text(text, encoding="utf-8", errors="replace")
    return [secret.secret_value for secret in scan_file(str(path)) if secret.secret_value]


def main() -> None:
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    with default_settings(), tempfile.TemporaryDirectory() as folder:
        texts = json.load(sys.stdin)
        json.dump([found(text, folder, scan_file) for text in texts], sys.stdout)


if __name__ == "__main__":
    main()
