"""Input functions: the datasets they return, and builders for numpy and pandas; private."""

from __future__ import annotations
