"""HOCON texts as trees of values: the only room that knows pyhocon."""
