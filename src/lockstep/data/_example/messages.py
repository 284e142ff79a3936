"""TensorFlow's protocol buffers, described in code.

Packages, names and numbers are TensorFlow's, so the bytes are the same. The descriptors live in a pool of their own:
in protobuf's default pool they would clash with those of TensorFlow, where a program imports both.

Source: tensorflow/core/example: example.proto, feature.proto; tensorflow/core/framework: tensor.proto,
tensor_shape.proto.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = descriptor_pb2.FieldDescriptorProto
_FILE = "lockstep/example.proto"
_REPEATED = "repeated "
_SCALARS = {
    "bytes": _TYPES.TYPE_BYTES,
    "string": _TYPES.TYPE_STRING,
    "float": _TYPES.TYPE_FLOAT,
    "double": _TYPES.TYPE_DOUBLE,
    "int32": _TYPES.TYPE_INT32,
    "int64": _TYPES.TYPE_INT64,
    "uint32": _TYPES.TYPE_UINT32,
    "uint64": _TYPES.TYPE_UINT64,
    "bool": _TYPES.TYPE_BOOL,
}
# Message: {field: (number, type)}. A type may be another message of this table; "map X" is a map of string to X.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "BytesList": {"value": (1, "repeated bytes")},
    "FloatList": {"value": (1, "repeated float")},
    "Int64List": {"value": (1, "repeated int64")},
    "Feature": {"bytes_list": (1, "BytesList"), "float_list": (2, "FloatList"), "int64_list": (3, "Int64List")},
    "Features": {"feature": (1, "map Feature")},
    "FeatureList": {"feature": (1, "repeated Feature")},
    "FeatureLists": {"feature_list": (1, "map FeatureList")},
    "Example": {"features": (1, "Features")},
    "SequenceExample": {"context": (1, "Features"), "feature_lists": (2, "FeatureLists")},
    "TensorShapeProto": {"dim": (2, "repeated TensorShapeProto.Dim"), "unknown_rank": (3, "bool")},
    "TensorShapeProto.Dim": {"size": (1, "int64"), "name": (2, "string")},
    "TensorProto": {
        # DataType, an enumeration: the same bytes.
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShapeProto"),
        "version_number": (3, "int32"),
        "tensor_content": (4, "bytes"),
        "half_val": (13, "repeated int32"),
        "float_val": (5, "repeated float"),
        "double_val": (6, "repeated double"),
        "int_val": (7, "repeated int32"),
        "string_val": (8, "repeated bytes"),
        "scomplex_val": (9, "repeated float"),
        "int64_val": (10, "repeated int64"),
        "bool_val": (11, "repeated bool"),
        "dcomplex_val": (12, "repeated double"),
        "uint32_val": (16, "repeated uint32"),
        "uint64_val": (17, "repeated uint64"),
    },
}
_KINDS = "kind"  # the name of the oneof in Feature


def _pool() -> descriptor_pool.DescriptorPool:
    # Package "tensorflow": the full names are TensorFlow's, in a pool of their own.
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="tensorflow", syntax="proto3")
    for name, fields in _MESSAGES.items():
        _add_message(file, name, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_message(file: Any, name: str, fields: dict[str, tuple[int, str]]) -> None:
    outer, _, inner = name.rpartition(".")
    parent = next((message for message in file.message_type if message.name == outer), None)
    message = (file.message_type if parent is None else parent.nested_type).add(name=inner)
    for field, (number, kind) in fields.items():
        _add_field(message, field, number, kind)
    if name == "Feature":
        message.oneof_decl.add(name=_KINDS)
        for field in message.field:
            field.oneof_index = 0


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    if kind.startswith("map "):
        entry = _add_map_entry(message, name, kind.removeprefix("map "))
        kind = f"{_REPEATED}{message.name}.{entry}"
    label = _TYPES.LABEL_REPEATED if kind.startswith(_REPEATED) else _TYPES.LABEL_OPTIONAL
    kind = kind.removeprefix(_REPEATED)
    scalar = _SCALARS.get(kind)
    if scalar is None:
        message.field.add(
            name=name, number=number, label=label, type=_TYPES.TYPE_MESSAGE, type_name=f".tensorflow.{kind}"
        )
    else:
        message.field.add(name=name, number=number, label=label, type=scalar)


def _add_map_entry(message: Any, name: str, value: str) -> str:
    title = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=title)
    # A map is a repeated message of key and value on the wire; this flag gives it a dict's interface.
    entry.options.map_entry = True
    _add_field(entry, "key", 1, "string")
    _add_field(entry, "value", 2, value)
    return title


_messages = _pool()


def _class(name: str) -> Any:
    descriptor = _messages.FindMessageTypeByName(f"tensorflow.{name}")
    return message_factory.GetMessageClass(descriptor)


BytesList: Any = _class("BytesList")
FloatList: Any = _class("FloatList")
_Int64List: Any = _class("Int64List")


class _Int64ListType(type):
    # Protobuf's classes have no subclasses.
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Int64List)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_Int64List, name)


class Int64List(metaclass=_Int64ListType):
    """Makes lists of integers, also of booleans and scalar tensors, which newer releases of protobuf refuse."""

    def __new__(cls, value: Any = ()) -> Any:
        """Returns a message of these integers."""
        return _Int64List(value=[int(v) if _is_integer(v) else v for v in (() if value is None else value)])


def _is_integer(value: Any) -> bool:
    is_scalar = getattr(value, "shape", None) == () and np.dtype(value.dtype).kind in "biu"
    return isinstance(value, bool) or is_scalar


Feature: Any = _class("Feature")
Features: Any = _class("Features")
FeatureList: Any = _class("FeatureList")
FeatureLists: Any = _class("FeatureLists")
Example: Any = _class("Example")
SequenceExample: Any = _class("SequenceExample")
TensorProto: Any = _class("TensorProto")
TensorShapeProto: Any = _class("TensorShapeProto")
