"""One file for each data set; its name is the name of the data set. See `DataSet`."""

from __future__ import annotations
