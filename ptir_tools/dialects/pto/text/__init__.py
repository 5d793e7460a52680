"""The text form of PTO IR."""
