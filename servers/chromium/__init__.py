"""The browser in which the tests look at the console."""
