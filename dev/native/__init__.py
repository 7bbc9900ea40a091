"""Modules that stand in for a source of the same name when the engine is compiled (`dev.compiled`).

Only where machine code has a much better way than the one that is best in Python, for a module of one duty
whose tests are the same for both. Not for the server as it is installed: they use mypyc's own library.
"""
