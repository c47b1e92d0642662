"""`gradlint server`: the Language Server Protocol, for editors.

Only this package knows the protocol.  It imports pygls, which is an extra.
"""
