"""How much clients may ask for, and how long whoever asks for more has to wait.

Takes: limits from AlterClientQuotas, the store that keeps them, a clock, and what clients used.
Gives: `Quotas`: throttle times in milliseconds, as Kafka counts them.
May import: headwater.log, headwater.base.
Start reading at: `headwater.delivery.broker.quotas.quotas`, then `limits` and `rate`.
"""

from headwater.delivery.broker.quotas.entities import Alteration, Component
from headwater.delivery.broker.quotas.mutations import Mutations
from headwater.delivery.broker.quotas.quotas import Quotas

__all__ = ["Alteration", "Component", "Mutations", "Quotas"]
