"""What is known of one unit of work, told to people and programs: the same to the page, the API and the command."""
