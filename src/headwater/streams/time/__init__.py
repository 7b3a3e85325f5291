"""When something happened.

Takes: columns with timestamps of clocks that may be wrong.
Gives: columns with the time that counts, and how far it is to be trusted.
May import: nothing of Headwater but `headwater.base`.
Start reading at: `headwater.streams.time.true_time`.
"""
