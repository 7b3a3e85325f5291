"""How fast messages become bytes and bytes become messages, beside kio.

Takes: nothing.
Gives: microseconds per message of both, as a table and as rows of JSON.
May import: `headwater.base.schema`, `headwater.delivery.wire`, kio.
Start reading at: `benchmarks.codec.cases`.
"""
