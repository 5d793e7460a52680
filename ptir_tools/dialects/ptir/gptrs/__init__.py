"""The serializations of gpt.rs: dump, JSON, bincode and its hash, trace folders."""
