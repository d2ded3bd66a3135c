"""The console as a part of the program: what it is given to read, its process, and how the supervisor keeps it."""
