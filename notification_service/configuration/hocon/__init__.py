"""HOCON texts as trees of values: the only package that knows pyhocon."""
