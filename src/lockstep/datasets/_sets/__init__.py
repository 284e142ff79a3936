"""Files of the data sets, each with the name of its data set. See `DataSet`."""

from __future__ import annotations
