"""What stateful operators cost, beside Spark's own."""
