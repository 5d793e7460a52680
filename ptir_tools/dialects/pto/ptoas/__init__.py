"""PTO as its assembler writes it, where ops write into buffers: reading it into tiles that are values."""
