"""tf.strings: functions of text, which is bytes in arrays of objects."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.strings import as_string as as_string
from lockstep.compat.tensorflow._ops.strings import format as format
from lockstep.compat.tensorflow._ops.strings import join as join
from lockstep.compat.tensorflow._ops.strings import length as length
from lockstep.compat.tensorflow._ops.strings import lower as lower
from lockstep.compat.tensorflow._ops.strings import reduce_join as reduce_join
from lockstep.compat.tensorflow._ops.strings import regex_full_match as regex_full_match
from lockstep.compat.tensorflow._ops.strings import regex_replace as regex_replace
from lockstep.compat.tensorflow._ops.strings import split as split
from lockstep.compat.tensorflow._ops.strings import strip as strip
from lockstep.compat.tensorflow._ops.strings import substr as substr
from lockstep.compat.tensorflow._ops.strings import to_hash_bucket as to_hash_bucket
from lockstep.compat.tensorflow._ops.strings import to_hash_bucket_fast as to_hash_bucket_fast
from lockstep.compat.tensorflow._ops.strings import to_hash_bucket_strong as to_hash_bucket_strong
from lockstep.compat.tensorflow._ops.strings import to_number as to_number
from lockstep.compat.tensorflow._ops.strings import unicode_transcode as unicode_transcode
from lockstep.compat.tensorflow._ops.strings import upper as upper

__all__ = ["as_string", "format", "join", "length", "lower", "reduce_join", "regex_full_match", "regex_replace"]
__all__ += ["split", "strip", "substr", "to_hash_bucket", "to_hash_bucket_fast", "to_hash_bucket_strong", "to_number"]
__all__ += ["unicode_transcode", "upper"]

__getattr__ = _getter(__name__)
