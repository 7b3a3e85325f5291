"""The transaction coordinator: which transaction is open, who may write in it, how it ends.

Takes: requests as plain values, ``__transaction_state`` to write to, a clock, timers, producer ids.
Gives: answers through callbacks, at once or when a sync of the disk is through.
May import: `headwater.log`, `headwater.base` and the rest of `headwater.delivery.broker`.
Start reading at: `headwater.delivery.broker.transactions.coordinator`, then `transaction`.
"""

from headwater.delivery.broker.transactions.coordinator import Transactions

__all__ = ["Transactions"]
