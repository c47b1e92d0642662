"""What runs inside the user's program: the standard library, and torch once the program has imported it.

The folder is started by its path (`python <folder> plan.json train.py ...`), in the program's own interpreter, where
gradlint need not be installed.  It writes down what happens and judges nothing.
"""
