"""How fast gradlint is, beside its peers."""
