"""Images on the host: decoding, encoding, resizing, and folders of them."""

from __future__ import annotations
