"""When something happened, and what time it is.

Takes: columns with timestamps of clocks that may be wrong, and what tasks have seen of them.
Gives: columns with the time that counts, and a watermark that is decided once for each batch.
May import: `headwater.streams` beside its other rooms, `headwater.delivery.client`,
`headwater.base`; Spark not in `fold`, `idleness` and `records`.
Start reading at: `headwater.streams.time.watermark`, then `headwater.streams.time.fold`.
"""
