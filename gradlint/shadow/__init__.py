"""The static teller: interprets a program, parsed by libcst, on shadow tensors, and runs none of it."""
