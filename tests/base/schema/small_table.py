"""A table of our own, which says in few fields all that the notation can say.

Takes: nothing.
Gives: the text, and the classes that are made from it.
"""

from typing import Any, TypeAlias

from headwater.base.schema import Table
from headwater.base.schema.classes import build_message

TEXT = """\
# A comment.

request EverythingRequest key=7 versions=1-4 flexible=3
  flag bool default=true
  small int8
  port uint16
  crc uint32
  ratio float64
  id uuid
  name string nullable=2-4
  data bytes
  since_two int32 versions=2-4 default=-1 ignorable
  until_two string versions=1-2
  numbers []int32 nullable=4
  words []string
  ids []uuid versions=4
  parts []Part
  pair Pair versions=2-4 nullable default=null
  plain Pair versions=4
  rack string versions=3-4 nullable tag=1 default=null
  hint Pair versions=3-4 tag=0
  loose Loose versions=4 nullable tag=2
  batch records nullable
:Part
  index int32
  batch records nullable
:Pair
  left int32 default=-1
  right int64
:Loose
  items []int32

response NothingResponse key=7 versions=1-4

header OldHeader versions=0-1 flexible=1
  client_id string nullable legacy
"""

# The classes are made here, so no type checker knows their fields.
AnyMessage: TypeAlias = Any

TABLE = Table(TEXT)

EverythingRequest: AnyMessage = build_message(TABLE.schema("EverythingRequest"), __name__)
NothingResponse: AnyMessage = build_message(TABLE.schema("NothingResponse"), __name__)
OldHeader: AnyMessage = build_message(TABLE.schema("OldHeader"), __name__)
