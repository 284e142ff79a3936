"""Reviews of films as text."""

from __future__ import annotations

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._features import ClassLabel, FeaturesDict, Text
from lockstep.datasets._place import DataLocation
from lockstep.datasets._sets import _acl_imdb


def _load(location: DataLocation) -> LoadedDataSet:
    reviews, source = _acl_imdb.load("imdb_reviews", location)
    tables = {split: Table({"text": group.texts, "label": group.labels}) for split, group in reviews.items()}
    return LoadedDataSet(tables, f"imdb_reviews from {source}")


DATA_SET = DataSet(
    name="imdb_reviews",
    description=(
        "50,000 reviews of films, good or bad, and 50,000 of which that is not told (label -1). The texts are as "
        "published, with HTML's line breaks; keras.datasets.imdb has word numbers instead, see imdb."
    ),
    homepage=_acl_imdb.HOMEPAGE,
    features=FeaturesDict({"text": Text(), "label": ClassLabel(names=_acl_imdb.NAMES)}),
    supervised_keys=("text", "label"),
    sizes={"train": 25_000, "test": 25_000, "unsupervised": 50_000},
    load=_load,
    configs=("plain_text",),
)
