"""What waits for what: the check of order, and the events of a target."""
