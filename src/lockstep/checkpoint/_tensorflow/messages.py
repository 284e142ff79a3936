"""The protocol buffers of TensorFlow's checkpoints, described in code.

Their descriptors lie in a pool of their own: in protobuf's default one they would clash with TensorFlow's, where a
program imports both. Enumerations are read as their numbers.

Source: tensorflow/core/protobuf/tensor_bundle.proto, trackable_object_graph.proto;
tensorflow/core/framework/tensor_slice.proto, tensor_shape.proto.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "fixed32": _FIELD.TYPE_FIXED32,
    "bool": _FIELD.TYPE_BOOL,
}
# Message: {field: (number, type)}; "*" before a type means that it is repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Header": {"num_shards": (1, "int32"), "endianness": (2, "int32")},
    "Dim": {"size": (1, "int64")},
    "Shape": {"dim": (2, "*Dim"), "unknown_rank": (3, "bool")},
    # Without a length an extent is the whole dimension, which proto3 tells from 0 by presence.
    "Extent": {"start": (1, "int64"), "length": (2, "optional int64")},
    "Slice": {"extent": (1, "*Extent")},
    "Entry": {
        "dtype": (1, "int32"),
        "shape": (2, "Shape"),
        "shard_id": (3, "int32"),
        "offset": (4, "int64"),
        "size": (5, "int64"),
        "crc32c": (6, "fixed32"),
        "slices": (7, "*Slice"),
    },
    "Reference": {"node_id": (1, "int32"), "local_name": (2, "string")},
    "Attribute": {"name": (1, "string"), "full_name": (2, "string"), "checkpoint_key": (3, "string")},
    "Slot": {
        "original_variable_node_id": (1, "int32"),
        "slot_name": (2, "string"),
        "slot_variable_node_id": (3, "int32"),
    },
    "Node": {"children": (1, "*Reference"), "attributes": (2, "*Attribute"), "slot_variables": (3, "*Slot")},
    "Graph": {"nodes": (1, "*Node")},
}


@functools.cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="lockstep/checkpoint.proto", package="lockstep", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lockstep.{n}")) for n in _MESSAGES}


def _add(message: Any, name: str, number: int, kind: str) -> None:
    label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
    plain = kind.removeprefix("*").removeprefix("optional ")
    field = message.field.add(name=name, number=number, label=label)
    if plain in _SCALARS:
        field.type = _SCALARS[plain]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".lockstep.{plain}"
    if kind.startswith("optional "):
        # How protobuf says that a field of proto3 knows whether it was set.
        message.oneof_decl.add(name=f"_{name}")
        field.oneof_index, field.proto3_optional = len(message.oneof_decl) - 1, True


def parse(kind: str, data: bytes) -> Any:
    """Returns the message of a kind that some bytes hold.

    Raises:
        ValueError: If they hold none.
    """
    try:
        return _classes()[kind].FromString(data)
    except DecodeError as error:
        raise ValueError(f"it holds something else where a {kind} belongs ({error})") from None
