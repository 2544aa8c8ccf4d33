"""A crawler whose operators crash and hang, for the tests of the crawl."""

import os
import time
from collections.abc import Mapping
from typing import Any

from cuda_agent.problems import torch_crawl_child


def open_crawler(payload: Mapping[str, Any]) -> "Breaking":
    """Entry for the fork server."""
    torch_crawl_child.open_crawler(payload)
    return Breaking()


class Breaking(torch_crawl_child.Crawler):
    """Two operators that break the child, one real one after them."""

    def names(self, _payload: Mapping[str, Any]) -> dict[str, Any]:
        return {"names": ["crashes", "hangs", "torch.abs"], "refused": {}}

    def build(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        if payload["name"] == "crashes":
            os.abort()
        if payload["name"] == "hangs":
            time.sleep(60)
        return super().build(payload)
