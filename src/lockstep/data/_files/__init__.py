"""Readers and writers of one file each: TFRecord, text, CSV, fixed-length records, Parquet, ArrayRecord."""

from __future__ import annotations
