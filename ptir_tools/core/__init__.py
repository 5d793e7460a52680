"""The SSA core: types, ops, regions, declarations, diagnostics. It knows no op and imports only the standard library."""
