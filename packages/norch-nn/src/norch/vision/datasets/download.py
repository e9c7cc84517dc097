"""Getting a data set's file from the first of several places that has it."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from pathlib import Path

from ...utils.downloading import fetch
from .files import DatasetError

ROUNDS = 2  # over all the mirrors
PAUSE = 1.0  # seconds between the rounds


def download(urls: Sequence[str], target: Path, digest: str, dataset: str, package: str | None = None) -> None:
    """Writes what one of `urls` gives to `target`, if its md5 is `digest`.

    A file that was there before stays until the new one is complete. Raises DatasetError once every URL has failed
    twice, with the reason of each.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    for number in range(ROUNDS):
        if number:
            time.sleep(PAUSE)
        for url in urls:
            try:
                return fetch(url, target, digest, "md5")
            except (OSError, ValueError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                failures[url] = str(error) or type(error).__name__
    reasons = "".join(f"\n    {url}: {why}" for url, why in failures.items())
    raise DatasetError(
        f"{dataset}: {target.name} could not be downloaded.{reasons}\n"
        f"Without a network, bring the file from elsewhere and put it into {target.parent} (md5 {digest})"
        + (f", or on Debian and Ubuntu: apt install {package}" if package else "")
    )
