"""What the compiled engine has beside its sources (`dev.compiled`).

Modules that stand in for a source of the same name, only where machine code has a much better way than the
one that is best in Python, for a module of one duty whose tests are the same for both. And a header by which
compiled code remembers where it found attributes and globals. Not for the server as it is installed: they
use mypyc's own library.
"""
