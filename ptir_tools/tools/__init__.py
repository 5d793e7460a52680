"""What developers do with programs, as functions: reduce them, find the step that breaks them, test the toolkit with them."""
