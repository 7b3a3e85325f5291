"""Suites that every implementation of an interface has to pass.

Takes: an implementation, by overriding one or two fixtures in a subclass.
Gives: test classes for pytest.
May import: every room, and pytest.
Start reading at: `headwater.testing.contracts.disk`.
"""
