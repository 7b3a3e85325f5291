"""What flows, and the few outside things every room is handed.

Takes: bytes, and the machine's clock, disk and dice.
Gives: record batches, and the clock, disk, dice and errors that other rooms take as arguments.
May import: the standard library, crc and compression packages.
Start reading at: `headwater.base.record`, the shape of the data.
"""
