"""Composites: what ops beyond the contract, and known custom calls, are in ops of the contract. Each is written once."""
