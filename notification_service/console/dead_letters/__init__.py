"""Dead letters: the page, the operations of the API, and the list that both show."""
