"""The running broker: the only place with an event loop, sockets and timers.

Takes: settings, a data directory and an address to listen on.
Gives: a broker that accepts connections until it is told to stop.
May import: every other room of `headwater.delivery`, `headwater.log`, `headwater.base`.
Start reading at: `headwater.delivery.server.lifecycle`.
"""
